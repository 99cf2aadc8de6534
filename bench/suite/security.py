"""What keeping strangers out costs: checksums and encryption on a network, the handshake, and strangers in numbers."""
import json
import secrets
import statistics
import subprocess

import contestants
import places
import report
from rows import pick, row, size_word

SIZES = [1 << 20, 64 << 20]
MBIT = 1000
LIMIT = 1.03             # key and checksum, over neither checksum nor encryption
HANDSHAKE_LIMIT_MS = 2
STRANGERS_PER_SECOND = 1000
STRANGERS_LEAST = 900    # a second that must have come, in every round, for the time among them to say something
STRANGERS_LIMIT = 1.10
PORT = 29600

# On a network there is always a key; it takes part in the handshake alone, and frames are as they would be without.
PROTECTIONS = {"key": {"TALWEG_CHECKSUM": "0"}, "key, checksum": {}, "key, encryption": {"TALWEG_ENCRYPT": "1"}}


def take_turns(runner, place, size, settings, protections):
    """Medians in ms by protection, of as many rounds as there are without an error."""
    times = {name: [] for name in protections}
    for _ in range(settings.rounds):
        for name, environment in protections.items():
            result = runner.measure(contestants.TALWEG, place, size, settings.seconds, environment)
            if result.get("error") or result.get("wrong"):
                print(f"# {name}, {report.size_name(size)}: {result.get('error') or 'wrong values'}", flush=True)
            else:
                times[name].append(result["isolated"]["median_ms"])
    return {name: statistics.median(values) for name, values in times.items() if values}


def run_security(ranks, runner, settings):
    lines, records = [], []
    with places.star([MBIT] * ranks) as place:
        for size in SIZES:
            times = take_turns(runner, place, size, settings, PROTECTIONS)
            if "key" not in times:
                continue
            ratio = {name: t / times["key"] for name, t in times.items()}
            lines.append([report.size_name(size)] + [report.milliseconds(times.get(name)) for name in PROTECTIONS]
                        + [report.ratio(ratio.get(name)) for name in list(PROTECTIONS)[1:]])
            records.append({"scenario": "security", "ranks": ranks, "bytes": size, "median_ms": times})
    report.table(f"all-reduce, float32 sum, {ranks} ranks, every link 1 Gbit/s; median ms, {settings.rounds} rounds in "
                 "turn", ["size", *PROTECTIONS, "checksum ratio", "encryption ratio"], lines)
    records.append(run_handshake(runner))
    return records


def run_handshake(runner):
    done = subprocess.run([str(runner.programs / "handshake_bench")], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    report.table("a connection with its handshake on loopback, ms", ["what", "median", "p99"],
                 [["connect alone", report.milliseconds(result["connect_ms"]), "-"],
                  ["connect and prove the key, both ends", report.milliseconds(result["median_ms"]),
                   report.milliseconds(result["p99_ms"])]])
    return {"scenario": "handshake", **result}


def security_rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for size in SIZES:
            times = (pick(records, scenario="security", ranks=n, bytes=size) or {}).get("median_ms", {})
            for protection, word in (("key, checksum", "checksum"), ("key, encryption", "encryption")):
                ratio = times[protection] / times["key"] if "key" in times and protection in times else None
                yield row(f"security/{n}/{size_word(size)}/{word}", f"{word} of every frame, {n} ranks, 1 Gbit/s, {report.size_name(size)}",
                          f"at most {LIMIT}x the time without" if (size, word) == (SIZES[-1], "checksum") else "",
                          f"security --ranks {n}", ratio, "x", ratio and ratio <= LIMIT,
                          note=f"{report.milliseconds(times['key'])} ms without" if ratio else "")
    handshake = pick(records, scenario="handshake") or {}
    yield row("security/handshake", "a connection with its handshake, loopback", f"under {HANDSHAKE_LIMIT_MS} ms", "security",
              handshake.get("median_ms"), met=handshake and handshake["median_ms"] < HANDSHAKE_LIMIT_MS)


class Strangers:
    """Connects to rank 0's store so many times a second from another host, until it leaves the context."""

    def __init__(self, runner, place):
        self.command = place.prefix(place.ranks - 1) + [str(runner.programs / "strangers"), place.address(0), str(PORT),
                                                        str(STRANGERS_PER_SECOND)]
        self.per_second = 0

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        connections, seconds = map(float, (self.process.communicate()[0] or "0 0").split())
        self.per_second = connections / seconds if seconds else 0


def run_strangers(ranks, runner, settings):
    lines, records = [], []
    with places.star([MBIT] * ranks) as place:
        for size in SIZES:
            alone, among, per_second = [], [], []
            for _ in range(settings.rounds):
                environment = {"TALWEG_KEY": secrets.token_hex(32), "TALWEG_DEBUG": "NONE"}

                def measure():
                    return runner.measure(contestants.TALWEG, place, size, settings.seconds, environment,
                                          f"tcp://{place.address(0)}:{PORT}")

                alone.append(measure())
                with Strangers(runner, place) as strangers:
                    among.append(measure())
                per_second.append(strangers.per_second)
            records.append({"scenario": "strangers", "ranks": ranks, "bytes": size, "strangers_per_second": per_second,
                            "alone": alone, "among": among})
            times, failed = strangers_times(records[-1])
            lines.append([report.size_name(size), *(map(report.milliseconds, times) if times else ["-", "-"]),
                          f"{min(per_second):.0f}", failed or "-"])
    report.table(f"all-reduce, float32 sum, {ranks} ranks, every link 1 Gbit/s, {STRANGERS_PER_SECOND} strange "
                 "connections a second at rank 0's store", ["size", "alone, ms", "among strangers, ms", "came per second", "failed"],
                 lines)
    return records


def strangers_times(record):
    """((median ms alone, among strangers), "") or (None, what failed)."""
    for result in record["alone"] + record["among"]:
        if result.get("error") or result["wrong"]:
            return None, result.get("error") or f"{result['wrong']} wrong values"
    return [statistics.median(r["isolated"]["median_ms"] for r in record[key]) for key in ("alone", "among")], ""


def strangers_rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for size in SIZES:
            record = pick(records, ranks=n, bytes=size)
            times, failed = strangers_times(record) if record else (None, "")
            came = min(record["strangers_per_second"]) if record else STRANGERS_LEAST
            ratio = times and times[1] / times[0]
            yield row(f"strangers/{n}/{size_word(size)}",
                      f"among {STRANGERS_PER_SECOND} strange connections a second, {n} ranks, 1 Gbit/s, {report.size_name(size)}",
                      f"at most {STRANGERS_LIMIT}x the time alone", f"strangers --ranks {n}", ratio, "x",
                      ratio and ratio <= STRANGERS_LIMIT,
                      "" if came >= STRANGERS_LEAST else f"only {came:.0f} strangers a second came",
                      note=f"{came:.0f} a second came" if record else "", failed=failed)
