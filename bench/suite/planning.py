"""How long the planner that packs trees takes, and how near to the bound its forests come."""
import statistics

import report
from programs import built, lines_of
from rows import pick, row

# Workers: most CPU milliseconds for an all-reduce. Of what so many workers have, the slowest network counts.
TARGETS_MS = {16: 100, 64: 2000, 256: 20000, 1024: 120000}
OF_BOUND = 0.99
BOUND_FASTER = 10  # than planning, at each size
OF_BOUND_OF_FABRICS = 0.95  # hosts of 10 to 40 Gbit/s, three tiers; with all links, and with 20 of them down
FABRICS = [("fat-tree-8-uneven", 128, ""), ("fat-tree-8-failed", 128, ", 20 links down"), ("fat-tree-16-uneven", 1024, ""),
           ("fat-tree-16-failed", 1024, ", 20 links down")]


def run(settings):
    program = built(settings, "plan", "plan_bench")
    if program is None:
        return []
    most = max(settings.plan["plan"])
    rounds = [lines_of(program, str(most)) for _ in range(settings.rounds)]
    table, records = [], []
    for same in zip(*rounds, strict=True):
        times = {key: statistics.median(r[key] for r in same) for key in ("plan_ms", "bound_ms")}
        records.append({"scenario": "plan", **same[0], **times})
        table.append([same[0]["name"], str(same[0]["ranks"]), f"{times['plan_ms']:.1f}", f"{times['bound_ms']:.1f}",
                      str(same[0]["trees"]), str(same[0]["depth"]), f"{same[0]['of_bound']:.4f}"])
    report.table("all-reduces packed into trees, one core",
                 ["network", "ranks", "plan, ms", "bound, ms", "trees", "depth", "of bound"], table)
    return records


def rows(records, ranks):
    """See rows.py: for each size the worst network; then every network, of which nothing more is asked."""
    least = 0
    for size, target_ms in TARGETS_MS.items():
        if size > max(ranks):
            break
        here = [record for record in records if least < record["ranks"] <= size]
        key, name, arguments = f"plan/{size}", f"planning for {least + 1} to {size} workers", f"plan --ranks {size}"
        slow = max(here, key=lambda record: record["plan_ms"], default={})
        yield row(f"{key}/time", f"{name}, the slowest network", f"under {target_ms} ms", arguments, slow.get("plan_ms"),
                  met=slow and slow["plan_ms"] < target_ms, note=slow.get("name", ""))
        far = min(here, key=lambda record: record["of_bound"], default={})
        yield row(f"{key}/of-bound", f"{name}: part of the bound, the worst network", f"{OF_BOUND}", arguments,
                  far.get("of_bound"), "", far and far["of_bound"] >= OF_BOUND, note=far.get("name", ""))
        over = min(here, key=faster, default=None)
        yield row(f"{key}/bound", f"{name}: the bound sooner than the plan, the worst network", f"{BOUND_FASTER}x", arguments,
                  over and faster(over), "x", over and faster(over) >= BOUND_FASTER, note=over["name"] if over else "")
        least = size
    for name, hosts, what in FABRICS:
        found = pick(records, name=name) or {}
        yield row(f"plan/{name}/of-bound", f"planning for {hosts} hosts of 10 to 40 Gbit/s, fat tree{what}: part of the bound",
                  f"{OF_BOUND_OF_FABRICS}", f"plan --ranks {hosts}", found.get("of_bound"), "",
                  found and found["of_bound"] >= OF_BOUND_OF_FABRICS)
    for record in records:
        yield row(f"plan/network/{record['name']}", f"planning for {record['name']}, {record['ranks']} workers", "",
                  f"plan --ranks {max(record['ranks'], 16)}", record["plan_ms"],
                  note=f"{record['trees']} trees of depth {record['depth']}, {record['of_bound']:.4f} of the bound, which takes "
                       f"{report.milliseconds(record['bound_ms'])} ms")


def faster(record):
    return record["plan_ms"] / max(record["bound_ms"], 1e-6)
