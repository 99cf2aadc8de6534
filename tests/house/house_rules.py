"""The rules of the house, checked on a source tree: prints each violation as `file:line: what is wrong`.

    python3 house_rules.py TREE

Ends with 0 if the tree keeps the rules, with 1 otherwise.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

# A room may include rooms on lower floors only.
FLOOR = {
    "base": 1,
    "kernel": 2,
    "text": 2,
    "wire": 2,
    "cluster": 3,
    "forest": 4,
    "protocol": 5,
    "formats": 5,
    "sim": 6,
    "live": 6,
    "observe": 7,
    "steer": 7,
    "group": 8,
    "train": 8,
    "place": 8,
    "fabric": 8,
    "study": 9,
    "cli": 10,
    "bindings": 10,
}

# Rooms of one thread: who drives them brings threads and locks (README.md of src/protocol).
# Their tests are left out where threads are looked at (CMakeLists.txt).
ONE_THREAD = set(pathlib.Path(__file__).with_name("one_thread.txt").read_text().split())
THREADS = {"atomic", "condition_variable", "future", "mutex", "pthread.h", "semaphore", "shared_mutex", "thread"}

LONGEST_FILE = 600  # lines; past this a file is two files
LONGEST_README = 24  # lines: a room is explained on one screen

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD_HEADER = re.compile(r"[a-z_0-9]+|std(def|int)\.h")  # no suffix, no folder: <vector>; C's own in the C face
# What has no linkage: sanitizers and the linter compile several files of a room at once, so its names are the room's.
NAMELESS = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
DEFINED = re.compile(
    r"^(?=\w)(?!return\b)(?:template <[^\n]*>\n)?"
    r"(?:(?:struct|class|union|enum(?: class)?) (?P<type>\w+)[^;()]*?\{"
    r"|using (?P<alias>\w+) =(?P<target>[^;]*);"
    r"|[\w:<>,&* \[\]()]*?[ &*>](?P<name>\w+)(?:\[[^\]]*\])*"
    r"(?: =| ?\{|\((?P<parameters>(?:[^()]|\([^()]*\))*)\)[\w ]*\{))", re.MULTILINE)
USING_NAME = re.compile(r"^ *using (?:::)?(?:\w+::)+(\w+);", re.MULTILINE)
HEADER_CONSTANT = re.compile(r"^inline constexpr [\w:<>, ]+? (\w+)(?:\[[^\]]*\])*(?: =|\{)", re.MULTILINE)
# A test, or a macro, type or function by which tests may be skipped, at its beginning.
BEGINS = re.compile(r"TEST(?:_F|_P)?\((?P<suite>\w+), (?P<case>\w+)\)|(?:#define|class|struct) (?P<thing>\w+)|[^(]*?(?P<function>\w+)\(")
NOT_ROOT = re.compile(r"if \(gete?uid\(\)[^;]*\) return;")
SOURCE_SUFFIXES = {".h", ".cc", ".py", ".sh"}
# A file of code that prose names; not one whose name is a placeholder (src/cli/NAME.cc).
NAMED_FILE = re.compile(r"(?<![\w./<>{}*~-])((?:[\w.-]+/)*\w[\w.-]*\.(?:h|cc|c|py|sh|md))(?![\w/*-])(?!\.\w)")
PLACEHOLDER = re.compile(r"\bNAME\b")
MADE_HERE = re.compile(r"<!-- file: (\S+) -->")  # a document's own samples, which tests/package writes and runs
THEIRS = {"doc/PERFORMANCE.md", "src/graph/topo.h"}  # of nccl-tests and NCCL
# Spelled in pieces, so that this file does not break its own rule.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w./-])/wor" + r"k/|\.\./shar" + r"ed"),
    "unfinished work": re.compile(r"\bTO" + r"DO\b"),
}


def files_of(tree):
    """Paths relative to the tree: what git tracks or would add, or every file where there is no repository."""
    if (tree / ".git").exists():
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=tree, check=True, capture_output=True, text=True).stdout
        names = sorted({pathlib.PurePath(name) for name in listing.split("\0") if name})
        return [name for name in names if (tree / name).is_file() or (tree / name).is_symlink()]
    return sorted(path.relative_to(tree) for path in tree.rglob("*") if path.is_file() or path.is_symlink())


def room_of(path):
    """The room a file belongs to, or None: src/kernel/reduce.h is of kernel, everything in bindings of bindings."""
    if path.parts[0] == "src" and len(path.parts) > 2:
        return path.parts[1]
    return "bindings" if path.parts[0] == "bindings" else None


def includes_in(text):
    """Yields (line number, quote character, what is included)."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def check_floors(path, text):
    room = room_of(path)
    if room is None or path.suffix not in (".h", ".cc"):
        return
    for number, _, header in includes_in(text):
        other = header.split("/")[0]
        if "/" not in header or other not in FLOOR or other == room:
            continue
        if FLOOR.get(room, 0) <= FLOOR[other]:
            yield number, f"{room} (floor {FLOOR.get(room, 0)}) may not include {other} (floor {FLOOR[other]})"


def check_public_header(path, text):
    if path.parts[:2] != ("include", "talweg"):
        return
    for number, quote, header in includes_in(text):
        fine = STANDARD_HEADER.fullmatch(header) if quote == "<" else header.startswith("talweg/")
        if not fine:
            yield number, f"a public header includes {header}: only talweg/ and the standard library are for users"


def check_threads(path, text):
    if path.parts[0] not in ("src", "tests") or path.suffix not in (".h", ".cc"):
        return
    part = re.sub(r"(_test)?\.(h|cc)$", "", "/".join(path.parts[1:]))  # a room, or one subject of it
    if path.parts[1] not in ONE_THREAD and part not in ONE_THREAD:
        return
    for number, _, header in includes_in(text):
        if header in THREADS:
            yield number, f"{path.parts[1]} has one thread and no use for <{header}>"


def check_length(path, text):
    lines = text.count("\n")
    if path.name == "README.md" and room_of(path) and lines > LONGEST_README:
        yield lines, f"a room's README.md has at most {LONGEST_README} lines"
    if path.suffix in SOURCE_SUFFIXES and lines > LONGEST_FILE:
        yield lines, f"longer than {LONGEST_FILE} lines: this file is two files"


def check_words(_, text):
    for what, pattern in FORBIDDEN.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, f"{what}: {match[0]!r}"


def check_using(path, text):
    """The linter sees this where it reads a source by itself, not where it reads the sources of a room at once."""
    if path.suffix != ".cc":
        return
    code = re.sub(r"//[^\n]*", "", text)
    for match in USING_NAME.finditer(code):
        if not re.search(rf"(?<!::)\b{match[1]}\b", code[:match.start()] + code[match.end():]):
            yield code.count("\n", 0, match.start()) + 1, f"nothing uses `{match[0].strip()}`"


def nameless_in(text):
    """Yields (line number, name, what tells apart two things of this name that may live in one room, or None)."""
    for block in NAMELESS.finditer(text):
        for match in DEFINED.finditer(block[1]):
            line = text.count("\n", 0, block.start(1) + match.start()) + 1
            if match["parameters"] is not None:  # overloads: types without the parameters' names and defaults
                types = [re.sub(r"\s*\b\w+\s*(=.*)?$", "", " ".join(parameter.split()))
                         for parameter in re.split(r",(?![^<(]*[>)])", match["parameters"])]
                yield line, match["name"], ("function", ", ".join(types))
            elif match["alias"]:  # may be repeated
                yield line, match["alias"], ("alias", " ".join(match["target"].split()))
            else:
                yield line, match["type"] or match["name"], None


def clash(one, other):
    """Whether two things of one name cannot be compiled together: told apart as nameless_in says."""
    if one is None or other is None or one[0] != other[0]:
        return True
    return one[1] != other[1] if one[0] == "alias" else one[1] == other[1]


def check_nameless(texts):
    """Files that define the same name in namespaces without one, where both belong to one room, or one that a constant
    of the room's headers has. `texts`: by path."""
    known = {}
    for path, text in texts.items():
        if path.parts[0] == "src" and path.suffix == ".h":
            for match in HEADER_CONSTANT.finditer(text):
                known.setdefault((path.parts[:2], match[1]), []).append((path, None))
    for path, text in texts.items():
        if path.parts[0] not in ("src", "tests") or path.suffix != ".cc":
            continue
        for line, name, kind in nameless_in(text):
            others = known.setdefault((path.parts[:2], name), [])
            for other, other_kind in others:
                if other != path and clash(kind, other_kind):
                    yield path, line, f"{name} is also in {other}: a room's files are compiled together at times"
                    break
            others.append((path, kind))


def check_rooms(files):
    """Every folder of src/ and bindings/ that holds files has a floor and a README.md."""
    rooms = {path.parts[:2] for path in files if path.parts[0] in ("src", "bindings") and len(path.parts) > 2}
    for parts in sorted(rooms):
        folder = pathlib.PurePath(*parts)
        if parts[0] == "src" and parts[1] not in FLOOR:
            yield folder, 1, "this room has no floor"
        if folder / "README.md" not in files:
            yield folder, 1, "this room has no README.md"


def prose_of(path, text):
    """Yields (line number, line) of a document, or of comments in C and C++."""
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".md":
            yield number, line
        elif "//" in line:
            yield number, line[line.index("//") + 2:]


def check_named_files(texts, files):
    """Documents and comments that name files which are nowhere. A name may leave out the folders in front."""
    endings = {"/".join(path.parts[i:]) for path in files for i in range(len(path.parts))}
    for path, text in texts.items():
        if path.suffix not in (".md", ".h", ".cc", ".c"):
            continue
        made = set(MADE_HERE.findall(text))
        for number, line in prose_of(path, text):
            for name in NAMED_FILE.findall(line):
                plain = re.sub(r"^(\.\.?/)+", "", name)
                if plain not in endings and name not in made | THEIRS and not PLACEHOLDER.search(name):
                    yield path, number, f"{name}: there is no such file"


def check_named_headers(texts):
    """Headers that the README.md of their room does not name, with or without its ending."""
    for path in texts:
        if path.suffix != ".h" or room_of(path) is None:
            continue
        readme = pathlib.PurePath(*path.parts[:2], "README.md")
        words = {word for quoted in re.findall(r"`([^`]+)`", texts.get(readme, "")) for word in re.split(r"[ /,]", quoted)}
        if readme in texts and not words & {path.name, path.stem}:
            yield path, 1, f"{readme} does not name it"


def parts_of(text):
    """Yields (line number, match of BEGINS, text) of what begins in the first column of a C++ file."""
    line = 1
    for part in re.split(r"^(?=[#\w])", text, flags=re.MULTILINE):
        if match := BEGINS.match(part):
            yield line, match, part
        line += part.count("\n")


def skipping(text):
    """A pattern of what skips a test: GoogleTest's macro, or what of the file's own has it inside."""
    names = {match["thing"] or match["function"] for _, match, part in parts_of(text) if "GTEST_SKIP" in part}
    return re.compile(rf"\b(?:{'|'.join(sorted(names - {None}) + ['GTEST_SKIP'])})\b")


def check_skips(texts):
    """Tests that may be skipped and are in no line of skips.txt, and those that pass where they should be skipped."""
    skips = texts.get(pathlib.PurePath("tests", "skips.txt"), "")
    # Of a test with parameters any may be what is skipped: of PROGRAM.ANY/SUITE.CASE/PARAMETER only the last is left out.
    allowed = [re.sub(r"/\w+$", "", line.split()[0]) for line in skips.splitlines() if line and not line.startswith("#")]
    for path, text in texts.items():
        if path.parts[0] != "tests":
            continue
        if path.suffix == ".py" and re.search(r"skipTest\(|unittest\.skip", text) and "77 if outcome.skipped" not in text:
            yield path, 1, "what it skips passes: end it as tests/package/manual_test.py"
        if path.suffix != ".cc":
            continue
        skips_a_test = skipping(text)
        for line, match, part in parts_of(text):
            if early := NOT_ROOT.search(part):
                yield path, line + part.count("\n", 0, early.start()), "a test that needs root is skipped without it"
            name = f"{match['suite']}.{match['case']}"
            full_names = (f"any.{name}", f"any.any/{name}")
            if match["case"] and skips_a_test.search(part) and not any(
                    fnmatch.fnmatchcase(full, one) for full in full_names for one in allowed):
                yield path, line, f"{name} may be skipped, which skips.txt does not allow"


def violations(tree):
    """All violations in `tree` as a list of "file:line: text"."""
    tree = pathlib.Path(tree)
    files = files_of(tree)
    found = [(folder, line, text) for folder, line, text in check_rooms(set(files))]
    texts = {}
    for path in files:
        if (tree / path).is_symlink():  # it leads nowhere on another machine, or out of the tree
            found.append((path, 1, f"a symbolic link (to {(tree / path).readlink()})"))
            continue
        try:
            text = (tree / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and data
        texts[path] = text
        for check in (check_floors, check_public_header, check_threads, check_length, check_words,
                      check_using):
            found += [(path, line, message) for line, message in check(path, text)]
    found += check_nameless(texts)
    found += check_named_files(texts, files)
    found += check_named_headers(texts)
    found += check_skips(texts)
    return [f"{path}:{line}: {message}" for path, line, message in found]


if __name__ == "__main__":
    broken = violations(sys.argv[1])
    for line in broken:
        print(line)
    sys.exit(1 if broken else 0)
