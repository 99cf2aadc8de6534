"""All-reduce through `talweg switch` on a machine with a port for each rank, beside Talweg's trees, gloo and Open MPI: against
the time S/B in which a rank's vector passes its link once, the best ring, and a UDP round trip; with loss, and two jobs at once.

The machine is the one whose bridge joins the ranks: what leaves it for a rank is shaped as what the rank sends. All of them share the
cores of this one: on slower links the same is measured once more, where it is the links that set the pace."""
import concurrent.futures
import json
import pathlib
import re
import secrets
import statistics
import subprocess
import sys

import contestants
import places
import report
from all_reduce import PAYLOAD_PER_MBIT, take_turns, times_of
from contestants import SWITCH, TALWEG
from rows import best, pick, row, size_word

MBIT = 1000
SIZES = [4 << 10, 1 << 20, 16 << 20, 64 << 20]
SHORT, LONG = SIZES[0], SIZES[2]
SLOW_ALL_MBIT = 800               # of all ranks' links together, where they are slow
RINGS = ("gloo ring", "gloo ring_chunked", "ompi ring", "ompi segmented")
OF_LINK = 0.95                    # of S/B
OVER_RING = {4: 1.43, 8: 1.67}    # by ranks
LOSSES = {0.01: 1.02, 0.1: 1.05, 1: 1.25}  # percent each way: times the time without
OF_ROUND_TRIP, ROUND_TRIP_RANKS = 1.2, 4
FAIR = 0.98                       # Jain's index
JOBS = 2
LONGER = 4                        # two jobs are measured so much longer, so that they meet
ADDRESS, PORT, ECHO_PORT = "10.77.0.254", 4711, 4712


def link_ms(size, mbit=MBIT):
    return 1e3 * size / (mbit * PAYLOAD_PER_MBIT)


def slow_mbit(ranks):
    return SLOW_ALL_MBIT // ranks


class Switch:
    """`talweg switch` where the ranks' links meet, while the context lasts. As a Runner, it measures SWITCH through it."""

    def __init__(self, runner, program, place, folder):
        self.runner, self.program, self.key = runner, program, pathlib.Path(folder) / "key"
        self.prefix = ["ip", "netns", "exec", place.switch]
        self.environment = {"TALWEG_SWITCH": f"{ADDRESS}:{PORT}", "TALWEG_SWITCH_KEY_FILE": str(self.key)}
        places.sh("ip", "-n", place.switch, "addr", "add", f"{ADDRESS}/24", "dev", "br0")
        self.key.touch(mode=0o600)
        self.key.write_text(secrets.token_hex(32))

    def command(self, *words):
        return [*self.prefix, str(self.program), "switch", *words, "--listen", f"{ADDRESS}:{PORT}", "--key-file", str(self.key)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline().startswith("switch at"):
            raise SystemExit("bench: talweg switch did not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def jobs_opened(self):
        return int(re.search(r"(?m)^talweg_switch_jobs_opened_total (\d+)", places.sh(*self.command("status")))[1])

    def measure(self, contestant, place, size, seconds):
        if contestant != SWITCH:
            return self.runner.measure(contestant, place, size, seconds)
        before = self.jobs_opened()
        result = self.runner.measure(contestant, place, size, seconds, self.environment)
        # A group that loses the switch goes by trees until it has joined again.
        if "error" not in result and self.jobs_opened() != before + 1:
            return {"error": "the group lost the switch"}
        return result


def good_ms(result, mode):
    """A median; None for an error or wrong values, which are said."""
    if result.get("error") or result.get("wrong"):
        print(f"# streaming: {result.get('error') or 'wrong values'}", file=sys.stderr, flush=True)
        return None
    return result[mode]["median_ms"]


def median(values):
    """None where one of them is."""
    return None if None in values or not values else statistics.median(values)


def round_trip_ms(runner, switch, place, seconds):
    """Of SHORT bytes, between rank 0 and where the switch is."""
    program = str(runner.programs / "udp_round_trip")
    with subprocess.Popen([*switch.prefix, program, ADDRESS, str(ECHO_PORT)]) as echo:
        try:
            said = places.sh(*place.prefix(0), program, ADDRESS, str(ECHO_PORT), str(SHORT), str(seconds))
        finally:
            echo.terminate()
    return json.loads(said)["median_us"] / 1e3


def with_loss(switch, place, settings):
    """{percent: median ms of LONG}, in turn, with packets that are lost one by one; 0 is without loss."""
    times = {percent: [] for percent in (0, *LOSSES)}
    try:
        place.send_apart(True)
        for _ in range(settings.rounds):
            for percent, found in times.items():
                place.lose(percent)
                found.append(good_ms(switch.measure(SWITCH, place, LONG, settings.seconds), "isolated"))
    finally:
        place.lose(0)
        place.send_apart(False)
    return {str(percent): median(found) for percent, found in times.items()}


def two_jobs(runner, switch, place, settings):
    """The ms of calls back to back of each of two groups at once, which have a rank each on every host; the median round by
    how fair it was."""
    rounds = []
    for _ in range(settings.rounds):
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            running = [pool.submit(runner.measure, SWITCH, place, LONG, LONGER * settings.seconds, switch.environment)
                       for _ in range(JOBS)]
            rounds.append([good_ms(job.result(), "stream") for job in running])
    if any(None in times for times in rounds):
        return None
    return sorted(rounds, key=jain)[len(rounds) // 2]


def jain(times):
    rates = [1 / time for time in times]
    return sum(rates) ** 2 / (len(rates) * sum(rate ** 2 for rate in rates))


def run(ranks, runner, settings):
    program = settings.build / "talweg"
    if not program.exists() or not runner.has(SWITCH):
        print("# streaming: left out, talweg is not built")
        return []
    field = [c for c in runner.available([*contestants.GLOO, *contestants.OPEN_MPI, TALWEG, SWITCH])
             if not settings.only or any(part in c.label for part in settings.only)]
    with places.star([MBIT] * ranks) as place, places.workspace() as folder, Switch(runner, program, place, folder) as switch:
        records = at_rate(switch, field, place, MBIT, settings.sizes if settings.sizes_given else SIZES, settings)
        records.append({"scenario": "streaming", "ranks": ranks, "what": "round trip",
                        "ms": round_trip_ms(runner, switch, place, settings.seconds)})
        records.append({"scenario": "streaming", "ranks": ranks, "what": "loss", "ms": with_loss(switch, place, settings)})
        records.append({"scenario": "streaming", "ranks": ranks, "what": "jobs", "ms": two_jobs(runner, switch, place, settings)})
    mbit = slow_mbit(ranks)
    with places.star([mbit] * ranks) as place, places.workspace() as folder, Switch(runner, program, place, folder) as switch:
        records += at_rate(switch, [c for c in field if c.label in RINGS or c in (TALWEG, SWITCH)], place, mbit, [LONG], settings)
    return records


def at_rate(switch, field, place, mbit, sizes, settings):
    """Records of all-reduces on links of so many Mbit/s, of which it prints a table."""
    records, lines = [], []
    for size in sizes:
        cells = take_turns(switch, field, place, size, settings)
        lines.append([report.size_name(size), *(cell.text("isolated") for cell in cells.values()),
                      report.milliseconds(link_ms(size, mbit))])
        records += [{"scenario": "streaming", "ranks": place.ranks, "mbit": mbit, "bytes": size, "contestant": c.library,
                     "algorithm": c.algorithm, "isolated_median_ms": cell.median("isolated"), "error": cell.error, "rounds": cell.rounds}
                    for c, cell in cells.items()]
    report.table(f"all-reduce, float32 sum, {place.ranks} ranks, through a switch with a port of {mbit} Mbit/s for each, and without; "
                 f"median ms, {settings.rounds} rounds in turn", ["size", *(c.label for c in field), "S/B"], lines)
    return records


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        arguments = f"streaming --ranks {n}"

        def found(what):
            return (pick(records, ranks=n, what=what) or {"ms": None})["ms"]

        for mbit, size in [*((MBIT, size) for size in SIZES), (slow_mbit(n), LONG)]:
            same = [r for r in records if (r["ranks"], r.get("mbit", MBIT), r.get("bytes")) == (n, mbit, size)]
            yield from rows_of_size(n, mbit, size, same, found("round trip"), arguments)
        loss = found("loss") or {}
        for percent, most in LOSSES.items():
            times = loss.get("0"), loss.get(str(percent))
            ratio = times[1] / times[0] if all(times) else None
            yield row(f"streaming/{n}/packet-loss/{percent}", f"through a switch, {n} ranks, {report.size_name(LONG)}, {percent} % lost each way, "
                      "packet by packet: over the time without", f"at most {most}x", arguments, ratio, "x", ratio and ratio <= most,
                      note=f"{report.milliseconds(times[1])} and {report.milliseconds(times[0])} ms" if ratio else "",
                      failed="no sum, or a wrong one" if loss and not ratio else "")
        jobs = found("jobs")
        index = jain(jobs) if jobs else None
        yield row(f"streaming/{n}/jobs", f"two equal jobs through one switch, a rank of each on {n} hosts: Jain's index", f"at least {FAIR}",
                  arguments, index, "", index and index >= FAIR,
                  note=" and ".join(f"{report.milliseconds(time)} ms" for time in jobs) if jobs else "",
                  failed="no sum, or a wrong one" if pick(records, ranks=n, what="jobs") and not jobs else "")


def rows_of_size(n, mbit, size, same, round_trip, arguments):
    times, errors = times_of(same, "isolated")
    ours, failed = times.pop(SWITCH.label, None), errors.pop(SWITCH.label, "")
    name, key = f"through a switch, {n} ranks, {report.size_name(size)}", f"streaming/{n}/{size_word(size)}"
    if mbit != MBIT:
        name, key = f"through a switch, {n} ranks of {mbit} Mbit/s, {report.size_name(size)}", f"{key}/{mbit}"
    peer = best(times)
    if size == SHORT:
        over = ours / round_trip if ours and round_trip else None
        yield row(key, name, f"at most {OF_ROUND_TRIP}x a UDP round trip" if n == ROUND_TRIP_RANKS else "", arguments, ours,
                  met=over and over <= OF_ROUND_TRIP, peer=peer, note=f"{over:.2f}x a UDP round trip" if over else "", failed=failed)
        return
    part = link_ms(size, mbit) / ours if ours else None
    yield row(key, name, f"{OF_LINK} of S/B" if size >= LONG else "", arguments, ours, met=part and part >= OF_LINK, peer=peer,
              note=f"{part:.3f} of S/B" if part else "", failed=failed)
    if size >= LONG:
        rings = {label: time for label, time in times.items() if label in RINGS}
        ring, lost = best(rings), [label for label in RINGS if label in errors]
        over = ring[1] / ours if ring and ours else None
        least = OVER_RING.get(n)
        yield row(f"{key}/ring", f"{name}: over the best ring", f"{least}x" if least else "", arguments, over, "x",
                  over and least and over >= least, f"peer {' and '.join(lost)} failed" if lost else "",
                  note=f"{ring[0]} {report.milliseconds(ring[1])} ms" if over else "")
