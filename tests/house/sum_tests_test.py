"""The last line of `make check` must never claim more than what happened."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).parents[2] / "tools" / "sum_tests.py"
JUNIT = """<testsuite>
<testcase name="a" status="run"/>
<testcase name="b" status="fail"><failure message=""/></testcase>
<testcase name="c" status="notrun"><skipped message="why"/></testcase>
</testsuite>"""


class SumTestsTest(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                pathlib.Path(folder, name).write_text(text)
            done = subprocess.run([sys.executable, PROGRAM, folder], capture_output=True, text=True)
            return done.returncode, done.stdout.splitlines()

    def test_all_files_are_summed_and_failures_named(self):
        status, lines = self.run_on({"test.xml": JUNIT, "tidy.step": "passed\n", "build.step": "failed\n"})
        self.assertEqual(lines[-1], "2 passed, 2 failed, 1 skipped")
        self.assertEqual(status, 1)
        self.assertIn("failed: build", lines)
        self.assertIn("failed: test:  b", lines)

    def test_success_is_zero_failures(self):
        self.assertEqual(self.run_on({"tidy.step": "passed\n"}), (0, ["1 passed, 0 failed"]))

    def test_nothing_done_is_not_success(self):
        self.assertEqual(self.run_on({}), (1, ["0 passed, 0 failed"]))

    def test_a_broken_list_of_tests_counts_as_a_failure(self):
        status, lines = self.run_on({"test.xml": "<testsuite>"})
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
