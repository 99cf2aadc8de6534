"""Sums up a folder of results: what failed, what was skipped and whether it may be, what took long, how many passed.

    python3 tools/sum_tests.py FOLDER [SKIPS]

FOLDER holds, as the stages of a check leave them:
  STAGE.xml           JUnit of ctest; each test case counts as one test
  STAGE.cases/*.xml   JUnit of a program that ctest knows as one test (GoogleTest's, pytest's): its cases count instead
  NAME.step           a step that is no set of tests (a build, the linter): "passed" or "failed"; counts as one test
  seconds.txt         "STAGE WALL CPU" a line, in seconds; stages may have gone on at the same time
SKIPS (default: tests/skips.txt) lists what may be skipped; any other skip is a failure. The last line is
"N passed, N failed[, N skipped]". Ends with 1 if anything failed or if there was nothing to sum up.
"""

import collections
import fnmatch
import pathlib
import sys
import xml.etree.ElementTree

SLOWEST = 20
SANITIZED = {"core", "asan", "tsan", "fuzz"}  # stages whose builds have sanitizers

Test = collections.namedtuple("Test", "stage name outcome seconds")


def outcome_of(case):
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def cases_in(path):
    """Yields (suite.name, outcome, seconds) for each test case of a JUnit file."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        # ctest repeats the name as the class's.
        suite, name = case.get("classname", ""), case.get("name", "")
        full = f"{suite}.{name}" if suite and suite != name else name
        yield full, outcome_of(case), float(case.get("time") or 0)


def tests_of(path):
    """All tests that one STAGE.xml or NAME.step stands for."""
    stage = path.stem
    if path.suffix == ".step":
        return [Test(stage, stage, path.read_text().strip(), 0)]
    tests = []
    for program, outcome, seconds in cases_in(path):
        own = path.with_suffix(".cases") / f"{program}.xml"
        cases = [Test(stage, f"{program}.{name}", *rest) for name, *rest in cases_in(own)] if own.exists() else []
        tests += cases
        # A program may fail beside its cases: when it ends, or before it can say which case it was in.
        if not cases or (outcome == "failed" and all(case.outcome != "failed" for case in cases)):
            tests.append(Test(stage, program, outcome, seconds))
    return tests


def read_skips(path):
    """[(pattern, "machine" | "sanitized", reason)]"""
    lines = [line.split(None, 2) for line in path.read_text().splitlines() if line and not line.startswith("#")]
    for line in lines:
        if len(line) != 3 or line[1] not in ("machine", "sanitized"):
            sys.exit(f"{path}: expected PATTERN machine|sanitized REASON, found: {' '.join(line)}")
    return lines


def reason_to_skip(test, skips):
    """(when, reason) by the first line that allows this skip, or None."""
    for pattern, when, reason in skips:
        if fnmatch.fnmatchcase(test.name, pattern) and (when == "machine" or test.stage in SANITIZED):
            return when, reason
    return None


def print_times(folder, tests):
    slowest = sorted((t for t in tests if t.seconds > 0), key=lambda t: -t.seconds)[:SLOWEST]
    if slowest:
        print("slowest tests:")
        for test in slowest:
            print(f"{test.seconds:8.1f} s  {test.stage}: {test.name}")
    if (folder / "seconds.txt").exists():
        print("stages:        wall       cpu")
        for line in (folder / "seconds.txt").read_text().splitlines():
            stage, wall, cpu = line.split()
            print(f"  {stage:10} {wall:>5} s {cpu:>7} s")


def main(folder, skips_file):
    tests = []
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".xml", ".step")):
        try:
            tests += tests_of(path)
        except xml.etree.ElementTree.ParseError as reason:
            print(f"{path.name} or what belongs to it cannot be read: {reason}")
            tests.append(Test(path.stem, path.stem, "failed", 0))
    skips = read_skips(skips_file)
    print_times(folder, tests)

    count = collections.Counter()
    not_here = collections.defaultdict(list)
    for test in tests:
        outcome = test.outcome
        if outcome == "skipped":
            allowed = reason_to_skip(test, skips)
            if allowed is None:
                print(f"skipped, which {skips_file.name} does not allow: {test.stage}: {test.name}")
                outcome = "failed"
            elif allowed[0] == "machine":
                not_here[allowed[1]].append(test.name)
        if outcome not in ("passed", "skipped"):
            outcome = "failed"
            print(f"failed: {test.stage}: {test.name}")
        count[outcome] += 1
    for reason, names in not_here.items():
        print(f"NOT CHECKED ON THIS MACHINE: {reason}: {len(names)} tests: {', '.join(names)}")
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    return 0 if count["passed"] and not count["failed"] else 1


if __name__ == "__main__":
    default = pathlib.Path(__file__).parents[1] / "tests" / "skips.txt"
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else default))
