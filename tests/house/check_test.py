"""tools/check.sh: whatever fails, dies or leaves nothing behind must show in its last line and in how it ends."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
# In place of what the stages run. $FAULT names what goes wrong, in words of theirs.
STAND_INS = {
    "setup.sh": 'echo "setup $*" >>done.txt; [ "$FAULT" != setup ]',
    "sources.sh": "echo a.cc",
    "clang-format-14": 'echo format >>done.txt; [ "$FAULT" != format ]',
    "build.sh": """
echo "build $1 ${3-all}" >>done.txt
case $FAULT in
  "build $1") exit 1 ;;
  # What goes on beside the tests is a group of processes.
  "lane dies at $1") kill -KILL 0 ;;
esac
if [ "$1" = release ]; then mkdir -p build; else mkdir -p "build-$1"; fi""",
    "lint.sh": 'echo "lint $1" >>done.txt; [ "$FAULT" != "lint $1" ]',
    "ctest": """
while [ $# -gt 0 ]; do
  case $1 in
    --test-dir) folder=$2 ;;
    --output-junit) junit=$2 ;;
  esac
  shift
done
stage=$(basename "$junit" .xml)
echo "test $stage" >>done.txt
outcome=run
case $FAULT in
  "test $stage") outcome=fail ;;
  "no list of $stage") exit 0 ;;
esac
echo "<testsuite><testcase name='t' classname='t' status='$outcome' time='1'/></testsuite>" >"$junit"
echo "<testsuite><testcase name='One' status='run'/><testcase name='Two' status='run'/></testsuite>" >"$folder/cases/t.xml"
[ $outcome = run ]""",
}


class CheckTest(unittest.TestCase):
    def check(self, *words, fault=""):
        """(exit status, lines that were said, what was done)"""
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder, "tools")
            tools.mkdir()
            pathlib.Path(folder, "tests").mkdir()
            shutil.copy(TOOLS.parent / "tests/skips.txt", pathlib.Path(folder, "tests"))
            for name in ("check.sh", "sum_tests.py"):
                shutil.copy(TOOLS / name, tools)
            for name, text in STAND_INS.items():
                (tools / name).write_text(f"#!/bin/bash\n{text}\n")
                (tools / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "FAULT": fault}
            ran = subprocess.run([tools / "check.sh", *words], capture_output=True, text=True, env=environment, timeout=50)
            done = pathlib.Path(folder, "done.txt")
            return ran.returncode, ran.stdout.splitlines(), done.read_text().splitlines() if done.exists() else []

    def test_the_quick_one_does_all_that_belongs_to_it(self):
        status, said, done = self.check()
        # setup, format, build, core-build and lint are steps, test and core have two cases each.
        self.assertEqual((status, said[-1]), (0, "9 passed, 0 failed"))
        self.assertEqual(done[:3], ["setup check", "format", "build release all"])
        self.assertEqual(sorted(done[3:]), ["build asan core", "lint changed", "test core", "test test"])

    def test_the_long_one_does_all_the_rest(self):
        status, said, done = self.check("long")
        self.assertEqual((status, said[-1]), (0, "15 passed, 0 failed"))
        self.assertEqual(done[:2], ["setup check", "build release all"])
        self.assertEqual(sorted(done[2:]), ["build asan all", "build fuzz all", "build tsan all", "lint all", "lint alone",
                                            "test asan", "test fuzz", "test long", "test tsan"])

    def test_a_stage_waits_for_its_build(self):
        _, _, done = self.check("long")
        for stage in ("asan", "tsan", "fuzz"):
            self.assertLess(done.index(f"build {stage} all"), done.index(f"test {stage}"))

    def test_stages_that_are_named_are_all_that_is_done(self):
        status, said, done = self.check("build", "test")
        self.assertEqual((status, said[-1], done), (0, "3 passed, 0 failed", ["build release all", "test test"]))

    def test_a_stage_that_is_not_there_is_refused(self):
        self.assertEqual(self.check("tests")[::2], (2, []))

    def test_each_step_that_fails_is_counted_and_the_others_go_on(self):
        for fault in ("setup", "format", "build release", "lint changed"):
            with self.subTest(fault):
                status, said, done = self.check(fault=fault)
                self.assertEqual((status, said[-1]), (1, "8 passed, 1 failed"))
                self.assertIn("test core", done)

    def test_a_test_that_fails_is_counted(self):
        for stage in ("test", "core"):
            status, said, _ = self.check(fault=f"test {stage}")
            # The program's own cases passed, so that it has failed beside them.
            self.assertEqual((status, said[-1]), (1, "9 passed, 1 failed"))

    def test_without_its_build_a_stage_is_left_out_and_counted_once(self):
        status, said, done = self.check(fault="build asan")
        self.assertEqual((status, said[-1]), (1, "6 passed, 1 failed"))
        self.assertNotIn("test core", done)
        self.assertIn("lint changed", done)

    def test_a_run_that_leaves_no_list_of_tests_has_failed(self):
        status, said, _ = self.check(fault="no list of core")
        self.assertEqual((status, said[-1]), (1, "7 passed, 1 failed"))

    def test_what_dies_beside_the_tests_counts_as_failed_with_all_that_was_to_follow(self):
        status, said, done = self.check(fault="lane dies at asan")
        self.assertEqual((status, said[-1]), (1, "5 passed, 2 failed"))
        self.assertIn("failed: core-build: core-build", said)
        self.assertIn("failed: lint: lint", said)
        self.assertNotIn("test core", done)


if __name__ == "__main__":
    unittest.main()
