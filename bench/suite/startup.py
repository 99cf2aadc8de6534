"""How long a group takes to form on one host, and that it can be joined at all."""
import statistics

import contestants
import places
import report
from rows import best, pick, row

LIMIT_MS = 500


def run(ranks, runner, settings):
    field = runner.available([contestants.GLOO[0], contestants.OPEN_MPI[0], contestants.TALWEG])
    results = {contestant: [] for contestant in field}
    with places.one_host(ranks) as place:
        for _ in range(settings.rounds):
            for contestant in field:
                results[contestant].append(runner.measure(contestant, place, 0, 0))
    lines, records = [], []
    for contestant, rounds in results.items():
        good = [r for r in rounds if "error" not in r]
        joined = statistics.median(r["join_ms"] for r in good) if good else None
        formed = statistics.median(r["formed_ms"] for r in good) if good else None
        lines.append([contestant.library, report.milliseconds(joined), report.milliseconds(formed)])
        records.append({"scenario": "startup", "ranks": ranks, "contestant": contestant.library, "join_ms": joined,
                        "formed_ms": formed, "rounds": rounds})
    report.table(f"start-up, {ranks} ranks on one host",
                 ["library", "join, slowest rank, ms", "from first process to last joined, ms"], lines)
    return records


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        of = {library: pick(records, ranks=n, contestant=library) or {} for library in ("talweg", "gloo", "ompi")}
        ours = of["talweg"].get("join_ms")
        peers = {library: of[library]["join_ms"] for library in ("gloo", "ompi") if of[library].get("join_ms")}
        yield row(f"startup/{n}", f"joining a group, {n} ranks on one host", f"under {LIMIT_MS} ms", f"startup --ranks {n}", ours,
                  met=ours and ours < LIMIT_MS, peer=best(peers),
                  note=f"{report.milliseconds(of['talweg']['formed_ms'])} ms from the first process on" if ours else "",
                  failed="no round succeeded" if of["talweg"] and ours is None else "")
