"""All-reduce where every pair of hosts has a link of its own, drawn from rates that differ by up to forty: against the
bound, against gloo's ring in rank order, and against gloo's ring in the best of all orders of the hosts."""
import fractions
import itertools
import random
import statistics
import sys

import contestants
import places
import predict
import report
from all_reduce import PAYLOAD_PER_MBIT
from contestants import TALWEG, Contestant
from rows import beats, best, number, pick, row, size_word

SEEDS = range(8)
RATES = (1, 2, 5, 10, 20, 40)
UNIT_MBIT = 5
LEAST, MOST = 4 << 20, 16 << 20  # a call of the worst ring takes 12 to 50 s
OF_BOUND = 0.90
OVER_BEST_RING = 4
OVER_RANK_ORDER = 18.3
RINGS = ("best ring", "rank order")
RING_NAMES = dict(zip(RINGS, ("gloo ring in the best order", "gloo ring in rank order")))
ASKED_SIZE = 16 << 20
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
    with places.workspace() as folder:
        path = f"{folder}/cluster.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(place.cluster_yaml())
        return bound_of(predict.talweg(settings, "plan", path, "--bytes", size))


def bound_of(plan):
    """What `talweg plan` proves to be the most that any all-reduce of a network can do, in Mbit/s of the vector."""
    return float(fractions.Fraction(plan["bound"]["rate_bit_per_s_exact"])) / BIT_PER_MBIT


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
    times[RINGS[0]] = time_of(GLOO_RING, places.Reordered(place, best), size, 1, runner, settings)
    times[RINGS[1]] = time_of(GLOO_RING, place, size, 1, runner, settings)
    return {"scenario": "mesh", "seed": seed, "ranks": ranks, "bytes": size, "bound_ms": limit_ms,
            "best_ring_mbit": ring_mbit(rates, best), "rank_order_mbit": ring_mbit(rates, range(ranks)),
            "best_order": best, "ms": {who: time for who, (time, _) in times.items()},
            "errors": {who: error for who, (_, error) in times.items() if error}}


def line_of(record):
    ours = record["ms"]["talweg"]
    line = [str(record["seed"]), report.size_name(record["bytes"]), report.milliseconds(record["bound_ms"])]
    line += [report.milliseconds(record["ms"][who]) for who in ("talweg", *RINGS)]
    if not ours:
        return line + ["-"] * 3
    over = [record["ms"][who] / ours if record["ms"][who] else None for who in RINGS]
    return line + [f"{record['bound_ms'] / ours:.3f}", *map(report.ratio, over)]


def run(ranks, runner, settings):
    lines, records = [], []
    for seed in settings.seeds or SEEDS:
        with places.mesh(draw(seed, ranks)) as place:
            for size in (size for size in settings.sizes if LEAST <= size <= MOST):
                records.append(measure(seed, ranks, size, place, runner, settings))
                lines.append(line_of(records[-1]))
                print(f"# mesh, {ranks} ranks: {'  '.join(lines[-1])}", file=sys.stderr, flush=True)
    report.table(f"all-reduce, float32 sum, {ranks} ranks, a link between every two of {{1, 2, 5, 10, 20, 40}} x {UNIT_MBIT} "
                 "Mbit/s; median ms of isolated calls; gloo's ring in the best of all orders and in rank order",
                 ["seed", "size", "bound", "talweg", *RINGS, "of bound", *(f"x {ring}" for ring in RINGS)], lines)
    return records


def rows(records, ranks):
    """See rows.py: of each seed the time against the bound and the best ring, and what the ring in rank order takes."""
    for n in ranks:
        for seed in SEEDS:
            record = pick(records, seed=seed, ranks=n, bytes=ASKED_SIZE) or {"ms": {}, "errors": {}}
            ours, failed = record["ms"].get("talweg"), record["errors"]
            name = f"a link between every two of {n} ranks, 5 to 200 Mbit/s, seed {seed}, {report.size_name(ASKED_SIZE)}"
            arguments = f"mesh --seeds {seed} --ranks {n} --sizes {size_word(ASKED_SIZE)} --rounds 1"
            peers = {ring_name: record["ms"][ring] for ring, ring_name in RING_NAMES.items() if record["ms"].get(ring)}
            close = ours and record["bound_ms"] / ours
            met, doubt = ours and of_ring(ours, record, RINGS[0], OVER_BEST_RING) or (None, "")
            yield row(f"mesh/{seed}/{n}", name, f"{OF_BOUND} of the bound, {OVER_BEST_RING}x gloo's best ring", arguments, ours,
                      met=close and close >= OF_BOUND and met, doubt=doubt, peer=best(peers),
                      note=f"{close:.3f} of the bound" if close else "", failed=failed.get("talweg", ""))
            met, doubt = ours and of_ring(ours, record, RINGS[1], OVER_RANK_ORDER) or (None, "")
            slow = record["ms"].get(RINGS[1])
            yield row(f"mesh/{seed}/{n}/rank-order", f"{name}: over gloo's ring in rank order", f"{OVER_RANK_ORDER}x", arguments,
                      ours and slow and slow / ours, "x", met, doubt, note=f"gloo {number(slow)} ms" if slow else "")


def of_ring(ours, record, ring, factor):
    """(met, doubt) of `factor` times as quick as gloo's ring in this order."""
    time, failed = record["ms"].get(ring), [RING_NAMES[ring]] if ring in record["errors"] else []
    return beats(ours, {ring: time} if time else {}, failed, factor) if time or failed else (None, "")
