"""Sums of which a part may be lost, where links lose packets: how much the slowest calls lose by it. Simulated, with packets lost
in bursts, and in the lab, where they are lost one by one."""
import csv
import statistics
import subprocess

import places
import report
from contestants import GLOO, OPEN_MPI, TALWEG, Contestant
from rows import pick, row

RANKS, MBIT = 8, 1000
SIZES = (1 << 20, 4 << 20)
CALLS = 100
SEEDS = (21, 22, 23)
P = 0.05  # with less, no packet of a small shard may be missing
# Of each link some 0.5 %, so 1 % of a path's packets: eight full ones at a time. Whoever sends more small packets has more bursts.
BURSTS = "0.0006,100us"
RELIABLE = [(algorithm, transport) for transport in ("dctcp", "ndp") for algorithm in ("ring", "packed")]
EXACT = "bounded, nothing may be missing"
BETTER, NEAR = 2, 1.1
LAB_SIZE, LAB_SECONDS, LAB_PERCENT = 1 << 20, 8, 0.5
BOUNDED = Contestant("talweg", "bounded")
IN_LAB = [(BOUNDED, "udp"), (TALWEG, "tcp"), (TALWEG, "udp"), (GLOO[0], ""), (GLOO[3], ""), (OPEN_MPI[0], "")]


def simulated(settings, algorithm, transport, size, bursts, seed):
    """Milliseconds of CALLS calls: their median and 99th percentile."""
    command = [settings.build / "talweg", "simulate", "--topology", f"star:hosts={RANKS},rate={MBIT}M", "--algo", algorithm,
               "-b", str(size), "-n", str(CALLS), "-w", "5", "--transport", transport, "--seed", str(seed), "--csv", "-"]
    if algorithm in ("bounded", EXACT):
        command[command.index(algorithm)] = "bounded"
        command += ["--may-lose", str(P if algorithm == "bounded" else 0)]
    elif transport == "dctcp":
        command += ["--least-rto", "2ms"]  # as the datagrams' shortest; ndp's is less
    if bursts:
        command += ["--burst-loss", BURSTS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip()}")
    line = next(csv.DictReader(done.stdout.splitlines()))
    return {"p50_ms": float(line["p50_us"]) / 1e3, "p99_ms": float(line["p99_us"]) / 1e3, "lost_part": line.get("lost_part")}


def simulate(settings):
    records, lines = [], []
    for size in SIZES:
        for algorithm, transport in [("bounded", "dctcp"), (EXACT, "dctcp"), *RELIABLE]:
            for bursts in (False, True):
                rounds = [simulated(settings, algorithm, transport, size, bursts, seed) for seed in SEEDS]
                record = {"scenario": "loss", "ranks": RANKS, "where": "simulated", "bytes": size, "algorithm": algorithm,
                          "transport": transport, "lossy": bursts, "rounds": rounds} | {
                              which: statistics.median(r[which] for r in rounds) for which in ("p50_ms", "p99_ms")}
                records.append(record)
                lines.append([report.size_name(size), algorithm if "bounded" in algorithm else f"{algorithm}, {transport}",
                              "bursts" if bursts else "none", report.milliseconds(record["p50_ms"]), report.milliseconds(record["p99_ms"])])
    report.table(f"{RANKS} ranks of {MBIT} Mbit/s, simulated, 1 % of a path's packets lost in bursts or none; ms, medians of {len(SEEDS)} seeds",
                 ["size", "sent by", "lost", "p50", "p99"], lines)
    return records


def in_lab(runner, settings):
    """All contestants in turn, on links that lose half a percent each way, and none."""
    records, lines, found = [], [], {}
    with places.Place(RANKS, [MBIT] * RANKS) as place:
        try:
            place.send_apart(True)
            for _ in range(settings.rounds):
                for percent in (0, LAB_PERCENT):
                    place.lose(percent)
                    for contestant, transport in IN_LAB:
                        if not runner.has(contestant):
                            continue
                        said = runner.measure(contestant, place, LAB_SIZE, LAB_SECONDS, {"TALWEG_TRANSPORT": transport} if transport else None)
                        found.setdefault((label(contestant, transport), percent > 0), []).append(said)
        finally:
            place.lose(0)
            place.send_apart(False)
    for (name, lossy), rounds in found.items():
        good = [r["isolated"] for r in rounds if "error" not in r]
        record = {"scenario": "loss", "ranks": RANKS, "where": "lab", "bytes": LAB_SIZE, "algorithm": name, "lossy": lossy, "rounds": rounds,
                  "failed": next((r["error"] for r in rounds if "error" in r), ""),
                  "p50_ms": statistics.median(r["median_ms"] for r in good) if good else None,
                  "p99_ms": statistics.median(r["p99_ms"] for r in good) if good else None}
        records.append(record)
        lines.append([name, "1 %" if lossy else "none", report.milliseconds(record["p50_ms"]), report.milliseconds(record["p99_ms"]),
                      record["failed"] or str(min(r["iterations"] for r in good))])
    report.table(f"{RANKS} ranks of {MBIT} Mbit/s in the lab, {report.size_name(LAB_SIZE)}, packets sent and lost one by one; ms",
                 ["sent by", "lost", "p50", "p99", "calls"], lines)
    return records


def label(contestant, transport):
    return contestant.label + (f" over {transport}" if transport else "")


def run(runner, settings):
    return simulate(settings) + in_lab(runner, settings)


def rows(records, _):
    """See rows.py."""
    for size in SIZES:
        yield from rows_of([r for r in records if r["where"] == "simulated" and r["bytes"] == size], f"loss/{size}", "bounded",
                           f"{RANKS} ranks, simulated, 1 % lost in bursts, {report.size_name(size)}")
    yield from rows_of([r for r in records if r["where"] == "lab"], "loss/lab", label(BOUNDED, "udp"),
                       f"{RANKS} ranks in the lab, 1 % lost one by one, {report.size_name(LAB_SIZE)}")


def rows_of(records, key, name, what, arguments="loss", doubt=""):
    ours, without = (pick(records, algorithm=name, lossy=lossy) or {} for lossy in (True, False))
    reliable = [r for r in records if r["lossy"] and r["algorithm"] != name]
    peers = {r["algorithm"] + (f", {r['transport']}" if "transport" in r else ""): r["p99_ms"] for r in reliable if r["p99_ms"]}
    failed = [r["algorithm"] for r in reliable if not r["p99_ms"]]
    quiet = min((r["p99_ms"] for r in records if not r["lossy"] and r["p99_ms"]), default=None)
    best = min(peers.items(), key=lambda item: item[1], default=None)
    mine = ours.get("p99_ms")
    calls = f" (of {ours['calls']} calls)" if ours.get("calls") else ""
    ratio = best[1] / mine if mine and best else None
    yield row(f"{key}/reliable", f"{what}: 99th percentile of calls, the best that loses nothing over bounded loss ({P:.0%})", f"{BETTER}x", arguments,
              ratio, "x", ratio and ratio >= BETTER, doubt or (f"peer {' and '.join(failed)} failed" if failed else ""),
              note=f"{mine:.1f} ms{calls}; best {best[0]} {best[1]:.1f} ms" if ratio else "", failed=ours.get("failed", ""))
    base = without.get("p99_ms")
    same = mine / base if mine and base else None
    yield row(f"{key}/lossless", f"{what}: 99th percentile of calls, bounded loss ({P:.0%}) over the same without losses", f"at most {NEAR}x", arguments,
              same, "x", same and same <= NEAR, doubt, note=f"{base:.1f} ms without; the quickest without losses takes {quiet:.1f} ms" if same else "",
              failed=ours.get("failed", "") or without.get("failed", ""))
