"""All-reduce on leaf-spines in the lab: leaves of four hosts with 10 Mbit/s each, uplinks drawn from rates that differ by up
to eight. What a group takes by itself, packed trees and the ring, in turn, against the bound and each other.

TALWEG_PACING and other settings of the environment are those of the ranks."""
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import mesh
import predict
import report
from all_reduce import PAYLOAD_PER_MBIT
from rows import NOT_SLOWER, beats, best, number, pick, row, size_word

SEEDS = range(3)
HOSTS = 4  # of a leaf
HOST_MBIT = 10
UPLINKS = (5, 10, 20, 40)  # Mbit/s
LATENCY = "30us"
SIZE = 2 << 20
LEAST, MOST = 1 << 20, 8 << 20  # a ring's call takes 3 to 30 s
OF_BOUND = 0.92
OVER_RING = 1.7
# What a group takes is planned in the background from the second call on, and there before the fourth.
WARMUP, CALLS = 3, 2
CONTESTANTS = {"default": "", "packed": "packed", "ring": "ring"}  # and what TALWEG_ALGO says
PLANNERS = ("packed", "ring")


def uplinks(seed, leaves):
    draw = random.Random(seed)
    return [draw.choice(UPLINKS) for _ in range(leaves)]


def network(seed, ranks):
    """A cluster file as a dict; ranks of a leaf are numbered in a row."""
    leaves = ranks // HOSTS
    nodes = [{"name": f"h{i}", "kind": "worker"} for i in range(leaves * HOSTS)]
    nodes += [{"name": name, "kind": "switch"} for name in (*(f"leaf{i}" for i in range(leaves)), "spine")]
    links = [(f"h{i}", f"leaf{i // HOSTS}", HOST_MBIT) for i in range(leaves * HOSTS)]
    links += [(f"leaf{i}", "spine", rate) for i, rate in enumerate(uplinks(seed, leaves))]
    found = {"nodes": nodes, "links": [{"between": [a, b], "capacity": f"{rate}Mbit/s", "latency": LATENCY} for a, b, rate in links]}
    return found | ({"shared_cores": os.cpu_count()} if ranks > os.cpu_count() else {})  # as a group adds by itself


def measure(program, cluster, size, algorithm):
    """{"ms", "algorithm"}, or {"failed"}."""
    with tempfile.TemporaryDirectory(prefix="talweg-fabric") as folder:
        result = pathlib.Path(folder) / "result.json"
        calls = ["-b", str(size), "-e", str(size), "-w", str(WARMUP), "-n", str(CALLS)]
        done = subprocess.run([program, "lab", "run", cluster, "--", program, "perf", "all_reduce", *calls, "--json", result],
                              capture_output=True, text=True, env=os.environ | {"TALWEG_ALGO": algorithm})
        if done.returncode != 0:
            return {"failed": (done.stderr.strip().splitlines() or ["perf failed"])[-1]}
        found = json.loads(result.read_text())["results"][0]
    # Perf measures out of place and in place: the slower of them counts.
    return {"ms": max(found[place]["time_us"] for place in ("out_of_place", "in_place")) / 1e3, "algorithm": found["algorithm"]}


def take_turns(program, cluster, size, settings):
    """{contestant: the results of its rounds}; one that has failed sits out the rest."""
    results = {who: [] for who in CONTESTANTS}
    for _ in range(settings.rounds):
        for who, algorithm in CONTESTANTS.items():
            if any("failed" in result for result in results[who]):
                continue
            results[who].append(measure(program, cluster, size, algorithm))
            if "failed" in results[who][-1]:
                print(f"# fabric, {who}, {report.size_name(size)}: {results[who][-1]['failed']}", file=sys.stderr, flush=True)
    return results


def record_of(seed, ranks, size, plan, results):
    failed = {who: result["failed"] for who, rounds in results.items() for result in rounds if "failed" in result}
    line = plan["sizes"][0]
    predicted = {c["algorithm"]: c["predicted_us"] / 1e3 for c in line["candidates"] if "predicted_us" in c}
    return {"scenario": "fabric", "seed": seed, "ranks": ranks, "bytes": size, "uplinks_mbit": uplinks(seed, ranks // HOSTS),
            "bound_ms": 1e3 * size / (mesh.bound_of(plan) * PAYLOAD_PER_MBIT), "taken": line["taken"], "predicted_ms": predicted,
            "rounds": results, "errors": failed,
            "ms": {who: None if who in failed else statistics.median(r["ms"] for r in rounds) for who, rounds in results.items()}}


def line_of(record):
    line = [str(record["seed"]), report.size_name(record["bytes"]), "/".join(map(str, record["uplinks_mbit"])),
            report.milliseconds(record["bound_ms"])]
    line += [report.milliseconds(record["ms"][who]) for who in CONTESTANTS]
    ours, ring = record["ms"]["default"], record["ms"]["ring"]
    line += [f"{record['bound_ms'] / time:.3f}" if time else "-" for time in (ours, record["ms"]["packed"])]
    taken = record["rounds"]["default"][0].get("algorithm", "-")
    return line + [report.ratio(ring / ours) if ours and ring else "-", taken]


def run(ranks, settings):
    program = settings.build / "talweg"
    if not program.exists():
        print("# fabric: left out, talweg is not built")
        return []
    if ranks % HOSTS != 0 or ranks < 2 * HOSTS:
        raise SystemExit(f"fabric: {ranks} ranks: expected leaves of {HOSTS}, two or more")
    sizes = [size for size in settings.sizes if LEAST <= size <= MOST] if settings.sizes_given else [SIZE]
    lines, records = [], []
    for seed in settings.seeds or SEEDS:
        with tempfile.TemporaryDirectory(prefix="talweg-fabric") as folder:
            cluster = pathlib.Path(folder) / "network.yaml"
            cluster.write_text(json.dumps(network(seed, ranks)))
            for size in sizes:
                plan = predict.talweg(settings, "plan", cluster, "--bytes", size)
                records.append(record_of(seed, ranks, size, plan, take_turns(program, cluster, size, settings)))
                lines.append(line_of(records[-1]))
                print(f"# fabric, {ranks} ranks: {'  '.join(lines[-1])}", file=sys.stderr, flush=True)
    report.table(f"all-reduce, {ranks} ranks, leaves of {HOSTS} hosts with {HOST_MBIT} Mbit/s, uplinks of {UPLINKS} Mbit/s; median ms",
                 ["seed", "size", "uplinks", "bound", *CONTESTANTS, "of bound", "packed of bound", "x ring", "taken"], lines)
    return records


def rows(records, ranks):
    """See rows.py: of each seed what a group takes by itself, against the bound and the ring, and against every planner."""
    for n in ranks:
        for seed in SEEDS:
            record = pick(records, seed=seed, ranks=n, bytes=SIZE) or {"ms": {}, "errors": {}}
            ours, ring, packed = (record["ms"].get(who) for who in ("default", "ring", "packed"))
            name = f"leaf-spine of {n} hosts with {HOST_MBIT} Mbit/s, uplinks {'/'.join(map(str, uplinks(seed, n // HOSTS)))}, " \
                   f"{report.size_name(SIZE)}"
            arguments = f"fabric --seeds {seed} --ranks {n} --sizes {size_word(SIZE)} --rounds 1"
            close = ours and record["bound_ms"] / ours
            over, doubt = beats(ours, {"ring": ring} if ring else {}, ["ring"] if "ring" in record["errors"] else [],
                                OVER_RING) if ours else (None, "")
            note = f"{close:.3f} of the bound" if close else ""
            if close and packed:
                note += f"; packed {number(packed)} ms"
            failed = record["errors"].get("default", "")
            yield row(f"fabric/{seed}/{n}", name, f"{OF_BOUND} of the bound, {OVER_RING}x the ring", arguments, ours,
                      met=close and close >= OF_BOUND and over, doubt=doubt, peer=("ring", ring) if ring else None, note=note,
                      failed=failed)
            yield chosen(f"fabric/{seed}/{n}/chosen", f"{name}: what a group takes over the quickest planner", arguments, record, failed)


def chosen(key, what, arguments, record, failed):
    """The row that holds what a group takes to the planners that were measured beside it."""
    ours = record["ms"].get("default")
    others = {who: record["ms"][who] for who in PLANNERS if record["ms"].get(who)}
    met, doubt = beats(ours, others, [who for who in PLANNERS if who in record["errors"]], 1 / NOT_SLOWER) if ours else (None, "")
    quickest = best(others)
    note = f"{quickest[0]} {number(quickest[1])} ms" if quickest else ""
    if record.get("taken"):
        note += f"; {record['taken']} taken, predicted {number(record['predicted_ms'][record['taken']])} ms"
    return row(key, what, "not slower", arguments, ours and quickest and ours / quickest[1], "x", met, doubt, note=note, failed=failed)
