"""What keeping strangers out costs: checksums and encryption on a network, the handshake, and strangers in numbers."""
import json
import secrets
import statistics
import subprocess

import contestants
import places
import report

SIZES = [1 << 20, 64 << 20]
MBIT = 1000
LIMIT = 1.03             # key and checksum, over neither checksum nor encryption
HANDSHAKE_LIMIT_MS = 2
STRANGERS_PER_SECOND = 1000
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
    rows, records = [], []
    with places.star([MBIT] * ranks) as place:
        for size in SIZES:
            times = take_turns(runner, place, size, settings, PROTECTIONS)
            if "key" not in times:
                continue
            ratio = {name: t / times["key"] for name, t in times.items()}
            asked = size == 64 << 20 and "key, checksum" in ratio
            verdict = "-" if not asked else "PASS" if ratio["key, checksum"] <= LIMIT else "MISS"
            rows.append([report.size_name(size)] + [report.milliseconds(times.get(name)) for name in PROTECTIONS]
                        + [report.ratio(ratio.get(name)) for name in list(PROTECTIONS)[1:]] + [verdict])
            records.append({"scenario": "security", "ranks": ranks, "bytes": size, "median_ms": times})
    report.table(f"all-reduce, float32 sum, {ranks} ranks, every link 1 Gbit/s; median ms, {settings.rounds} rounds in "
                 f"turn; target: checksum at most {LIMIT} times without", 
                 ["size", *PROTECTIONS, "checksum ratio", "encryption ratio", "verdict"], rows)
    records.append(run_handshake(runner))
    return records


def run_handshake(runner):
    done = subprocess.run([str(runner.programs / "handshake_bench")], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    verdict = "PASS" if result["median_ms"] < HANDSHAKE_LIMIT_MS else "MISS"
    report.table(f"a connection with its handshake on loopback, ms; target: under {HANDSHAKE_LIMIT_MS}",
                 ["what", "median", "p99", "verdict"],
                 [["connect alone", report.milliseconds(result["connect_ms"]), "-", "-"],
                  ["connect and prove the key, both ends", report.milliseconds(result["median_ms"]),
                   report.milliseconds(result["p99_ms"]), verdict]])
    return {"scenario": "handshake", **result}


class Strangers:
    """Connects to rank 0's store so many times a second from another host, until it leaves the context."""

    def __init__(self, runner, place):
        self.command = place.prefix(place.ranks - 1) + [str(runner.programs / "strangers"), place.address(0), str(PORT),
                                                        str(STRANGERS_PER_SECOND)]
        self.connections = 0

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.connections = int(self.process.communicate()[0] or 0)


def run_strangers(ranks, runner, settings):
    rows, records = [], []
    store = f"tcp://{{}}:{PORT}"
    with places.star([MBIT] * ranks) as place:
        for size in SIZES:
            alone, among, connections = [], [], 0
            for _ in range(settings.rounds):
                environment = {"TALWEG_KEY": secrets.token_hex(32), "TALWEG_DEBUG": "NONE"}

                def measure():
                    return runner.measure(contestants.TALWEG, place, size, settings.seconds, environment,
                                          store.format(place.address(0)))

                alone.append(measure())
                with Strangers(runner, place) as strangers:
                    among.append(measure())
                connections += strangers.connections
            rows.append(strangers_row(size, alone, among, connections))
            records.append({"scenario": "strangers", "ranks": ranks, "bytes": size, "connections": connections,
                            "alone": alone, "among": among})
    report.table(f"all-reduce, float32 sum, {ranks} ranks, every link 1 Gbit/s, {STRANGERS_PER_SECOND} strange "
                 f"connections a second at rank 0's store; target: at most {STRANGERS_LIMIT} times as long",
                 ["size", "alone, ms", "among strangers, ms", "ratio", "strangers", "wrong", "verdict"], rows)
    return records


def strangers_row(size, alone, among, connections):
    bad = [r for r in alone + among if r.get("error")]
    if bad:
        return [report.size_name(size), "-", "-", "-", str(connections), bad[0]["error"], "MISS"]
    times = [statistics.median(r["isolated"]["median_ms"] for r in results) for results in (alone, among)]
    wrong = sum(r["wrong"] for r in alone + among)
    good = wrong == 0 and connections > 0 and times[1] <= STRANGERS_LIMIT * times[0]
    return [report.size_name(size), *map(report.milliseconds, times), report.ratio(times[1] / times[0]),
            str(connections), str(wrong), "PASS" if good else "MISS"]
