"""Tables for people, JSON for programs, and the facts about the machine that both need."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

import contestants

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WRITTEN = ("bench/results", "docs/measured.md", "README.md")
BUSY = 0.25  # load per core above which others' work shows in the medians


def size_name(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def milliseconds(value):
    if value is None:
        return "-"
    return f"{value:.4f}" if value < 1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def ratio(value):
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(title, header, rows):
    """Aligned columns; the first is left-aligned. `header` and `rows` hold text."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())
    print(flush=True)


def package_version(name):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True)
    return done.stdout or "absent"


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def torch_version(python):
    if not python:
        return "absent"
    ask = "from importlib.metadata import version; print(version('torch'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() or "absent"


def commit():
    """The last that changed more than what recording writes, with "-dirty" where something is not committed."""
    def git(*words):
        words = ["git", *words, "--", ".", *(f":!{path}" for path in WRITTEN)]
        return subprocess.run(words, capture_output=True, text=True, cwd=ROOT).stdout.strip()

    last = git("log", "-1", "--format=%h")
    return (last or "unknown") + ("-dirty" if git("status", "--porcelain") else "")


def facts(python):
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "congestion_control": "cubic (machine's default: "
                              + pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() + ")",
        "gloo": package_version("libgloo-dev"),
        "open_mpi": contestants.open_mpi_version(),
        "ns_3": package_version("libns3-dev"),
        "pytorch": torch_version(python),
        "talweg": commit(),
    }


def print_facts(known):
    print("# " + ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in known.items()), flush=True)
    if known["load"] > BUSY * known["cores"]:
        print("# the machine is busy, see load: verdicts mean little", flush=True)


def write_json(folder, name, known, records, rows):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"machine": known, "rows": rows, "records": records}, indent=1) + "\n")
    print(f"# written: {path}", flush=True)
