"""How soon traces of training are read, and in how much memory; how soon a step is predicted from one."""
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import report
from programs import built, lines_of
from rows import row

MB = 1024
SPEED, MEMORY = 300, 100  # MB/s, MB
EVENTS, PREDICTED = 100_000, 2  # of a trace, and seconds for the whole of talweg predict on it
LAYERS = (160, 3000)


def predicted(settings, program, layers):
    """Of `talweg predict` on a trace of EVENTS events in steps of so many layers: the medians of its seconds, by the clock and
    of the processor."""
    with tempfile.TemporaryDirectory(prefix="talweg-traces") as folder:
        trace = pathlib.Path(folder) / "trace.json"
        events = lines_of(program, "write", str(layers), str(EVENTS), str(trace))[0]["events"]
        walls, cpus = [], []
        for _ in range(settings.rounds):
            begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([settings.build / "talweg", "predict", trace, "--alpha-beta", "50us,0.1ns/B", "-n", "8"],
                           stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            walls.append(time.monotonic() - begun)
            cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"layers": layers, "events": events, "seconds": statistics.median(walls), "cpu_seconds": statistics.median(cpus)}


def run(settings):
    program = built(settings, "traces", "train_bench")
    if program is None:
        return []
    rounds = [lines_of(program, str(MB))[0] for _ in range(settings.rounds)]
    record = {"scenario": "traces", "MB_per_s": statistics.median(r["MB_per_s"] for r in rounds),
              "MB_per_cpu_s": statistics.median(r["MB_per_cpu_s"] for r in rounds),
              "peak_memory_MB": max(r["peak_memory_MB"] for r in rounds), "rounds": rounds,
              "predicted": [predicted(settings, program, layers) for layers in LAYERS]}
    report.table(f"a Kineto trace of {MB} MB", ["MB/s", "MB per CPU second", "peak MB"],
                 [[f"{record['MB_per_s']:.0f}", f"{record['MB_per_cpu_s']:.0f}", f"{record['peak_memory_MB']:.0f}"]])
    report.table(f"talweg predict on a Kineto trace of about {EVENTS} events", ["layers", "events", "s", "CPU s"],
                 [[str(p["layers"]), str(p["events"]), f"{p['seconds']:.2f}", f"{p['cpu_seconds']:.2f}"]
                  for p in record["predicted"]])
    return [record]


def rows(records, _):
    """See rows.py."""
    record = records[-1] if records else {}
    speed, memory = record.get("MB_per_s"), record.get("peak_memory_MB")
    yield row("traces/speed", f"a Kineto trace of {MB} MB: read at", f"{SPEED} MB/s", "traces", speed, "MB/s",
              speed and speed >= SPEED, note=f"{record['MB_per_cpu_s']:.0f} MB a CPU second" if speed else "")
    yield row("traces/memory", f"a Kineto trace of {MB} MB: memory", f"at most {MEMORY} MB", "traces", memory, "MB",
              memory and memory <= MEMORY)
    known = {p["layers"]: p for p in record.get("predicted", [])}
    for layers in LAYERS:
        its = known.get(layers, {})
        seconds = its.get("cpu_seconds")  # it has one thread: by the clock where nobody else is there
        yield row(f"traces/predict/{layers}", f"talweg predict on a Kineto trace of 10^5 events, steps of {layers} layers: seconds of a processor",
                  f"under {PREDICTED} s", "traces", seconds, "s", seconds and seconds < PREDICTED,
                  note=f"{its['seconds']:.2f} s by the clock, {its['events']} events" if its else "")
