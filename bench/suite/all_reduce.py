"""The all-reduce scenarios: one host, even network, uneven network. Contestants take turns, round after round."""
import math
import statistics
import sys

import contestants
import places
import report
from contestants import BESIDE, TALWEG

NOT_SLOWER = 1.02  # "not slower" up to what two runs of the same program differ by on a quiet machine
HOPELESS = 3.0     # a peer whose fastest call of the first round is this much slower than the best peer's sits out
# TCP payload of a full frame (1500 MTU, 14 bytes of Ethernet header as tbf counts) at 1 Mbit/s, in bytes/s.
PAYLOAD_PER_MBIT = 1e6 / 8 * 1448 / 1514

UNEVEN_SLOW = 200  # Mbit/s, of the odd ranks
UNEVEN_GAIN = {4: 1.45, 8: 1.65}  # over the best peer, by ranks; 3 over Open MPI's own choice


def ring_limit_ms(ranks, size, mbit):
    """A ring moves 2(N-1)/N of the vector over every link; the slowest link sets the pace."""
    return 1e3 * 2 * (ranks - 1) / ranks * size / (mbit * PAYLOAD_PER_MBIT)


def rates_of(scenario, ranks):
    if scenario == "host":
        return None
    return [1000 if scenario == "net" or r % 2 == 0 else UNEVEN_SLOW for r in range(ranks)]


def target(scenario, ranks, size, times, limit_ms):
    """(what is asked, whether it is met) of Talweg in this row, or None where nothing is asked."""
    ours = times[TALWEG]
    best_mpi = min((t for c, t in times.items() if c.library == "ompi"), default=None)
    best_peer = min((t for c, t in times.items() if c not in (TALWEG, BESIDE)), default=None)
    if scenario == "net" and size >= 4 << 20:
        return "wire >= 0.98", limit_ms / ours >= 0.98
    if scenario == "net" and size >= 256 << 10 and best_peer:
        return "<= best peer", ours <= NOT_SLOWER * best_peer
    if scenario == "net" and best_mpi:
        return "<= Open MPI", ours <= NOT_SLOWER * best_mpi
    if scenario == "uneven" and size >= 16 << 20 and best_peer and ranks in UNEVEN_GAIN:
        bound_ms = 1e3 * size / (UNEVEN_SLOW * PAYLOAD_PER_MBIT)  # a slow host's own vector goes over its link once
        default = next((t for c, t in times.items() if (c.library, c.algorithm) == ("ompi", "default")), math.inf)
        gain = UNEVEN_GAIN[ranks]
        return f"0.95 of bound, {gain}x", bound_ms >= 0.95 * ours and best_peer >= gain * ours and default >= 3 * ours
    if scenario == "host" and best_mpi:
        if size == 64 << 20 and ranks == 4:
            return "<= 0.6 Open MPI", ours <= 0.6 * best_mpi
        return "<= Open MPI", ours <= NOT_SLOWER * best_mpi
    return None


class Cell:
    """One contestant at one size: what each round measured."""

    def __init__(self):
        self.rounds = []
        self.error = ""

    def median(self, mode):
        values = [r[mode]["median_ms"] for r in self.rounds if mode in r]
        return statistics.median(values) if values else None

    def fastest(self):
        return min((r["isolated"]["min_ms"] for r in self.rounds), default=math.inf)

    def text(self, mode):
        return "failed" if self.error else report.milliseconds(self.median(mode))


def take_turns(runner, field, place, size, settings):
    cells = {contestant: Cell() for contestant in field}
    for turn in range(settings.rounds):
        for contestant in list(field):
            cell = cells[contestant]
            if cell.error:
                continue
            result = runner.measure(contestant, place, size, settings.seconds)
            cell.error = result.get("error") or (f"{result['wrong']} wrong values" if result["wrong"] else "")
            if cell.error:
                print(f"# {contestant.label}, {report.size_name(size)}: {cell.error}", file=sys.stderr, flush=True)
            else:
                cell.rounds.append(result)
        if turn == 0:  # by the fastest call, which other work on the machine disturbs least
            best = min((cell.fastest() for contestant, cell in cells.items() if contestant != TALWEG), default=0)
            field = [c for c in field if c == TALWEG or cells[c].fastest() <= HOPELESS * best]
    return cells


def relative(cells, mode):
    """Talweg's time over the best peer's, and the best peer."""
    times = {c: cell.median(mode) for c, cell in cells.items() if not cell.error and cell.median(mode) is not None}
    peers = {c: t for c, t in times.items() if c != TALWEG}
    best = min(peers, key=peers.get, default=None)
    if best is None or TALWEG not in times:
        return None, best
    return times[TALWEG] / peers[best], best


def row_of(scenario, ranks, size, cells, mode, limit_ms):
    shown = mode if any(cell.median(mode) is not None for cell in cells.values()) else "isolated"
    times = {c: cell.median(shown) for c, cell in cells.items() if not cell.error and cell.rounds}
    over_best, best = relative(cells, shown)
    other = "stream" if shown == "isolated" else "isolated"
    row = [report.size_name(size)] + [cell.text(shown) for cell in cells.values()]
    row += [best.label if best else "-", report.ratio(over_best), report.ratio(relative(cells, other)[0])]
    if limit_ms:
        row.append(f"{limit_ms / times[TALWEG]:.3f}" if TALWEG in times else "-")
    asked = target(scenario, ranks, size, times, limit_ms) if TALWEG in times else None
    return row + ([asked[0], "PASS" if asked[1] else "MISS"] if asked else ["-", "-"])


def records_of(scenario, ranks, size, cells, limit_ms):
    return [{"scenario": scenario, "ranks": ranks, "bytes": size, "contestant": c.library, "algorithm": c.algorithm,
             "isolated_median_ms": cell.median("isolated"), "stream_median_ms": cell.median("stream"),
             "ring_limit_ms": limit_ms, "error": cell.error, "rounds": cell.rounds} for c, cell in cells.items()]


def run(scenario, ranks, runner, settings):
    """Measures and prints one table; returns its records."""
    rates = rates_of(scenario, ranks)
    field = [c for c in runner.available([*contestants.GLOO, *contestants.OPEN_MPI, BESIDE, TALWEG])
             if not settings.only or any(part in c.label for part in settings.only)]
    rows, records = [], []
    with (places.star(rates) if rates else places.one_host(ranks)) as place:
        for size in settings.sizes:
            limit_ms = ring_limit_ms(ranks, size, min(rates)) if rates else None
            cells = take_turns(runner, field, place, size, settings)
            rows.append(row_of(scenario, ranks, size, cells, settings.mode, limit_ms))
            records += records_of(scenario, ranks, size, cells, limit_ms)
            print(f"# {scenario}, {ranks} ranks: {'  '.join(rows[-1])}", file=sys.stderr, flush=True)
    where = {"host": "one host: Open MPI by shared memory, gloo by loopback",
             "net": "a namespace per rank, every link 1 Gbit/s both ways",
             "uneven": "a namespace per rank, even ranks 1 Gbit/s, odd ranks 200 Mbit/s"}[scenario]
    other = "stream" if settings.mode == "isolated" else "isolated"
    header = ["size"] + [short(c) for c in field] + ["best peer", "ratio", f"ratio {other}"]
    header += (["of ring limit"] if rates else []) + ["target", "verdict"]
    report.table(f"all-reduce, float32 sum, {ranks} ranks, {where}; median ms of {settings.mode} calls, "
                 f"{settings.rounds} rounds in turn; ratio = talweg / best peer", header, rows)
    return records


def short(contestant):
    return contestant.label.replace("halving_doubling", "hd").replace("rabenseifner", "raben").replace(
        "doubling", "dbl").replace("segmented", "seg").replace("default", "def")
