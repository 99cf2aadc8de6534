"""What `tools/lint.sh changed` reads must follow from what has changed, and nothing that has may be left out."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).parents[2] / "tools" / "lint.sh"
# In place of the linter: what it is to read. It finds fault with files that are called so.
LINTER = """#!/bin/sh
for word; do case $word in /*) echo "read $word" ;; esac; done
case "$*" in *fault*) exit 1 ;; esac
"""
# In place of the build that has it read everything: what is to be compiled, and by which command.
CMAKE = """#!/bin/sh
mkdir -p build-lint/alone
for object in src/a.o bench/b.o $OBJECTS; do
  echo "  \\"command\\": \\"c++ -o $object -c x.cc\\","
  echo "  \\"file\\": \\"x.cc\\"$MORE"
done | tee build-lint/compile_commands.json >build-lint/alone/compile_commands.json
echo "configured $*" >&2
"""
NINJA = """#!/bin/sh
for word; do case $word in *.o) echo "read $word" ;; esac; done
[ ! -e fault ]
"""


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name, "tree")
        tools = pathlib.Path(folder.name, "tools")
        tools.mkdir()
        for name, text in (("run-clang-tidy-14", LINTER), ("cmake", CMAKE), ("ninja", NINJA)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": "/dev/null"}
        self.write("tools/lint.sh", "")
        shutil.copy(PROGRAM, self.tree / "tools/lint.sh")
        self.write(".gitignore", "build-lint\n")
        self.write("src/a.cc", '#include "a.h"\n')
        self.write("src/a.h", "")
        self.write("src/b.cc", '#include "only.h"\n')
        self.write("src/only.h", "")
        self.write(".clang-tidy", "Checks: bugprone-*\n")
        self.git("init", "-q")
        self.commit()

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=self.tree, check=True,
                       env=self.environment, stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "m")

    def lint(self, what="changed"):
        """Its exit status, and what the linter has read."""
        done = subprocess.run(["bash", self.tree / "tools/lint.sh", what, "1"], capture_output=True, text=True,
                              env=self.environment)
        self.configured = [line for line in done.stderr.splitlines() if line.startswith("configured ")]
        return done.returncode, [line[len("read "):] for line in done.stdout.splitlines() if line.startswith("read ")]

    def test_without_a_past_everything_is_read(self):
        self.assertEqual(self.lint(), (0, ["src/a.o"]))

    def test_what_has_changed_since_it_last_passed_is_read_committed_or_not(self):
        self.lint("all")
        self.assertEqual(self.lint(), (0, []))
        self.write("src/a.h", "int a;\n")
        for _ in range(12):
            self.commit()
        self.write("src/only.h", "int b;\n")
        self.write("src/new.cc", "")
        sources = ["/src/a.cc", "/src/b.cc", "/src/new.cc"]
        self.assertEqual(self.lint(), (0, sources))
        self.assertEqual(self.lint(), (0, sources), "what is not committed is read again")
        self.commit()
        self.assertEqual(self.lint(), (0, sources))
        self.assertEqual(self.lint(), (0, []))

    def test_what_has_a_fault_is_read_until_it_is_mended(self):
        self.lint("all")
        self.write("src/fault.cc", "")
        self.commit()
        for _ in range(2):
            self.assertEqual(self.lint(), (1, ["/src/fault.cc"]))
            self.commit()

    def test_another_set_of_checks_is_for_every_source(self):
        self.lint("all")
        before = self.configured
        self.lint("all")
        self.assertEqual(self.configured, before)
        self.write(".clang-tidy", "Checks: performance-*\n")
        self.assertEqual(self.lint(), (0, ["src/a.o"]))
        self.assertEqual(len(self.configured), 1)
        self.assertNotEqual(self.configured, before, "so that nothing counts as read already")
        self.commit()
        self.assertEqual(self.lint(), (0, ["src/a.o"]))
        self.assertEqual(self.lint(), (0, []))

    def test_all_is_read_or_it_fails(self):
        self.assertEqual(self.lint("alone"), (0, ["src/a.o", "bench/b.o"]))
        self.write("fault", "")
        self.assertEqual(self.lint("all"), (1, ["src/a.o"]))
        self.assertEqual(self.lint("alone"), (1, ["src/a.o", "bench/b.o"]))
        self.assertFalse((self.tree / "build-lint/passed").exists())
        (self.tree / "fault").unlink()
        self.environment["MORE"] = '\n"file": "another whose object is not told"'
        for what in "all", "alone":
            self.assertEqual(self.lint(what), (1, []))

    def test_many_are_all_read_and_each_that_has_changed_is_compiled_by_itself(self):
        self.lint("all")
        sources = [f"s{number:02}.cc" for number in range(41)]
        for source in sources:
            self.write(f"src/room/{source}", "")
        objects = [f"src/room/CMakeFiles/talweg_room.dir/{source}.o" for source in ("other.cc", *sources)]
        self.environment["OBJECTS"] = " ".join(objects)
        self.commit()
        self.assertEqual(self.lint(), (0, objects[1:] + ["src/a.o", *objects]))
        self.assertEqual(self.lint(), (0, []))
        for source in sources:
            self.write(f"src/room/{source}", "int a;\n")
        self.write("fault", "")
        self.commit()
        for _ in range(2):
            self.assertEqual(self.lint(), (1, objects[1:]))

    def test_a_branch_is_compared_with_where_it_left(self):
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.write("src/b.cc", "int b;\n")
        self.commit()
        self.assertEqual(self.lint(), (0, ["/src/b.cc"]))
        self.assertEqual(self.lint(), (0, ["/src/b.cc"]))


if __name__ == "__main__":
    unittest.main()
