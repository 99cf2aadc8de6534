"""What datagrams and flows of them carry over loopback, one core at each end, and how soon traces of training are read."""
import json
import statistics
import subprocess

import report
from rows import pick, row

# (what, protection): Gbit/s that a core must carry with offload and without; None: nothing is asked.
DATAGRAMS = {
    ("datagrams", "checksum"): (20, None),
    ("datagrams", "authenticated"): (8, None),
    ("flow", "checksum"): (20, 2.5),
    ("flow", "authenticated"): (8, None),
}
TRACE_MB = 1024
TRACE_SPEED, TRACE_MEMORY = 300, 100  # MB/s, MB


def lines_of(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {program}: {done.stderr.strip() or 'a byte was wrong'}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_datagrams(settings):
    program = settings.build / "bench" / "datagram_bench"
    rounds = [lines_of(program, "--json", str(settings.seconds)) for _ in range(settings.rounds)]
    records, lines = [], []
    for parts in zip(*rounds, strict=True):
        what, protection, offload = (parts[0][key] for key in ("what", "protection", "offload"))
        wall, core = (statistics.median(part[key] for part in parts) for key in ("Gbit_per_s", "Gbit_per_s_per_core"))
        records.append({"scenario": "datagrams", "what": what, "protection": protection, "offload": offload,
                        "Gbit_per_s": wall, "Gbit_per_s_per_core": core, "rounds": parts})
        lines.append([what, protection, "offload" if offload else "plain", f"{wall:.2f}", f"{core:.2f}"])
    report.table("datagrams over loopback, payloads of 1400 bytes; Gbit/s", ["what", "protection", "with", "measured", "per core"],
                 lines)  # fmt: skip
    return records


def datagram_rows(records, _):
    """See rows.py."""
    for (what, protection), asked in DATAGRAMS.items():
        for offload, least in zip((True, False), asked):
            if least is None:
                continue
            found = pick(records, what=what, protection=protection, offload=offload) or {}
            rate = found.get("Gbit_per_s")
            name = "a flow of datagrams" if what == "flow" else "datagrams"
            ways = "with offload" if offload else "without offload"
            yield row(f"datagrams/{what}/{protection}/{'offload' if offload else 'plain'}",
                      f"{name} over loopback, {protection}, {ways}, one core at each end", f"{least} Gbit/s", "datagrams", rate,
                      "Gbit/s", rate and rate >= least,
                      note=f"{found['Gbit_per_s_per_core']:.1f} for a whole core of the busier end" if rate else "")  # fmt: skip


def run_traces(settings):
    program = settings.build / "bench" / "train_bench"
    rounds = [lines_of(program, str(TRACE_MB))[0] for _ in range(settings.rounds)]
    record = {"scenario": "traces", "MB_per_s": statistics.median(r["MB_per_s"] for r in rounds),
              "MB_per_cpu_s": statistics.median(r["MB_per_cpu_s"] for r in rounds),
              "peak_memory_MB": max(r["peak_memory_MB"] for r in rounds), "rounds": rounds}
    report.table(f"a Kineto trace of {TRACE_MB} MB", ["MB/s", "MB per CPU second", "peak MB"],
                 [[f"{record['MB_per_s']:.0f}", f"{record['MB_per_cpu_s']:.0f}", f"{record['peak_memory_MB']:.0f}"]])
    return [record]


def trace_rows(records, _):
    """See rows.py."""
    record = records[-1] if records else {}
    speed, memory = record.get("MB_per_s"), record.get("peak_memory_MB")
    yield row("traces/speed", f"a Kineto trace of {TRACE_MB} MB: read at", f"{TRACE_SPEED} MB/s", "traces", speed, "MB/s",
              speed and speed >= TRACE_SPEED, note=f"{record['MB_per_cpu_s']:.0f} MB a CPU second" if speed else "")
    yield row("traces/memory", f"a Kineto trace of {TRACE_MB} MB: memory", f"at most {TRACE_MEMORY} MB", "traces", memory, "MB",
              memory and memory <= TRACE_MEMORY)
