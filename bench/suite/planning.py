"""How long the planner that packs trees takes, and how near to the bound its forests come."""
import json
import statistics
import subprocess

import report

# Workers: most CPU milliseconds for an all-reduce; and among so many that waiting matters, for the bound alone.
TARGETS_MS = {16: 100, 64: 2000, 256: 20000, 1024: 120000}
BOUND_TARGETS_MS = {1024: 12000}


def run(settings):
    program = settings.build / "bench" / "plan_bench"
    if not program.exists():
        print("# plan: left out, plan_bench is not built")
        return []
    most = max(settings.plan["plan"])
    rounds = []
    for _ in range(settings.rounds):
        done = subprocess.run([program, str(most)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench: {program}: {done.stderr.strip()}")
        rounds.append([json.loads(line) for line in done.stdout.splitlines()])
    rows, records = [], []
    for same in zip(*rounds):
        first = same[0]
        plan_ms = statistics.median(r["plan_ms"] for r in same)
        bound_ms = statistics.median(r["bound_ms"] for r in same)
        size = min(n for n in TARGETS_MS if n >= first["ranks"])
        target, bound_target = TARGETS_MS[size], BOUND_TARGETS_MS.get(size, TARGETS_MS[size])
        met = plan_ms <= target and bound_ms <= bound_target and first["of_bound"] >= 0.99
        rows.append([first["name"], str(first["ranks"]), f"{plan_ms:.1f}", str(target), f"{bound_ms:.1f}",
                     str(first["trees"]), str(first["depth"]), f"{first['of_bound']:.4f}", "PASS" if met else "MISS"])
        records.append({"scenario": "plan", **first, "plan_ms": plan_ms, "bound_ms": bound_ms})
    report.table("all-reduces packed into trees, one core",
                 ["network", "ranks", "plan, ms", "target", "bound, ms", "trees", "depth", "of bound", "verdict"], rows)
    return records
