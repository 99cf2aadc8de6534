"""Sums up a folder of results: JUnit files (*.xml) by their test cases, other steps (*.step) as one test each.

    python3 tools/sum_tests.py FOLDER

Names what failed, then prints "N passed, N failed[, N skipped]" as its last line. Ends with 1 if anything failed or
if there was nothing to sum up.
"""

import pathlib
import sys
import xml.etree.ElementTree


def outcomes_of(path):
    """Yields (name, "passed" | "failed" | "skipped") for each test in one file."""
    if path.suffix == ".step":
        yield path.stem, path.read_text().strip()
        return
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{path.stem}: {case.get('classname', '')} {case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            yield name, "failed"
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            yield name, "skipped"
        else:
            yield name, "passed"


def main(folder):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sorted(p for p in pathlib.Path(folder).iterdir() if p.suffix in (".xml", ".step")):
        try:
            outcomes = list(outcomes_of(path))
        except xml.etree.ElementTree.ParseError as reason:
            print(f"{path.name} cannot be read: {reason}")
            outcomes = [(path.stem, "failed")]
        for name, outcome in outcomes:
            count[outcome] += 1
            if outcome == "failed":
                print(f"failed: {name}")
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    return 0 if count["passed"] and not count["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
