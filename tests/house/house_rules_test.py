"""Each rule of the house is broken once in a small tree made for it, and must be reported there and nowhere else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import house_rules

GOOD = {
    "include/talweg/types.h": "#include <vector>\n",
    "include/talweg/group.h": '#include <memory>\n#include "talweg/types.h"\n',
    "src/base/README.md": "# base\n\n- `log.h` lines on stderr\n",
    "src/base/log.h": "#include <fmt/core.h>\n#include <sys/socket.h>\n",
    "src/kernel/README.md": "# kernel\n",
    "src/kernel/reduce.cc": '#include "kernel/reduce.h"\n#include "base/log.h"\n#include "talweg/types.h"\n',
    "src/protocol/README.md": "# protocol\n",
    "src/protocol/run.cc": '#include "forest/forest.h"\n#include "wire/frame.h"\n',
    "bindings/torch/README.md": "# torch\n",
    "bindings/torch/work.cc": '#include "group/group.h"\n#include "bindings/torch/work.h"\n',
    "tests/base/log_test.cc": "x\n" * house_rules.LONGEST_FILE,
    "picture.png": None,
}


class HouseRulesTest(unittest.TestCase):
    def violations(self, changes):
        """What is reported for the good tree with `changes` on top (text None in a change removes the file)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **changes}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if text is not None:
                    path.write_text(text)
                elif name not in changes:
                    path.write_bytes(b"\x89\xff\xfe")
            return house_rules.violations(folder)

    def assert_one(self, changes, place, words):
        found = self.violations(changes)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place + ": "), found[0])
        self.assertIn(words, found[0])

    def test_a_tree_that_keeps_the_rules_is_left_alone(self):
        self.assertEqual(self.violations({}), [])

    def test_including_a_higher_floor_is_reported(self):
        self.assert_one({"src/base/log.cc": '\n#include "kernel/reduce.h"\n'}, "src/base/log.cc:2",
                        "base (floor 1) may not include kernel (floor 2)")

    def test_a_using_declaration_that_nothing_uses_is_reported(self):
        using = "using text::Reader;\n"
        self.assert_one({"src/base/log.cc": "int f(text::Reader);\n" + using + "// Reader\n"}, "src/base/log.cc:2",
                        "nothing uses `using text::Reader;`")
        self.assertEqual(self.violations({"src/base/log.cc": using + "int f(Reader);\n", "src/base/log.h": using}), [])

    def test_angle_brackets_hide_nothing(self):
        self.assert_one({"src/base/log.cc": "#  include <live/engine.h>\n"}, "src/base/log.cc:1", "may not include live")

    def test_including_another_room_of_the_same_floor_is_reported(self):
        self.assert_one({"src/kernel/divide.cc": '#include "wire/frame.h"\n'}, "src/kernel/divide.cc:1",
                        "kernel (floor 2) may not include wire (floor 2)")

    def test_wire_stands_on_base_alone(self):
        for other, floor in (("kernel", 2), ("cluster", 3)):
            self.assert_one({"src/wire/README.md": "", "src/wire/a.cc": f'#include "{other}/a.h"\n'}, "src/wire/a.cc:1",
                            f"wire (floor 2) may not include {other} (floor {floor})")

    def test_forest_may_not_include_protocol(self):
        self.assert_one({"src/forest/README.md": "", "src/forest/a.cc": '#include "protocol/run.h"\n'},
                        "src/forest/a.cc:1", "forest (floor 4) may not include protocol (floor 5)")

    def test_the_faces_do_not_include_the_command_line(self):
        self.assert_one({"bindings/torch/a.cc": '#include "cli/run.h"\n'}, "bindings/torch/a.cc:1",
                        "bindings (floor 10) may not include cli (floor 10)")

    def test_a_public_header_that_needs_a_library_is_reported(self):
        for header in ("<fmt/core.h>", "<unistd.h>", '"base/log.h"', '"types.h"'):
            self.assert_one({"include/talweg/bad.h": f"#include {header}\n"}, "include/talweg/bad.h:1", header.strip('<>"'))

    def test_a_room_without_a_readme_is_reported(self):
        self.assert_one({"src/kernel/README.md": None}, "src/kernel:1", "no README.md")
        self.assert_one({"bindings/torch/README.md": None}, "bindings/torch:1", "no README.md")

    def test_a_room_without_a_floor_is_reported(self):
        self.assert_one({"src/attic/README.md": ""}, "src/attic:1", "no floor")

    def test_a_second_thread_where_no_sanitizer_looks_for_it_is_reported(self):
        for folder in ("src", "tests"):
            self.assert_one({f"{folder}/base/log.cc": "#include <string>\n#include <atomic>\n"},
                            f"{folder}/base/log.cc:2", "base has one thread and no use for <atomic>")
        self.assertEqual(self.violations({"tests/live/gate_test.cc": "#include <thread>\n"}), [])

    def test_a_long_readme_is_reported(self):
        self.assert_one({"src/base/README.md": "`log.h`\n" * 25}, "src/base/README.md:25", "at most 24 lines")

    def test_a_long_file_is_reported(self):
        self.assert_one({"src/base/log.cc": "\n" * 601}, "src/base/log.cc:601", "longer than 600")

    def test_a_name_without_linkage_is_one_in_its_room(self):
        def two(first, second, room="base"):
            nameless = "namespace talweg {{\nnamespace {{\n{}\n}}  // namespace\n}}  // namespace talweg\n"
            return {"src/base/a.cc": nameless.format(first), f"src/{room}/b.cc": nameless.format(second)}

        for first, second in (
                ("constexpr int kMost = 3;", "constexpr std::uint64_t kMost{4};"),
                ("const char* const kNames[] = {};", "constexpr std::array<int, 2> kNames = {1, 2};"),
                ("struct Unit {\n  int a = 0;\n};", "class Unit final {\n};"),
                ("using Unit = int;", "using Unit = long;"),
                ("int size(const Plan& a, int b) {\n}", "bool size(const Plan& plan,\n          int n = 3) {\n}"),
                ("int size() {\n}", "int size = 3;")):
            self.assert_one(two(first, second), "src/base/b.cc:3", " is also in src/base/a.cc")
        for first, second in (
                ("using Unit = std::vector<int>;", "using Unit =\n    std::vector<int>;"),
                ("int size(const Plan& a) {\n}", "int size(Plan& a) {\n}\nint size(int b) {\n}"),
                ("void a() {\n  int left = 3;\n}", "void b() {\n  int left = 3;\n}")):
            self.assertEqual(self.violations(two(first, second)), [])
        self.assertEqual(self.violations(two("int x = 3;", "int x = 3;", "kernel")), [])
        header = {"src/base/README.md": "`log.h`, `a.h`", "src/base/a.h": "namespace talweg {\ninline constexpr double kFull = 0.9;\n}  // namespace talweg\n"}
        nameless = "namespace talweg {\nnamespace {\nconstexpr int kFull = 3;\n}  // namespace\n}  // namespace talweg\n"
        self.assert_one({**header, "src/base/b.cc": nameless}, "src/base/b.cc:3", "kFull is also in src/base/a.h")
        self.assertEqual(self.violations({**header, "src/kernel/b.cc": nameless}), [])

    def test_a_file_that_prose_names_must_be_there(self):
        for text in ("see `base/recorder.h`", "[it](../recorder.h)", "| `src/base/recorder.cc` |", "recorder.py does"):
            self.assert_one({"docs/a.md": f"one\n{text}\n"}, "docs/a.md:2", "there is no such file")
        self.assert_one({"src/kernel/reduce.cc": "int a;  // as kernel/log.h\n"}, "src/kernel/reduce.cc:1", "kernel/log.h")
        self.assertEqual(self.violations({"src/base/log.cc": 'const char* a = "recorder.h";\n'}), [])
        for text in ("`log.h`, base/log.h, [it](../src/base/log.h), src/cli/NAME.cc", "std.here.html, ~/a.py, *.cc, <b.h>",
                     "<!-- file: mean.py -->\nmean.py"):
            self.assertEqual(self.violations({"docs/a.md": text + "\n"}), [])

    def test_a_header_that_its_rooms_readme_does_not_name_is_reported(self):
        for name in ("og.h", "loop/log_line.h", "prolog.h"):
            self.assert_one({f"src/base/{name}": ""}, f"src/base/{name}:1", "src/base/README.md does not name it")
        named = {"src/base/README.md": "`log` and `loop/turn.h`, `at.h`\n", "src/base/loop/turn.h": "", "src/base/at.h": ""}
        self.assertEqual(self.violations(named), [])

    def test_a_test_that_may_be_skipped_is_in_the_list_of_skips(self):
        listed = {"tests/skips.txt": "# *.Lab.Works may not\n*.Lab.Is*  machine  needs root\n*/Ciphers.*/Aes machine that\n"}
        def tested(text):
            return {**listed, "tests/base/a_test.cc": text}
        skip = "  if (!lab) GTEST_SKIP();\n}\n"
        for text, line in (("// one\nTEST(Lab, Works) {\n" + skip, 2), ("TEST_P(Lab, Works) {\n" + skip, 1),
                           ("#define IF_LAB \\\n  if (!lab) GTEST_SKIP()\nTEST_F(Lab, Works) {\n  IF_LAB;\n}\n", 3),
                           ("class Lab {\n void SetUp() {\n" + skip + "};\nTEST_F(Lab, Works) {\n}\n", 6),
                           ("void build(\n  int a) {\n" + skip + "TEST(Lab, Works) {\n  build(1);\n}\n", 5)):
            self.assert_one(tested(text), f"tests/base/a_test.cc:{line}", "Lab.Works may be skipped, which skips.txt does not")
            self.assertEqual(self.violations(tested(text.replace("Works", "IsBuilt"))), [])
        self.assertEqual(self.violations(tested("TEST_P(Ciphers, AreRight) {\n" + skip)), [])
        self.assertEqual(self.violations(tested("TEST(Lab, Works) {\n}\nTEST(Lab, IsBuilt) {\n" + skip)), [])

    def test_a_test_that_leaves_out_what_needs_root_is_reported(self):
        self.assert_one({"tests/base/a_test.cc": "TEST(Lab, Works) {\n  f();\n  if (geteuid() != 0) return;\n}\n"},
                        "tests/base/a_test.cc:3", "a test that needs root is skipped without it")

    def test_a_python_test_that_passes_when_it_skips_is_reported(self):
        skipping = "self.skipTest('there is no zsh')\n"
        self.assert_one({"tests/base/a_test.py": skipping + "unittest.main()\n"}, "tests/base/a_test.py:1", "what it skips passes")
        self.assertEqual(self.violations({"tests/base/a_test.py": skipping + "sys.exit(77 if outcome.skipped else 0)\n"}), [])

    def test_forbidden_words_are_reported(self):
        for word in ("TO" + "DO", "/wor" + "k/main", "../shar" + "ed/notes"):
            self.assert_one({"README.md": f"one\nsee {word}\n"}, "README.md:2", word[:4])
        self.assertEqual(self.violations({"README.md": "net/wor" + "k/x TO" + "DOS\n"}), [])

    def test_symbolic_links_are_reported_wherever_they_lead(self):
        for target in ("README.md", "src", "/nowhere"):
            with self.subTest(target=target), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "src").mkdir()
                pathlib.Path(folder, "README.md").write_text("fine\n")
                pathlib.Path(folder, "link").symlink_to(target)
                self.assertEqual(house_rules.violations(folder), [f"link:1: a symbolic link (to {target})"])

    def test_a_symbolic_link_that_git_ignores_is_nobodys_business_unless_it_is_tracked(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "init", "-q", folder], check=True)
            pathlib.Path(folder, ".gitignore").write_text("link\n")
            pathlib.Path(folder, "link").symlink_to(".gitignore")
            self.assertEqual(house_rules.violations(folder), [])
            subprocess.run(["git", "-C", folder, "add", "--force", "link"], check=True)
            self.assertEqual(house_rules.violations(folder), ["link:1: a symbolic link (to .gitignore)"])

    def test_the_program_reports_by_exit_status_and_counts_untracked_files_of_a_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, "-B", house_rules.__file__, folder]
            subprocess.run(["git", "init", "-q", folder], check=True)
            pathlib.Path(folder, ".gitignore").write_text("ignored\n")
            pathlib.Path(folder, "ignored").write_text("TO" + "DO\n")
            self.assertEqual(subprocess.run(program).returncode, 0)
            pathlib.Path(folder, "new").write_text("TO" + "DO\n")
            broken = subprocess.run(program, capture_output=True, text=True)
            self.assertEqual(broken.returncode, 1)
            self.assertIn("new:1: unfinished work", broken.stdout)


if __name__ == "__main__":
    unittest.main()
