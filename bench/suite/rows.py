"""A row of the table of targets: what is asked, what was measured, and whether that is enough.

Each scenario has a function `rows(records, ranks)`, which makes its rows from what it measured. Of no records it makes
every row that has a target, as not measured: a target is never dropped because nobody measured it."""

import report

PASS, MISS, NO_VERDICT, NOT_MEASURED, NOT_ASKED = "PASS", "MISS", "no verdict", "not measured", "-"
NOT_SLOWER = 1.02  # "not slower" up to what two runs of the same program differ by on a quiet machine


def row(key, what, target, arguments, measured=None, unit="ms", met=None, doubt="", peer=None, note="", failed=""):
    """One row as a dict.

    key: unique, begins with the scenario; target: "" where nothing is asked; arguments: of `make bench`; measured: a
    number in `unit`, None where there is none; met: whether it is enough; doubt: why that shows nothing (a peer that
    failed is not beaten); peer: (name, value in `unit`) of the best; failed: what went wrong with Talweg itself."""
    if failed:
        verdict, measured = MISS, None
    elif measured is None:
        verdict = f"{NO_VERDICT}: {doubt}" if doubt else NOT_MEASURED
    elif not target:
        verdict = NOT_ASKED
    elif doubt and met is not False:
        verdict = f"{NO_VERDICT}: {doubt}"
    else:
        verdict = PASS if met else MISS
    return {"key": key, "what": what, "target": target, "measured": measured, "unit": unit,
            "peer": {"name": peer[0], "value": peer[1]} if peer else None, "note": failed or note, "verdict": verdict,
            "command": f'make bench ARGS="{arguments}"'}


def beats(ours, peers, failed, factor=1.0):
    """(whether `ours` times `factor` is within every peer's time, what puts that in doubt). peers: {name: time};
    failed: the names of peers that gave no result or wrong values."""
    if not peers and not failed:
        return None, "no peer was measured"
    met = all(factor * ours <= time for time in peers.values())
    return met, f"peer {' and '.join(sorted(failed))} failed" if failed else ""


def best(times):
    """(name, time) of the quickest, None where there is none."""
    return min(times.items(), key=lambda item: item[1], default=None)


def pick(records, **wanted):
    """The last of the records that have all these values, or None."""
    found = [record for record in records if all(record.get(key) == value for key, value in wanted.items())]
    return found[-1] if found else None


def size_word(size):
    """As options have it."""
    return report.size_name(size).replace(" ", "").removesuffix("iB")


def number(value):
    """Three digits that count, and no exponents."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(made):
    """Prints the rows that were measured."""
    lines = [[row["what"], row["target"] or "-",
              "-" if row["measured"] is None else f"{number(row['measured'])} {row['unit']}",
              f"{number(row['peer']['value'])} ({row['peer']['name']})" if row["peer"] else "-", row["note"] or "-", row["verdict"]]
             for row in made if row["verdict"] != NOT_MEASURED]
    if lines:
        report.table("targets", ["what", "target", "measured", "best peer", "more", "verdict"], lines)
