"""The last line of `make check` must never claim more than what happened."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).parents[2] / "tools" / "sum_tests.py"
JUNIT = """<testsuite>
<testcase name="a" classname="a" status="run" time="1.5"/>
<testcase name="b" classname="b" status="fail" time="2.5"><failure message=""/></testcase>
<testcase name="c.Lab" classname="c.Lab" status="notrun"><skipped message="why"/></testcase>
</testsuite>"""
PASSING = """<testsuite><testcase name="a" classname="a" status="run"/></testsuite>"""
CASES = """<testsuites><testsuite>
<testcase name="One" classname="Suite" status="run" result="completed" time="0.5"/>
<testcase name="Two" classname="Suite" status="run" result="skipped"><skipped message="why"/></testcase>
</testsuite></testsuites>"""
SKIPS = "# what may be skipped\nc.*  machine  needs a lab\na.Suite.Two  sanitized  too slow there\n"


class SumTestsTest(unittest.TestCase):
    def run_on(self, files, skips=SKIPS):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, "results", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            results = pathlib.Path(folder, "results")
            results.mkdir(exist_ok=True)
            allowed = pathlib.Path(folder, "skips.txt")
            allowed.write_text(skips)
            done = subprocess.run([sys.executable, PROGRAM, results, allowed], capture_output=True, text=True)
            return done.returncode, done.stdout.splitlines()

    def test_all_files_are_summed_and_failures_named(self):
        status, lines = self.run_on({"test.xml": JUNIT, "tidy.step": "passed\n", "build.step": "failed\n"})
        self.assertEqual(lines[-1], "2 passed, 2 failed, 1 skipped")
        self.assertEqual(status, 1)
        self.assertIn("failed: build: build", lines)
        self.assertIn("failed: test: b", lines)

    def test_success_is_zero_failures(self):
        self.assertEqual(self.run_on({"tidy.step": "passed\n"}), (0, ["1 passed, 0 failed"]))

    def test_nothing_done_is_not_success(self):
        self.assertEqual(self.run_on({}), (1, ["0 passed, 0 failed"]))

    def test_a_broken_list_of_tests_counts_as_a_failure(self):
        status, lines = self.run_on({"test.xml": "<testsuite>"})
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed"))

    def test_a_skip_that_nobody_allowed_fails(self):
        status, lines = self.run_on({"test.xml": JUNIT.replace("c.Lab", "d.Lab")})
        self.assertEqual((status, lines[-1]), (1, "1 passed, 2 failed"))
        self.assertIn("skipped, which skips.txt does not allow: test: d.Lab", lines)

    def test_what_this_machine_cannot_run_is_said_aloud(self):
        _, lines = self.run_on({"test.xml": JUNIT})
        self.assertIn("NOT CHECKED ON THIS MACHINE: needs a lab: 1 tests: c.Lab", lines)

    def test_a_programs_own_cases_count_in_its_place(self):
        status, lines = self.run_on({"asan.xml": PASSING, "asan.cases/a.xml": CASES})
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))

    def test_what_may_be_skipped_with_sanitizers_may_not_without(self):
        status, lines = self.run_on({"test.xml": PASSING, "test.cases/a.xml": CASES})
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))

    def test_a_program_that_fails_beside_its_cases_has_failed(self):
        failed = PASSING.replace('status="run"', 'status="fail"')
        status, lines = self.run_on({"asan.xml": failed, "asan.cases/a.xml": CASES})
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("failed: asan: a", lines)

    def test_the_slowest_tests_and_the_time_of_each_stage_are_told(self):
        _, lines = self.run_on({"test.xml": JUNIT, "seconds.txt": "test 12 20\n"})
        told = [line.split() for line in lines]
        self.assertLess(told.index(["2.5", "s", "test:", "b"]), told.index(["1.5", "s", "test:", "a"]))
        self.assertIn(["test", "12", "s", "20", "s"], told)

    def test_the_list_of_skips_is_read_strictly(self):
        self.assertEqual(self.run_on({"tidy.step": "passed\n"}, "c.* whenever because\n"), (1, []))

    def test_the_projects_own_list_of_skips_can_be_read(self):
        skips = PROGRAM.parents[1] / "tests" / "skips.txt"
        self.assertEqual(self.run_on({"tidy.step": "passed\n"}, skips.read_text()), (0, ["1 passed, 0 failed"]))


if __name__ == "__main__":
    unittest.main()
