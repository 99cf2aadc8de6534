"""What is written about the command line against what the command line says: manual_test.py BUILD_FOLDER

Every option and command that --help shows, of every command, is in the manual page and is offered by bash's completion.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1))
MANUAL = BUILD / "generated" / "manual"


def said(*arguments):
    return subprocess.run([BUILD / "talweg", *arguments, "--help"], check=True, capture_output=True, text=True).stdout


def section(text, title):
    """The indented lines below `title`."""
    match = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return match[1] if match else ""


def options(text):
    """Every spelling of every option, as --help shows it: "  -n,--ranks INT ..."."""
    found = re.findall(r"^  (-[^\s{]+(?:\{[^}]*\})?(?:,-[^\s{]+)*)", section(text, "Options"), re.MULTILINE)
    return sorted({name.split("{")[0] for names in found for name in names.split(",")})


def commands(text):
    return re.findall(r"^  ([a-z]\S*)", section(text, "Subcommands"), re.MULTILINE)


def command_lines():
    """Every command line, with what --help says of it: (), ("run",), ("lab", "up") ..."""
    waiting = [()]
    while waiting:
        line = waiting.pop()
        text = said(*line)
        yield line, text
        waiting += [(*line, command) for command in commands(text)]


def shown(page, width=400):
    """A manual page as a reader sees it, on lines of so many characters, and what troff thinks of it."""
    made = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u", f"-rLL={width}n", MANUAL / page],
                          check=True, capture_output=True, text=True)
    return made.stdout, made.stderr


def bash_offers(*words):
    script = (f"source {MANUAL}/talweg.bash\nCOMP_WORDS=(talweg {' '.join(map(repr, words))})\n"
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_talweg\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n")
    out = subprocess.run(["bash", "-euc", script], check=True, capture_output=True, text=True).stdout
    return out.split()


class Manual(unittest.TestCase):
    def test_every_option_and_command_of_help_is_on_the_page(self):
        seen = 0
        for line, text in command_lines():
            page, warnings = shown("-".join(["talweg", *line[:1]]) + ".1")
            self.assertEqual(warnings, "")
            part = page
            if len(line) > 1:  # its part of the page
                part = page.split(f"\n   talweg {' '.join(line)}\n")[1].split("\n   talweg ")[0]
            pages = [f"talweg-{name}(1)" for name in commands(text)] if not line else commands(text)
            for name in options(text) + pages:
                with self.subTest(line=line, name=name):
                    self.assertRegex(part, rf"(?<![\w-]){re.escape(name)}(?![\w-])", "not on the page")
                    seen += 1
        self.assertGreater(seen, 50, "--help was not understood")

    def test_no_page_is_too_wide_for_a_terminal(self):
        pages = sorted(MANUAL.glob("*.1"))
        self.assertGreater(len(pages), 5)
        for page in pages:
            with self.subTest(page=page.name):
                self.assertEqual(shown(page.name, width=78)[1], "")

    def test_every_setting_is_on_the_main_page(self):
        page, _ = shown("talweg.1")
        table = subprocess.run([BUILD / "talweg", "info"], check=True, capture_output=True, text=True).stdout
        names = re.findall(r"^  (TALWEG_\w+)", table, re.MULTILINE)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn(name, page)

    def test_bash_offers_every_option_and_command(self):
        for line, text in command_lines():
            with self.subTest(line=line):
                offered = bash_offers(*line, "")
                self.assertLessEqual(set(options(text) + commands(text)), set(offered))

    def test_bash_completes_what_was_begun_and_nothing_after_an_option_that_takes_a_value(self):
        self.assertEqual(bash_offers("per"), ["perf"])
        self.assertEqual(bash_offers("perf", "all_r"), ["all_reduce"])
        self.assertEqual(bash_offers("lab", "r"), ["run"])
        self.assertEqual(bash_offers("run", "-n", ""), [])
        self.assertEqual(bash_offers("run", "-n", "4", "--ho"), ["--hosts"])
        self.assertEqual(bash_offers("run", "-n", "4", "--", "l"), [])

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_reads_its_completion_and_knows_every_option(self):
        subprocess.run(["zsh", "-n", MANUAL / "_talweg"], check=True)
        text = (MANUAL / "_talweg").read_text()
        for line, said_of_it in command_lines():
            function = re.search(rf"^{'_'.join(['_talweg', *line])}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)[1]
            for name in options(said_of_it):
                self.assertIn(f"){name}[", function, line)
            for name in commands(said_of_it):
                self.assertIn(f"{name}\\:", function, line)


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    sys.exit(1 if not outcome.wasSuccessful() else 77 if outcome.skipped else 0)  # 77: as CMakeLists.txt says
