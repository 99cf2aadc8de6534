"""How soon traces of training are read, and in how much memory."""
import statistics

import report
from programs import built, lines_of
from rows import row

MB = 1024
SPEED, MEMORY = 300, 100  # MB/s, MB


def run(settings):
    program = built(settings, "traces", "train_bench")
    if program is None:
        return []
    rounds = [lines_of(program, str(MB))[0] for _ in range(settings.rounds)]
    record = {"scenario": "traces", "MB_per_s": statistics.median(r["MB_per_s"] for r in rounds),
              "MB_per_cpu_s": statistics.median(r["MB_per_cpu_s"] for r in rounds),
              "peak_memory_MB": max(r["peak_memory_MB"] for r in rounds), "rounds": rounds}
    report.table(f"a Kineto trace of {MB} MB", ["MB/s", "MB per CPU second", "peak MB"],
                 [[f"{record['MB_per_s']:.0f}", f"{record['MB_per_cpu_s']:.0f}", f"{record['peak_memory_MB']:.0f}"]])
    return [record]


def rows(records, _):
    """See rows.py."""
    record = records[-1] if records else {}
    speed, memory = record.get("MB_per_s"), record.get("peak_memory_MB")
    yield row("traces/speed", f"a Kineto trace of {MB} MB: read at", f"{SPEED} MB/s", "traces", speed, "MB/s",
              speed and speed >= SPEED, note=f"{record['MB_per_cpu_s']:.0f} MB a CPU second" if speed else "")
    yield row("traces/memory", f"a Kineto trace of {MB} MB: memory", f"at most {MEMORY} MB", "traces", memory, "MB",
              memory and memory <= MEMORY)
