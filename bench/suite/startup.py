"""How long a group takes to form on one host, and that it can be joined at all."""
import statistics

import contestants
import places
import report

LIMIT_MS = 500


def run(ranks, runner, settings):
    field = runner.available([contestants.GLOO[0], contestants.OPEN_MPI[0], contestants.TALWEG])
    results = {contestant: [] for contestant in field}
    with places.one_host(ranks) as place:
        for _ in range(settings.rounds):
            for contestant in field:
                results[contestant].append(runner.measure(contestant, place, 0, 0))
    rows, records = [], []
    for contestant, rounds in results.items():
        good = [r for r in rounds if "error" not in r]
        joined = statistics.median(r["join_ms"] for r in good) if good else None
        formed = statistics.median(r["formed_ms"] for r in good) if good else None
        verdict = "-"
        if contestant == contestants.TALWEG:
            verdict = "PASS" if joined is not None and joined < LIMIT_MS else "MISS"
        rows.append([contestant.library, report.milliseconds(joined), report.milliseconds(formed), verdict])
        records.append({"scenario": "startup", "ranks": ranks, "contestant": contestant.library, "join_ms": joined,
                        "formed_ms": formed, "rounds": rounds})
    report.table(f"start-up, {ranks} ranks on one host; target: join under {LIMIT_MS} ms",
                 ["library", "join, slowest rank, ms", "from first process to last joined, ms", "verdict"], rows)
    return records
