"""Sums by a switch of vectors of which only some blocks hold something, on the grid of OmniReduce's measurements: against what the blocks
that hold something on any rank take on a link.

100 MB at 10 Gbit/s, 84 ms, are measured as 10 MiB at 200 Mbit/s by the number of ranks, ten times as long or more, as round trips are here;
where more than a quarter of the blocks come back, as a quarter of that, which takes no less. So much all ranks and the switch can carry on
two cores, packet by packet. A bucket that fills between calls would hide what these cost besides: it holds one packet."""
import functools

import places
import report
import switch_perf
from rows import row

ALL_MBIT = 200  # of the links of all hosts together
SHORT, LONG = 2560 << 10, 10 << 20
LONG_UNION = 0.25  # at most, of blocks that hold something on any rank
BLOCK = 256  # elements
BURST_KIB = 2
DENSITIES = (1, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01)
OVERLAPS = ("random", "all", "none")
RANKS = (2, 4, 8)
OF_BOUND = 0.85
NOT_SLOWER = 1.03  # than dense vectors
LEAST_CALLS, MOST_CALLS = 5, 200
WORD = (1 << 64) - 1
MASK_SEED = 0x5CA1AB1E


def cells(ranks):
    """(density, overlap), the dense one first. Ranks have no block in common only where there are enough blocks."""
    yield 1, "random"
    for overlap in OVERLAPS:
        for density in DENSITIES[1:]:
            if overlap != "none" or density * ranks <= 1:
                yield density, overlap


def blocks(size):
    return size // (4 * BLOCK)


@functools.cache
def draws(seed):
    """Of each block in [0, 1): the first of stream `block` of src/base/random.h."""
    return [draw(seed, block) for block in range(blocks(LONG))]


def split_mix(state):
    """(the next state, what it gives)."""
    state = (state + 0x9E3779B97F4A7C15) & WORD
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return state, z ^ (z >> 31)


def draw(seed, stream):
    state = split_mix(seed)[1] ^ ((stream * 0x9E3779B97F4A7C15) & WORD)
    state, _ = split_mix(state)
    word = split_mix(state)[1] * 5 & WORD
    return ((((word << 7) | (word >> 57)) * 9 & WORD) >> 11) * 2.0**-53


def union(density, overlap, ranks, size):
    """The share of blocks that hold something on any rank, as study/sparse_vectors.cc draws them. No rank has more."""
    if density == 1:
        return 1
    count = blocks(size)
    if overlap == "random":
        own = [draws(MASK_SEED + 1 + rank)[:count] for rank in range(ranks)]
        return sum(min(values) < density for values in zip(*own, strict=True)) / count
    return sum(value < (density if overlap == "all" else density * ranks) for value in draws(MASK_SEED)[:count]) / count


def size_of(density, overlap, ranks):
    return LONG if union(density, overlap, ranks, LONG) <= LONG_UNION else SHORT


def mbit(ranks):
    return ALL_MBIT // ranks


def bound_ms(size, share, ranks):
    return 1e3 * 8 * size * share / (mbit(ranks) * 1e6)


def measure(switch, place, density, overlap, settings):
    """A record of one cell: the mean of calls back to back."""
    size = size_of(density, overlap, place.ranks)
    share = union(density, overlap, place.ranks, size)
    bound = bound_ms(size, share, place.ranks)
    calls = max(LEAST_CALLS, min(MOST_CALLS, int(1e3 * settings.seconds / bound)))
    options = ["--switch-block", BLOCK, "-n", calls]
    if density < 1:
        options += ["--sparse-density", density, "--overlap", overlap]
    found = switch_perf.perf(switch, place, size, *options)
    # In place each call is given its vector anew in time that is not counted, in which links rest.
    ms = None if "error" in found else found["results"][0]["out_of_place"]["time_us"] / 1e3
    return {"scenario": "density", "ranks": place.ranks, "density": density, "overlap": overlap, "bytes": size, "union": share, "calls": calls,
            "bound_ms": bound, "ms": ms, "error": found.get("error", "")}


def run(ranks, settings):
    program = settings.build / "talweg"
    if not program.exists():
        print("# density: left out, talweg is not built")
        return []
    records = []
    with places.star([mbit(ranks)] * ranks, BURST_KIB) as place, places.workspace() as folder, \
            switch_perf.at_the_bridge(program, place, folder) as switch:
        for density, overlap in cells(ranks):
            records.append(measure(switch, place, density, overlap, settings))
            print(f"# density, {ranks} ranks: {'  '.join(line_of(records[-1]))}", flush=True)
    report.table(f"sums by a switch, {ranks} ranks, vectors of which blocks of {BLOCK} floats hold something, links of {mbit(ranks)} Mbit/s; "
                 "means of calls back to back",
                 ["on each rank", "overlap", "size", "on any", "ms", "bound, ms", "of it"], [line_of(record) for record in records])
    return records


def line_of(record):
    part = of_bound(record)
    return [f"{record['density']:g}", record["overlap"], report.size_name(record["bytes"]), f"{record['union']:.3f}",
            report.milliseconds(record["ms"]), report.milliseconds(record["bound_ms"]), f"{part:.3f}" if part else record["error"]]


def of_bound(record):
    return record["bound_ms"] / record["ms"] if record["ms"] else None


def name_of(record):
    return f"{record['density']:g} {record['overlap']}"


def over_dense(records):
    """[(time for a byte of vector over that of the dense one of as many ranks, record)] of all that are sparse."""
    dense = {record["ranks"]: record["ms"] / record["bytes"] for record in records if record["density"] == 1}
    return [(record["ms"] / record["bytes"] / dense[record["ranks"]], record) for record in records if record["density"] < 1]


def complete(records, ranks):
    """These records where they are all cells of so many ranks, else none."""
    same = [record for record in records if record["ranks"] == ranks]
    return same if {(record["density"], record["overlap"]) for record in same} == set(cells(ranks)) else []


def failure(records):
    failed = [record for record in records if record["ms"] is None]
    return f"{len(failed)} of {len(records)} cells gave no sum, or a wrong one: {name_of(failed[0])}: {failed[0]['error']}" if failed else ""


def rows(records, _):
    """See rows.py. Only a run of all cells counts."""
    whole = [complete(records, ranks) for ranks in RANKS]
    for ranks, same in zip(RANKS, whole, strict=True):
        failed = failure(same)
        parts = [] if failed else [(of_bound(record), record) for record in same]
        least, worst = min(parts, key=lambda part: part[0], default=(None, None))
        met = sum(part >= OF_BOUND for part, _ in parts)
        yield row(f"density/{ranks}", f"by a switch, {ranks} ranks, {mbit(ranks)} Mbit/s each, {report.size_name(LONG)} (a quarter of it where more "
                  f"than {LONG_UNION} come back), blocks of {BLOCK}: each of {len(list(cells(ranks)))} densities and overlaps against "
                  "max(D, union) x S/B: the worst", f"at least {OF_BOUND} in each",
                  f"density --ranks {ranks}", least, "of the bound", least and least >= OF_BOUND, failed=failed,
                  note=f"{name_of(worst)}: {report.milliseconds(worst['ms'])} ms, bound {report.milliseconds(worst['bound_ms'])}; "
                  f"met in {met} of {len(parts)}" if worst else "")
    every = [record for same in whole for record in same] if all(whole) else []
    failed = failure(every)
    most, slowest = max([] if failed else over_dense(every), key=lambda ratio: ratio[0], default=(None, None))
    yield row("density/dense", f"by a switch, {', '.join(map(str, RANKS))} ranks: sparse vectors over dense ones of as many bytes, the slowest",
              f"at most {NOT_SLOWER}x", "density", most, "x", most and most <= NOT_SLOWER, failed=failed,
              note=f"{slowest['ranks']} ranks, {name_of(slowest)}" if slowest else "")
