"""How long the other ranks take to know that one was killed: from the kill to the error, in every survivor."""
import random
import statistics
import subprocess
import time

import places
import report
from rows import pick, row

KILLS = 20  # at least, per place
MEDIAN_MS, WORST_MS = 200, 1000  # targets
PLACES = {"one host": places.one_host, "a host per rank": lambda ranks: places.star([0] * ranks)}


def one_kill(program, place, victim, pause):
    """Milliseconds to the error on each survivor."""
    with places.workspace() as folder:
        ranks = []
        try:
            for r in range(place.ranks):
                words = place.prefix(r) + [program, str(r), str(place.ranks), f"file:{folder}/store",
                                           "=" + place.interface]
                ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            for rank in ranks:
                if rank.stdout.readline() != "ready\n":
                    raise SystemExit("faults: a rank did not come up")
            time.sleep(pause)
            killed = time.monotonic_ns()
            ranks[victim].kill()
            times = []
            for r, rank in enumerate(ranks):
                if r == victim:
                    continue
                moment, _, text = rank.stdout.readline().partition(" ")
                if f"rank {victim} (" not in text:
                    raise SystemExit(f"faults: rank {r} does not name rank {victim}: {text}")
                times.append((int(moment) - killed) / 1e6)
            return times
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
                rank.stdout.close()


def run(ranks, runner, settings):
    program = str(runner.programs / "survivor")
    rng = random.Random(1)
    kills = 5 if settings.quick else KILLS
    lines, records = [], []
    for name, build in PLACES.items():
        with build(ranks) as place:
            times = [ms for _ in range(kills)
                     for ms in one_kill(program, place, rng.randrange(ranks), rng.random() * 0.2)]
        median, worst = statistics.median(times), max(times)
        lines.append([name, str(kills), report.milliseconds(median), report.milliseconds(worst)])
        records.append({"scenario": "faults", "ranks": ranks, "place": name, "kills": kills, "median_ms": median,
                        "worst_ms": worst, "times_ms": times})
    report.table(f"a killed rank known to the {ranks - 1} others", ["place", "kills", "median, ms", "worst, ms"], lines)
    return records


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for place in PLACES:
            record = pick(records, place=place, ranks=n) or {}
            median, worst = record.get("median_ms"), record.get("worst_ms")
            yield row(f"faults/{place.replace(' ', '-')}/{n}", f"a killed rank known to the {n - 1} others, {place}",
                      f"median under {MEDIAN_MS} ms, worst under {WORST_MS} ms", f"faults --ranks {n}", median,
                      met=median and median < MEDIAN_MS and worst < WORST_MS,
                      note=f"worst {report.milliseconds(worst)} ms of {record['kills']} kills" if record else "")
