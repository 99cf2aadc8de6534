"""All-reduce through an aggregator that has a port for each host, in the lab: against the time S/B in which a host's
vector passes its link once."""
import json
import pathlib
import statistics
import subprocess
import tempfile

import report
from rows import pick, row

SIZE = 16 << 20
MBIT = 1000
OF_LINK = 0.90  # of S/B
CALLS = 10


def network(ranks):
    """As examples/clusters/aggregator4.yaml."""
    hosts = [f"h{rank}" for rank in range(ranks)]
    links = [{"between": [host, "agg"], "capacity": f"{MBIT}Mbit/s", "latency": "30us"} for host in hosts]
    return {"nodes": [{"name": host, "kind": "worker"} for host in hosts] + [{"name": "agg", "kind": "aggregator"}], "links": links}


def measure(program, ranks):
    """{"ms", "algorithm"}, or {"failed"}."""
    with tempfile.TemporaryDirectory(prefix="talweg-aggregator") as folder:
        cluster, result = pathlib.Path(folder) / "network.yaml", pathlib.Path(folder) / "result.json"
        cluster.write_text(json.dumps(network(ranks)))
        done = subprocess.run([program, "lab", "run", cluster, "--", program, "perf", "all_reduce", "-b", str(SIZE), "-e", str(SIZE),
                               "-n", str(CALLS), "--json", result], capture_output=True, text=True)
        if done.returncode != 0:
            return {"failed": (done.stderr.strip().splitlines() or ["perf failed"])[-1]}
        found = json.loads(result.read_text())["results"][0]
    # Perf measures out of place and in place: the slower of them counts.
    return {"ms": max(found[place]["time_us"] for place in ("out_of_place", "in_place")) / 1e3, "algorithm": found["algorithm"]}


def run(ranks, settings):
    program = settings.build / "talweg"
    if not program.exists():
        print("# aggregator: left out, talweg is not built")
        return []
    rounds = [measure(program, ranks) for _ in range(settings.rounds)]
    failed = next((r["failed"] for r in rounds if "failed" in r), "")
    record = {"scenario": "aggregator", "ranks": ranks, "bytes": SIZE, "failed": failed, "rounds": rounds,
              "ms": None if failed else statistics.median(r["ms"] for r in rounds),
              "link_ms": 1e3 * 8 * SIZE / (MBIT * 1e6)}
    report.table(f"all-reduce of {report.size_name(SIZE)}, {ranks} ranks, through an aggregator with a port of 1 Gbit/s for each",
                 ["ranks", "ms", "S/B, ms", "algorithm"],
                 [[str(ranks), report.milliseconds(record["ms"]), report.milliseconds(record["link_ms"]),
                   failed or rounds[0]["algorithm"]]])
    return [record]


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        record = pick(records, ranks=n) or {"ms": None, "failed": ""}
        part = record["link_ms"] / record["ms"] if record["ms"] else None
        yield row(f"aggregator/{n}", f"through an aggregator, {n} ranks, 1 Gbit/s each, {report.size_name(SIZE)}",
                  f"{OF_LINK:.2f} of S/B", f"aggregator --ranks {n}", record["ms"], met=part and part >= OF_LINK,
                  note=f"{part:.3f} of S/B, {record['rounds'][0]['algorithm']}" if part else "", failed=record["failed"])
