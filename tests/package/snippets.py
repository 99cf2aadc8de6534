"""Runs the snippets of one Markdown page as its reader would: snippets.py BUILD_FOLDER PYTHON PAGE

Blocks in sh, python, cpp, c, cmake and yaml are taken in the page's order, in one scratch folder that has the tree's
files in it, with `talweg` and `python` on the path; what a block exports, the next one finds. Comments before a block:

    <!-- not run: why -->   it is not run (and counted: NOT_RUN has how many each page may have)
    <!-- file: NAME -->     it is saved under this name first
    <!-- needs: lab -->     it is run where network namespaces can be made

python and C++ programs run as two ranks; cpp and c without a name must at least be whole programs, and are compiled.
Those with a name must end with exit code 1, not by a signal and not as if all were well, when the other rank leaves.
yaml must be a cluster that can be planned for; cmake is only saved.

    snippets.py --settings BUILD_FOLDER [--update]   holds the table in docs/tuning.md to what `talweg info` says
    snippets.py --quotes                             holds docs/troubleshooting.md to the messages in the sources
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {"sh", "python", "cpp", "c", "cmake", "yaml"}
NOT_RUN = {"docs/seeing.md": 1, "docs/aggregation.md": 1, "README.md": 2, "docs/getting-started.md": 4}  # every other page: none
BLOCK = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 240  # for one block: on an idle machine none takes a tenth of it


def fail(text):
    sys.exit(f"snippets: {text}")


class Page:
    def __init__(self, build, python, name):
        self.build, self.python, self.name = pathlib.Path(build).resolve(), python, name
        self.text = (TREE / name).read_text(encoding="utf-8")

    def blocks(self):
        """Yields (line, language, comments, code)."""
        for match in BLOCK.finditer(self.text):
            comments = dict(re.findall(r"<!-- ([\w ]+): (.*?) -->", match[1]))
            if match[2] in LANGUAGES:
                yield self.text.count("\n", 0, match.start(2)) + 1, match[2], comments, match[3]

    def prepare(self, scratch):
        """The tree as a user has it who stands in its root, without anything that a snippet may write through."""
        for path in TREE.iterdir():
            if path.name not in (".git", "build", ".cache", "CMakeLists.txt"):
                (scratch / path.name).symlink_to(path)
        (scratch / "build").symlink_to(self.build)
        tools = scratch / ".tools"
        tools.mkdir()
        (tools / "talweg").symlink_to(self.build / "talweg")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALWEG_")}
        interpreters = pathlib.Path(self.python).absolute().parent  # not resolved: a virtual environment is known by it
        environment |= {"PATH": f"{tools}:{interpreters}:{environment['PATH']}", "HOME": str(scratch),
                        "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.build / "python"),
                        "PYTHONDONTWRITEBYTECODE": "1"}
        (scratch / ".environment").write_text("")
        return environment

    def run(self):
        not_run = ran = left_out = 0
        with tempfile.TemporaryDirectory() as folder:
            scratch = pathlib.Path(folder)
            environment = self.prepare(scratch)
            for line, language, comments, code in self.blocks():
                if "not run" in comments:
                    not_run += 1
                    continue
                if comments.get("needs") == "lab" and not can_make_namespaces():
                    print(f"{self.name}:{line}: left out: no network namespaces here")
                    left_out += 1
                    continue
                script = self.script(language, comments, code, scratch)
                self.check(script, scratch, environment, line)
                ran += 1
        if not_run != NOT_RUN.get(self.name, 0):
            fail(f"{self.name} has {not_run} blocks that are not run; {NOT_RUN.get(self.name, 0)} are allowed for")
        print(f"{self.name}: {ran} snippets ran, {not_run} did not")
        if left_out:
            sys.exit(77)  # as CMakeLists.txt says

    def script(self, language, comments, code, scratch):
        if language == "sh":
            return code
        name = comments.get("file", f"snippet.{'cc' if language == 'cpp' else language}")
        (scratch / name).write_text(code)
        (scratch / ".leave.py").write_text("import talweg\ntalweg.init()\n")
        left = "talweg run -n 2 -- sh -c 'test $RANK = 1 && exec python .leave.py; ./snippet; test $? = 1'"
        run = "-ltalweg -o snippet && talweg run -n 2 -- ./snippet" + (f" && {left}" if "file" in comments else "")
        library = f"-I{TREE}/include -L{self.build} -Wl,-rpath,{self.build}"
        return {
            "python": f"talweg run -n 2 --timeout 90s -- python {name}",
            "cpp": f"c++ -std=c++20 -Wall -Wextra {name} {library} {run}",
            "c": f"cc -std=c99 -Wall -Wextra {name} {library} {run}",
            "yaml": f"talweg info all_reduce --cluster {name}",
            "cmake": "true",
        }[language]

    def check(self, script, scratch, environment, line):
        keeping = f"set -euo pipefail\nsource {scratch}/.environment\n{script}\nexport -p >{scratch}/.environment\n"
        try:
            done = subprocess.run(["bash", "-c", keeping], cwd=scratch, env=environment, timeout=SECONDS, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            fail(f"{self.name}:{line}: still ran after {SECONDS} s")
        if done.returncode != 0:
            fail(f"{self.name}:{line}: exit code {done.returncode}\n{script}\n{done.stdout}")


def can_make_namespaces():
    return subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


def settings_table(build):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TALWEG_")}
    out = subprocess.run([pathlib.Path(build) / "talweg", "info", "--json", "-"], check=True, capture_output=True,
                         text=True, env=environment | {"HOME": "/nonexistent", "TALWEG_CONF_FILE": "/dev/null"}).stdout
    rows = "".join(f"| `{s['name']}` | {'`' + s['value'] + '`' if s['value'] else ''} | {s['description']} |\n"
                   for s in json.loads(out)["settings"])
    return "| setting | default | meaning |\n|---|---|---|\n" + rows


def check_settings(build, update):
    path = TREE / "docs" / "tuning.md"
    begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->"
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    table, after = rest.split(end)
    wanted = settings_table(build)
    if update:
        path.write_text(before + begin + wanted + end + after, encoding="utf-8")
    elif table != wanted:
        fail("docs/tuning.md has another table of settings than talweg info; python3 tests/package/snippets.py "
             f"--settings {build} --update writes it anew")


def check_quotes():
    """Each `message` that begins an entry of the page is made of pieces that a source file has."""
    sources = "".join(path.read_text(encoding="utf-8")
                      for folder in ("src", "bindings") for path in sorted((TREE / folder).rglob("*"))
                      if path.suffix in (".cc", ".h", ".py"))
    sources = re.sub(r'"\s*\n\s*"', "", sources)  # a literal on several lines is one
    page = (TREE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    entries = re.findall(r"^ *- (?:`([^`]+)`)", page, re.MULTILINE)
    if len(entries) < 10:
        fail("docs/troubleshooting.md quotes hardly anything")
    for entry in entries:
        if "Error: " in entry:  # Python's own
            continue
        for piece in filter(None, (piece.strip(" :,") for piece in entry.split("…"))):
            if piece not in sources:
                fail(f"docs/troubleshooting.md quotes what no source says: {piece!r}")


if __name__ == "__main__":
    if sys.argv[1] == "--settings":
        check_settings(sys.argv[2], "--update" in sys.argv)
    elif sys.argv[1] == "--quotes":
        check_quotes()
    else:
        Page(*sys.argv[1:]).run()
