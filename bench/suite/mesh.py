"""All-reduce where every pair of hosts has a link of its own, drawn from rates that differ by up to forty: against the
bound, against gloo's ring in rank order, and against gloo's ring in the best of all orders of the hosts."""
import fractions
import itertools
import json
import random
import statistics
import subprocess
import sys

import contestants
import places
import report
from all_reduce import PAYLOAD_PER_MBIT
from contestants import TALWEG, Contestant

SEEDS = range(4)
RATES = (1, 2, 5, 10, 20, 40)
UNIT_MBIT = 5
LEAST, MOST = 4 << 20, 16 << 20  # a call of the worst ring takes 12 to 50 s
OF_BOUND = 0.90
OVER_BEST_RING = 4
OVER_RANK_ORDER = 18.3
GLOO_RING = Contestant("gloo", "ring")
BIT_PER_MBIT = 1e6


def draw(seed, ranks):
    chosen = random.Random(seed)
    rates = {}
    for a, b in itertools.combinations(range(ranks), 2):
        rates[a, b] = rates[b, a] = UNIT_MBIT * chosen.choice(RATES)
    return dict(sorted(rates.items()))


def ring_mbit(rates, order):
    """Of the slowest link on the way around, each way: what sets the pace of a ring."""
    return min(rates[a, b] for a, b in zip(order, (*order[1:], order[0])))


def best_order(rates, ranks):
    return max(((0, *rest) for rest in itertools.permutations(range(1, ranks))), key=lambda order: ring_mbit(rates, order))


def bound_mbit(place, size, settings):
    """What `talweg plan` proves to be the most that any all-reduce of this network can do, in Mbit/s of the vector."""
    with places.workspace() as folder:
        path = f"{folder}/cluster.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(place.cluster_yaml())
        done = subprocess.run([settings.build / "talweg", "plan", path, "--bytes", str(size), "--json", "-"],
                              capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"mesh: talweg plan: {done.stderr.strip()}")
    return float(fractions.Fraction(json.loads(done.stdout)["bound"]["rate_bit_per_s_exact"])) / BIT_PER_MBIT


def time_of(contestant, place, size, rounds, runner, settings):
    """(median ms of isolated calls, "") or (None, what went wrong)."""
    times = []
    for _ in range(rounds):
        result = runner.measure(contestant, place, size, settings.seconds)
        error = result.get("error") or (f"{result['wrong']} wrong values" if result["wrong"] else "")
        if error:
            print(f"# mesh, {contestant.label}, {report.size_name(size)}: {error}", file=sys.stderr, flush=True)
            return None, error
        times.append(result["isolated"]["median_ms"])
    return statistics.median(times), ""


def measure(seed, ranks, size, place, runner, settings):
    rates, best = place.rates, best_order(place.rates, ranks)
    limit_ms = 1e3 * size / (bound_mbit(place, size, settings) * PAYLOAD_PER_MBIT)
    times = {"talweg": time_of(TALWEG, place, size, settings.rounds, runner, settings)}
    # Calls of seconds differ little: one round of each ring is enough.
    times["best ring"] = time_of(GLOO_RING, places.Reordered(place, best), size, 1, runner, settings)
    times["rank order"] = time_of(GLOO_RING, place, size, 1, runner, settings)
    return {"scenario": "mesh", "seed": seed, "ranks": ranks, "bytes": size, "bound_ms": limit_ms,
            "best_ring_mbit": ring_mbit(rates, best), "rank_order_mbit": ring_mbit(rates, range(ranks)),
            "best_order": best, "ms": {who: time for who, (time, _) in times.items()},
            "errors": {who: error for who, (_, error) in times.items() if error}}


def row_of(record):
    ours = record["ms"]["talweg"]
    row = [str(record["seed"]), report.size_name(record["bytes"]), report.milliseconds(record["bound_ms"])]
    row += [report.milliseconds(record["ms"][who]) for who in ("talweg", "best ring", "rank order")]
    if not ours:
        return row + ["-"] * 3 + ["MISS"]
    of_bound = record["bound_ms"] / ours
    over = [record["ms"][who] / ours if record["ms"][who] else None for who in ("best ring", "rank order")]
    good = of_bound >= OF_BOUND and all(o is None or o >= asked for o, asked in zip(over, (OVER_BEST_RING, OVER_RANK_ORDER)))
    return row + [f"{of_bound:.3f}", *map(report.ratio, over), "PASS" if good else "MISS"]


def run(ranks, runner, settings):
    rows, records = [], []
    for seed in SEEDS:
        with places.mesh(draw(seed, ranks)) as place:
            for size in (size for size in settings.sizes if LEAST <= size <= MOST):
                records.append(measure(seed, ranks, size, place, runner, settings))
                rows.append(row_of(records[-1]))
                print(f"# mesh, {ranks} ranks: {'  '.join(rows[-1])}", file=sys.stderr, flush=True)
    report.table(f"all-reduce, float32 sum, {ranks} ranks, a link between every two of {{1, 2, 5, 10, 20, 40}} x {UNIT_MBIT} "
                 f"Mbit/s; median ms of isolated calls; target: {OF_BOUND} of the bound, {OVER_BEST_RING}x gloo's ring in the best "
                 f"of all orders, {OVER_RANK_ORDER}x in rank order",
                 ["seed", "size", "bound", "talweg", "best ring", "rank order", "of bound", "x best ring", "x rank order",
                  "verdict"], rows)
    return records
