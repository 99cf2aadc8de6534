#!/usr/bin/env python3
"""The table of targets: keeps what was measured in bench/results, and writes docs/measured.md and the rows of README.md.

    python3 bench/suite/measured.py     writes both anew from what is in bench/results

bench/results has one file for each scenario, {"runs": {name: facts}, "rows": [row and the name of its run]}, which
`bench/run.sh --record` fills; elsewhere.json, for what other commands measure, and reasons.json, {pattern of keys: why
these rows miss their targets}, are written by hand."""
import collections
import fnmatch
import json
import pathlib
import sys

import report
import rows
import scenarios

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "measured.md"
README = ROOT / "README.md"
ELSEWHERE = "elsewhere"
BEGIN, END = "<!-- written by bench/suite/measured.py -->", "<!-- end of what it writes -->"

# The rows that the README shows.
HEADLINES = ["uneven/4/16M", "uneven/8/16M", "mesh/0/8", "net/4/4K", "net/8/1M", "net/8/16M", "host/4/64M", "aggregator/4",
             "torch/4/isolated", "ddp/4/150x64:0.01"]
HEADER = "| what | target | measured | best peer | verdict | command |\n|---|---|---|---|---|---|\n"


def load(folder=RESULTS):
    """({scenario: its file's contents}, {pattern: reason})."""
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return files, files.pop("reasons", {})


def merged(old, measured, facts):
    """A file's contents with these rows in place of what it had of the same; what was not measured stays."""
    run = f"{facts['talweg']} {facts['date']}"
    kept = {row["key"]: row for row in (old or {"rows": []})["rows"]}
    kept |= {row["key"]: row | {"run": run} for row in measured if row["verdict"] != rows.NOT_MEASURED}
    runs = {name: known for name, known in {**(old or {"runs": {}})["runs"], run: facts}.items()
            if any(row["run"] == name for row in kept.values())}
    return {"runs": runs, "rows": list(kept.values())}


def record(scenario, measured, facts, folder=RESULTS):
    path = folder / f"{scenario}.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    path.write_text(json.dumps(merged(old, measured, facts), indent=1) + "\n", encoding="utf-8")


def table_of(scenario, results):
    """The scenario's rows in order. One that was measured against another target than today's counts as not measured."""
    file = results.get(scenario, {"rows": []})
    known = {row["key"]: row for row in file["rows"]}
    made = scenarios.rows_of(scenario, []) if scenario in scenarios.SCENARIOS else []
    ordered = [row if row["target"] != known.get(row["key"], row)["target"] else known.pop(row["key"], row) for row in made]
    ordered += [row for key, row in known.items() if key not in {row["key"] for row in made}]
    return [row for row in ordered if row["target"] or row["measured"] is not None]


def all_tables(results):
    """{title: rows}."""
    tables = {title: table_of(name, results) for name, (title, _, _) in scenarios.SCENARIOS.items()}
    return tables | {"Measured by other commands": table_of(ELSEWHERE, results)}


def facts_of(results):
    """{name of a run: its facts}."""
    return {name: facts for file in results.values() for name, facts in file["runs"].items()}


def commit_of_most(tables, facts):
    count = collections.Counter(facts[row["run"]]["talweg"] for table in tables.values() for row in table if "run" in row)
    return count.most_common(1)[0][0] if count else None


def cells(row, reasons, facts, usual_commit):
    value = "-" if row["measured"] is None else f"{rows.number(row['measured'])} {row['unit']}".strip()
    if row["note"]:
        value += f" ({row['note']})"
    if "run" in row and facts[row["run"]]["talweg"] != usual_commit:
        value += f", at commit {facts[row['run']]['talweg']}"
    peer = f"{rows.number(row['peer']['value'])} ({row['peer']['name'].replace('ompi', 'Open MPI')})" if row["peer"] else "-"
    verdict = f"**{rows.MISS}**" if row["verdict"] == rows.MISS else row["verdict"]
    if row["verdict"] == rows.MISS:
        verdict += f": {reason_for(row, reasons) or 'why is not known yet'}"
    words = [row["what"], row["target"] or "-", value, peer, verdict, f"`{row['command']}`"]
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |\n"


def reason_for(row, reasons):
    return next((reason for pattern, reason in reasons.items() if fnmatch.fnmatchcase(row["key"], pattern)), "")


def machines(facts):
    """A line for each commit on each machine."""
    lines = {}
    for known in facts.values():
        said = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in known.items() if key not in ("talweg", "date", "load"))
        lines.setdefault((known["talweg"], said), []).append(known)
    return "".join(f"- commit {commit}{days_of(runs)}: {said}{loads_of(runs)}\n" for (commit, said), runs in lines.items())


def days_of(runs):
    days = {known.get("date", "")[:10] for known in runs} - {""}
    return ", " + " to ".join(sorted({min(days), max(days)})) if days else ""


def loads_of(runs):
    """What ran beside a bench as it began, a part of which may be the bench before it."""
    loads = sorted(known["load"] for known in runs if "load" in known)
    began = "its run began" if len(loads) == 1 else f"its {len(loads)} runs began"
    return f"; load as {began}: {', '.join(map(str, loads))}" if loads else ""


def of_commit(usual):
    return f"Rows are of commit {usual}, those of another say which." if usual else "Nothing is measured."


def page(results, reasons):
    """docs/measured.md."""
    tables, facts = all_tables(results), facts_of(results)
    usual = commit_of_most(tables, facts)
    asked = [row for table in tables.values() for row in table if row["target"]]
    count = collections.Counter(row["verdict"].split(":")[0] for row in asked)
    text = f"""# Measured

<!-- Written by bench/suite/measured.py from bench/results; `make bench ARGS=--record` measures and writes all of it anew. -->

What Talweg is asked to reach, and what it reaches: {len(asked)} targets, of which {count[rows.PASS]} are met (PASS) and
{count[rows.MISS]} missed (MISS); of {count[rows.NO_VERDICT]} nothing can be said, because a peer failed or the measurement did not do what it
should, and {count[rows.NOT_MEASURED]} are not measured yet. Rows without a target are for information. How everything is measured:
[bench](../bench/README.md). Times of all-reduces are medians of isolated calls of float32 sums unless a row says otherwise; best peer
is the best of gloo's and Open MPI's algorithms, in the row's unit; "not slower" allows {rows.NOT_SLOWER - 1:.0%} for what runs differ by. Where the load
as a run began was above {report.BUSY:g} a core, others' work or the bench before it may show in its medians.

"""
    text += of_commit(usual) + (f" Measured on:\n\n{machines(facts)}" if usual else "\n")
    for title, table in tables.items():
        if table:
            text += f"\n## {title}\n\n{HEADER}" + "".join(cells(row, reasons, facts, usual) for row in table)
    return text


def readme(text, results, reasons):
    """README.md with its rows written anew."""
    tables, facts = all_tables(results), facts_of(results)
    usual = commit_of_most(tables, facts)
    known = {row["key"]: row for table in tables.values() for row in table}
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"README.md: there is no '{BEGIN}' with '{END}' after it")
    return before + BEGIN + "\n" + of_commit(usual) + "\n\n" + HEADER + "".join(cells(known[key], reasons, facts, usual) for key in HEADLINES) + END + after


def write():
    results, reasons = load()
    PAGE.write_text(page(results, reasons), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), results, reasons), encoding="utf-8")
    bare = [row["key"] for table in all_tables(results).values() for row in table
            if row["verdict"] == rows.MISS and not reason_for(row, reasons)]
    if bare:
        print(f"# no reason in bench/results/reasons.json for the misses of {', '.join(bare)}", file=sys.stderr)


if __name__ == "__main__":
    write()
