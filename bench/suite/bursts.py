"""Sums of which a part may be lost, by real programs on links that lose packets in bursts, beside those that lose nothing: the simulator
carries the packets, as nothing in the kernel loses them so."""
import collections
import math
import statistics
import sys

import loss
import report
from relayed import Relayed

# All packets go through one process, beside ranks that share two cores with it: at 1 Gbit/s it would be late, and times its own.
RANKS, MBIT = 8, 100
SECONDS = {1 << 20: 6, 4 << 20: 6}  # of calls, by size
# As loss.BURSTS at a tenth of the rate: some 0.5 % of a link's packets, eight full ones at a time.
BURSTS = "0.0006,1ms"
MOST_LATE_MS = 1  # above, `talweg lab` itself says that times are not to be trusted
BOUNDED = loss.label(loss.BOUNDED, "udp")
CONTESTANTS = loss.IN_LAB


def run(runner, settings):
    found, relay = collections.defaultdict(list), {"late_ms": 0, "unread": 0}
    for turn in range(settings.rounds):
        for bursts in (False, True):
            options = ["--seed", str(turn + 1)] + (["--burst-loss", BURSTS] if bursts else [])
            with Relayed(settings.build / "talweg", RANKS, MBIT, options) as place:
                for size, seconds in SECONDS.items():
                    for contestant, transport in CONTESTANTS:
                        if not runner.has(contestant):
                            continue
                        said = runner.measure(contestant, place, size, seconds, {"TALWEG_TRANSPORT": transport} if transport else None,
                                              each_call=True)
                        found[size, loss.label(contestant, transport), bursts].append(said)
            if not place.said:
                raise SystemExit("bench: talweg lab run --simulate said nothing of its links")
            relay["late_ms"] = max(relay["late_ms"], 1e3 * place.said["late_seconds"]["p99"])
            relay["unread"] += place.said["unread"]
    records = [record_of(size, name, lossy, rounds) | {"relay": relay} for (size, name, lossy), rounds in found.items()]
    print(f"# bursts: one packet in a hundred was handed over {relay['late_ms']:.2f} ms late, {relay['unread']} were not read", file=sys.stderr)
    report.table(f"{RANKS} ranks of {MBIT} Mbit/s in the lab, carried by the simulator, 1 % of a path's packets lost in bursts or none; ms, the "
                 f"calls of {settings.rounds} rounds", ["size", "sent by", "lost", "p50", "p99", "calls"], [line_of(r) for r in records])
    return records


def record_of(size, name, lossy, rounds):
    failed = next((error_of(r) for r in rounds if error_of(r)), "")
    calls = sorted(time for r in rounds for time in r.get("calls_ms", [])) if not failed else []
    return {"scenario": "bursts", "ranks": RANKS, "where": "relayed lab", "bytes": size, "algorithm": name, "lossy": lossy, "rounds": rounds,
            "failed": failed, "calls": len(calls), "p50_ms": statistics.median(calls) if calls else None,
            "p99_ms": calls[math.ceil(0.99 * len(calls)) - 1] if calls else None}


def error_of(said):
    return said.get("error") or (f"{said['wrong']} wrong values" if said["wrong"] else "")


def line_of(record):
    return [report.size_name(record["bytes"]), record["algorithm"], "bursts" if record["lossy"] else "none", report.milliseconds(record["p50_ms"]),
            report.milliseconds(record["p99_ms"]), record["failed"] or str(record["calls"])]


def doubt_of(records):
    relay = records[-1]["relay"] if records else {"late_ms": 0, "unread": 0}
    if relay["unread"]:
        return f"the relay did not read {relay['unread']} packets in time"
    return f"the relay was {relay['late_ms']:.1f} ms late" if relay["late_ms"] > MOST_LATE_MS else ""


def rows(records, _):
    """See rows.py."""
    for size in SECONDS:
        some = [r for r in records if r["bytes"] == size]
        yield from loss.rows_of(some, f"bursts/{size}", BOUNDED, f"{RANKS} ranks of {MBIT} Mbit/s in the lab, carried by the simulator, 1 % lost in "
                                f"bursts, {report.size_name(size)}", "bursts", doubt_of(some))
