"""The all-reduce scenarios: one host, even network, uneven network. Contestants take turns, round after round."""
import math
import statistics
import sys

import contestants
import places
import report
from contestants import BESIDE, SWITCH, TALWEG
from rows import NOT_SLOWER, beats, best, number, row, size_word

HOPELESS = 3.0     # a peer whose fastest call of the first round is this much slower than the best peer's sits out
# TCP payload of a full frame (1500 MTU, 14 bytes of Ethernet header as tbf counts) at 1 Mbit/s, in bytes/s.
PAYLOAD_PER_MBIT = 1e6 / 8 * 1448 / 1514

UNEVEN_SLOW = 200  # Mbit/s, of the odd ranks
UNEVEN_GAIN = {4: 1.45, 8: 1.65}  # over the best peer, by ranks
OVER_OPEN_MPI = 3                 # its own choice, that is, on the uneven network
OF_BOUND, WIRE = 0.95, 0.98
SIZES = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
STREAMED = (4 << 20, 16 << 20)    # sizes at which calls back to back have to fill the wire, too
OURS = (TALWEG, BESIDE, SWITCH)
NETWORKS = {"host": "one host", "net": "all 1 Gbit/s", "uneven": "even ranks 1 Gbit/s, odd 200 Mbit/s"}


def ring_limit_ms(ranks, size, mbit):
    """A ring moves 2(N-1)/N of the vector over every link; the slowest link sets the pace."""
    return 1e3 * 2 * (ranks - 1) / ranks * size / (mbit * PAYLOAD_PER_MBIT)


def rates_of(scenario, ranks):
    if scenario == "host":
        return None
    return [1000 if scenario == "net" or r % 2 == 0 else UNEVEN_SLOW for r in range(ranks)]


def asked(scenario, ranks, size):
    """The target of a row in words; "" where nothing is asked."""
    if scenario == "net":
        if size >= 4 << 20:
            return f"{WIRE} of the wire"
        return "not slower than the best peer" if size >= 256 << 10 else "not slower than Open MPI"
    if scenario == "uneven":
        return f"{OF_BOUND} of the bound, {UNEVEN_GAIN[ranks]}x the best peer" if size >= 16 << 20 and ranks in UNEVEN_GAIN else ""
    return "0.6 of Open MPI's time" if (size, ranks) == (64 << 20, 4) else "not slower than Open MPI"


def judge(scenario, ranks, size, ours, peers, failed):
    """(met, doubt, note) of `asked`. peers: {label: ms}; failed: labels."""
    mpi = {label: time for label, time in peers.items() if label.startswith("ompi")}
    mpi_failed = [label for label in failed if label.startswith("ompi")]
    if scenario == "net" and size >= 4 << 20:
        wire = ring_limit_ms(ranks, size, 1000) / ours
        return wire >= WIRE, "", f"{wire:.3f} of the wire"
    if scenario == "net" and size >= 256 << 10:
        return *beats(ours, peers, failed, 1 / NOT_SLOWER), ""
    if scenario == "uneven":
        bound = 1e3 * size / (UNEVEN_SLOW * PAYLOAD_PER_MBIT) / ours  # a slow host's own vector goes over its link once
        met, doubt = beats(ours, peers, failed, UNEVEN_GAIN.get(ranks, 1))
        return bound >= OF_BOUND and met, doubt, f"{bound:.3f} of the bound"
    return *beats(ours, mpi, mpi_failed, 1 / 0.6 if (size, ranks) == (64 << 20, 4) else 1 / NOT_SLOWER), ""


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
            least = min((cell.fastest() for contestant, cell in cells.items() if contestant not in OURS), default=0)
            field = [c for c in field if c in OURS or cells[c].fastest() <= HOPELESS * least]
    return cells


def relative(cells, mode):
    """Talweg's time over the best peer's, and the best peer."""
    times = {c: cell.median(mode) for c, cell in cells.items() if not cell.error and cell.median(mode) is not None}
    peers = {c: t for c, t in times.items() if c != TALWEG}
    quickest = min(peers, key=peers.get, default=None)
    if quickest is None or TALWEG not in times:
        return None, quickest
    return times[TALWEG] / peers[quickest], quickest


def line_of(size, cells, mode, limit_ms):
    shown = mode if any(cell.median(mode) is not None for cell in cells.values()) else "isolated"
    times = {c: cell.median(shown) for c, cell in cells.items() if not cell.error and cell.rounds}
    over_best, quickest = relative(cells, shown)
    other = "stream" if shown == "isolated" else "isolated"
    line = [report.size_name(size)] + [cell.text(shown) for cell in cells.values()]
    line += [quickest.label if quickest else "-", report.ratio(over_best), report.ratio(relative(cells, other)[0])]
    if limit_ms:
        line.append(f"{limit_ms / times[TALWEG]:.3f}" if TALWEG in times else "-")
    return line


def records_of(scenario, ranks, size, cells, limit_ms):
    return [{"scenario": scenario, "ranks": ranks, "bytes": size, "contestant": c.library, "algorithm": c.algorithm,
             "isolated_median_ms": cell.median("isolated"), "stream_median_ms": cell.median("stream"),
             "ring_limit_ms": limit_ms, "error": cell.error, "rounds": cell.rounds} for c, cell in cells.items()]


def run(scenario, ranks, runner, settings):
    """Measures and prints one table; returns its records."""
    rates = rates_of(scenario, ranks)
    field = [c for c in runner.available([*contestants.GLOO, *contestants.OPEN_MPI, BESIDE, TALWEG])
             if not settings.only or any(part in c.label for part in settings.only)]
    lines, records = [], []
    with (places.star(rates) if rates else places.one_host(ranks)) as place:
        for size in settings.sizes:
            limit_ms = ring_limit_ms(ranks, size, min(rates)) if rates else None
            cells = take_turns(runner, field, place, size, settings)
            lines.append(line_of(size, cells, settings.mode, limit_ms))
            records += records_of(scenario, ranks, size, cells, limit_ms)
            print(f"# {scenario}, {ranks} ranks: {'  '.join(lines[-1])}", file=sys.stderr, flush=True)
    where = {"host": "one host: Open MPI by shared memory, gloo by loopback",
             "net": "a namespace per rank, every link 1 Gbit/s both ways",
             "uneven": "a namespace per rank, even ranks 1 Gbit/s, odd ranks 200 Mbit/s"}[scenario]
    other = "stream" if settings.mode == "isolated" else "isolated"
    header = ["size"] + [short(c) for c in field] + ["best peer", "ratio", f"ratio {other}"]
    header += ["of ring limit"] if rates else []
    report.table(f"all-reduce, float32 sum, {ranks} ranks, {where}; median ms of {settings.mode} calls, "
                 f"{settings.rounds} rounds in turn; ratio = talweg / best peer", header, lines)
    return records


SHORT = {"halving_doubling": "hd", "rabenseifner": "raben", "doubling": "dbl", "segmented": "seg", "default": "def",
         "ring_chunked": "chunked", "nonoverlapping": "nonover"}


def short(contestant):
    label = contestant.label
    return label.replace(contestant.algorithm, SHORT.get(contestant.algorithm, contestant.algorithm))


def times_of(records, mode):
    """({label: ms}, {label: error}) of one size, Talweg included."""
    times, errors = {}, {}
    for record in records:
        label = contestants.Contestant(record["contestant"], record["algorithm"]).label
        if record["error"]:
            errors[label] = record["error"]
        elif record[f"{mode}_median_ms"] is not None:
            times[label] = record[f"{mode}_median_ms"]
    return times, errors


def rows_of(scenario, records, ranks):
    """See rows.py."""
    made = []
    for n in ranks:
        ratios = {}
        for size in SIZES:
            same = [r for r in records if (r["ranks"], r["bytes"]) == (n, size)]
            made += rows_of_size(scenario, n, size, same)
            times, _ = times_of(same, "isolated")
            if BESIDE.label in times and "talweg" in times:
                ratios[report.size_name(size)] = times["talweg"] / times.pop(BESIDE.label)
        worst = max(ratios.items(), key=lambda item: item[1], default=None)
        made.append(row(f"{scenario}/{n}/beside", f"{NETWORKS[scenario]}, {n} ranks: time over an older build's, the worst size",
                        "not slower at any size", f"{scenario} --ranks {n} --beside build-older",
                        worst and worst[1], "x", worst and worst[1] <= NOT_SLOWER, note=worst and f"at {worst[0]}" or ""))
    return made


def rows_of_size(scenario, n, size, same):
    name = f"{NETWORKS[scenario]}, {n} ranks, {report.size_name(size)}"
    key, arguments = f"{scenario}/{n}/{size_word(size)}", f"{scenario} --ranks {n} --sizes {size_word(size)}"
    target = asked(scenario, n, size)
    times, errors = times_of(same, "isolated")
    times.pop(BESIDE.label, None)
    errors.pop(BESIDE.label, None)
    ours, failed = times.pop("talweg", None), errors.pop("talweg", "")
    met, doubt, note = judge(scenario, n, size, ours, times, errors) if ours else (None, "", "")
    yield row(key, name, target, arguments, ours, met=met, doubt=doubt, peer=best(times), note=note, failed=failed)
    if scenario == "uneven" and target:
        default = times.get("ompi default")
        doubt = "peer ompi default failed" if ours and "ompi default" in errors else ""
        over = default / ours if default and ours else None
        yield row(f"{key}/default", f"{name}: over Open MPI's own choice", f"{OVER_OPEN_MPI}x", arguments, over, "x",
                  over and over >= OVER_OPEN_MPI, doubt, note=f"Open MPI {number(default)} ms" if over else "")
    if scenario == "net" and size in STREAMED:
        times, _ = times_of(same, "stream")
        ours = times.pop("talweg", None)
        times.pop(BESIDE.label, None)
        met, doubt, note = judge(scenario, n, size, ours, times, []) if ours else (None, "", "")
        yield row(f"{key}/stream", f"{name}, calls back to back", target, arguments, ours, met=met, doubt=doubt,
                  peer=best(times), note=note)
