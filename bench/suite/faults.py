"""How long the other ranks take to know that one was killed: from the kill to the error, in every survivor."""
import random
import statistics
import subprocess
import time

import places
import report

KILLS = 20  # at least, per place
MEDIAN_MS, WORST_MS = 200, 1000  # targets


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
    rows, records = [], []
    for name, place in (("one host", places.one_host(ranks)), ("a host per rank", places.star([0] * ranks))):
        with place:
            times = [ms for _ in range(kills)
                     for ms in one_kill(program, place, rng.randrange(ranks), rng.random() * 0.2)]
        median, worst = statistics.median(times), max(times)
        verdict = "PASS" if median < MEDIAN_MS and worst < WORST_MS else "MISS"
        rows.append([name, str(kills), report.milliseconds(median), report.milliseconds(worst), verdict])
        records.append({"scenario": "faults", "ranks": ranks, "place": name, "kills": kills, "median_ms": median,
                        "worst_ms": worst, "times_ms": times})
    report.table(f"a killed rank known to the {ranks - 1} others; target: median under {MEDIAN_MS} ms, worst under "
                 f"{WORST_MS} ms", ["place", "kills", "median, ms", "worst, ms", "verdict"], rows)
    return records
