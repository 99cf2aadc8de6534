"""What the flight recorder and the metrics cost a small call: pairs of runs, with and without, one right after the other.

Two runs of one program differ by more than the cost that is looked for, so the median of many pairs' ratios counts, and
the quarter and three quarter marks of these ratios are shown with it."""
import statistics
import sys

import contestants
import places
import report
from rows import pick, row

SIZE = 4 << 10
LIMIT = 1.01
PAIRS_PER_ROUND = 15
OFF = {"TALWEG_RECORDER": "0"}
WHERE = {"one host": lambda ranks: places.one_host(ranks), "1 Gbit/s": lambda ranks: places.star([1000] * ranks)}


def pair(runner, place, settings, turn):
    """(ms with, ms without) or None. Every second pair begins with the other one."""
    with places.workspace() as folder:
        on = {"TALWEG_METRICS_FILE": f"{folder}/%r.prom", "TALWEG_METRICS_PERIOD": "1s"}
        times = {}
        for name, environment in (("on", on), ("off", OFF))[:: 1 if turn % 2 else -1]:
            result = runner.measure(contestants.TALWEG, place, SIZE, settings.seconds, environment)
            if result.get("error") or result.get("wrong"):
                print(f"# seeing: {result.get('error') or 'wrong values'}", file=sys.stderr, flush=True)
                return None
            times[name] = result["stream"]["median_ms"]
        return times["on"], times["off"]


def run(ranks, runner, settings):
    lines, records = [], []
    for where, build in WHERE.items():
        with build(ranks) as place:
            pairs = [pair(runner, place, settings, turn) for turn in range(PAIRS_PER_ROUND * settings.rounds)]
        pairs = [p for p in pairs if p]
        if len(pairs) < 2:
            continue
        low, middle, high = statistics.quantiles([on / off for on, off in pairs], n=4)
        lines.append([where, str(len(pairs)), *(report.milliseconds(statistics.median(times)) for times in zip(*pairs)),
                     f"{middle:.3f}", f"{low:.3f} .. {high:.3f}"])
        records.append({"scenario": "seeing", "where": where, "ranks": ranks, "bytes": SIZE, "on_off_ms": pairs,
                        "ratio": middle, "half": [low, high]})
    report.table(f"all-reduce of 4 KiB, {ranks} ranks, calls back to back: recorder and metrics (a file every second) against "
                 "neither", ["where", "pairs", "on, ms", "off, ms", "ratio", "half of the pairs"], lines)
    return records


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for where in WHERE:
            record = pick(records, ranks=n, where=where) or {}
            ratio = record.get("ratio")
            yield row(f"seeing/{where.replace(' ', '-').replace('/', '-')}/{n}", f"recorder and metrics, 4 KiB, {n} ranks, {where}",
                      f"at most {LIMIT}x the time without", f"seeing --ranks {n}", ratio, "x", ratio and ratio <= LIMIT,
                      note="half of the pairs {:.3f} to {:.3f}".format(*record["half"]) if record.get("half") else "")
