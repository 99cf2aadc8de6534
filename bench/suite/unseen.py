"""Three times of what is taken on networks that nothing was set on: the cost model's, the packet simulator's, and the lab's.
Stars, leaf-spines and meshes are drawn as those of `drawn`, at rates that two cores can carry.

All three read one file: its buckets hold what the lab's hold, and its processors cost what two ranks on links without a
limit take here. Each time is that of the slowest rank, of calls back to back after one that warms up."""
import collections
import json
import os
import pathlib
import subprocess
import tempfile

import drawn
import predict
import report
from rows import row

KINDS = ("star", "leaf-spine", "mesh")
WORKERS = (4, 8, 16, 32)
SEED = 31
SIZES = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
ALL_MBIT = 1000  # of the quickest links of all hosts together: what ranks that share two cores can send
SPREAD = 8  # the quickest link over the slowest
BURST_BYTES = 128 << 10  # the lab's least
QUEUE_BYTES = 4 * BURST_BYTES
SLOWEST_MS = 6000  # predicted for one call; longer ones are left out
TOGETHER_MS = 2000  # of the timed calls
LEAST_CALLS, MOST_CALLS = 3, 20
# As the lab: a limit in front of each link, no marks, Linux's least timer.
SWITCHES = ["--processors", "tcp", "--queue", QUEUE_BYTES, "--mark", "0", "--least-rto", "200ms"]
SLOWEST_RANK = ["--average", "max"]


def network(kind, seed, workers, processor):
    """A cluster file's text. Each number of workers has a network of its own."""
    cluster = drawn.Draw(kind, f"{seed}/{workers}", workers, (ALL_MBIT / SPREAD / workers, ALL_MBIT / workers)).cluster()
    for link in cluster["links"]:
        link["burst"] = f"{BURST_BYTES >> 10}KiB"
    if workers > os.cpu_count():
        cluster["shared_cores"] = os.cpu_count()  # as a group adds by itself
    return f'{json.dumps(cluster)[:-1]}, "processor": {processor}}}\n'  # JSON is YAML, too


def lab_ms(program, cluster, size, planner, calls):
    """(of one call out of place, as simulate has it, or None; an error's last line)."""
    with tempfile.TemporaryDirectory(prefix="talweg-unseen") as folder:
        result = pathlib.Path(folder) / "result.json"
        words = ["-b", size, "-e", size, "-w", 1, "-n", calls, *SLOWEST_RANK, "--json", result]
        done = subprocess.run([program, "lab", "run", cluster, "--", program, "perf", "all_reduce", *map(str, words)],
                              capture_output=True, text=True, env=os.environ | {"TALWEG_ALGO": planner})
        if done.returncode != 0:
            return None, (done.stderr.strip().splitlines() or ["perf failed"])[-1]
        return json.loads(result.read_text())["results"][0]["out_of_place"]["time_us"] / 1e3, ""


def records_of(kind, seed, workers, processor, settings):
    with tempfile.TemporaryDirectory(prefix="talweg-unseen") as folder:
        cluster = pathlib.Path(folder) / "network.yaml"
        cluster.write_text(network(kind, seed, workers, processor))
        sizes = [size for size in settings.sizes if size in SIZES]
        for line in predict.talweg(settings, "plan", cluster, "--bytes", ",".join(map(str, sizes)))["sizes"]:
            size, planner = line["size_bytes"], line["taken"]
            predicted_ms = next(c["predicted_us"] for c in line["candidates"] if c["algorithm"] == planner) / 1e3
            calls = max(LEAST_CALLS, min(MOST_CALLS, int(TOGETHER_MS / predicted_ms)))
            found = {"scenario": "unseen", "kind": kind, "seed": seed, "ranks": workers, "bytes": size, "planner": planner,
                     "processor": processor, "calls": calls, "predicted_ms": predicted_ms, "simulated_ms": None, "measured_ms": None}
            if predicted_ms <= SLOWEST_MS:
                words = ["simulate", cluster, "--bytes", size, "--algo", planner, *SWITCHES, *SLOWEST_RANK, "--warmup", 1, "--iters", calls]
                found["simulated_ms"] = predict.talweg(settings, *words)["results"][0]["out_of_place"]["time_us"] / 1e3
                found["measured_ms"], failed = lab_ms(settings.build / "talweg", cluster, size, planner, calls)
                if failed:
                    print(f"# unseen, {kind} {seed} of {workers}, {report.size_name(size)}: {failed}", flush=True)
                else:
                    found |= predict.errors_of(found)
            yield found


def run(workers, runner, settings):
    processor = predict.processor_costs(runner, settings)
    print(f"# unseen, processors as measured between two ranks: {processor}", flush=True)
    records, lines = [], []
    for kind in KINDS:
        for seed in settings.seeds or [SEED]:
            for record in records_of(kind, seed, workers, processor, settings):
                records.append(record)
                times = (record[key] for key in ("predicted_ms", "simulated_ms", "measured_ms"))
                lines.append([f"{kind} {seed}", report.size_name(record["bytes"]), record["planner"],
                              *("-" if time is None else report.milliseconds(time) for time in times),
                              *(predict.error_text(record.get(key)) for _, key in predict.ERRORS.values())])
                print(f"# unseen, {workers} workers: {'  '.join(lines[-1])}", flush=True)
    report.table(f"all_reduce, {workers} workers, networks drawn: ms, and what they are apart; predicted above {SLOWEST_MS} ms: left out",
                 ["network", "size", "taken", "model", "simulator", "lab", *predict.ERRORS], lines)
    return records


def note_of(records, made, key, worst):
    sizes = collections.Counter(record["bytes"] for record in made)
    return f"{len(made)} of {len(records)} pairs ({', '.join(f'{n} of {report.size_name(size)}' for size, n in sorted(sizes.items()))}; " \
           f"a call is predicted above {SLOWEST_MS / 1e3:g} s in the others), worst {worst[key]:+.0%} ({worst['kind']} {worst['seed']} " \
           f"of {worst['ranks']}, {worst['planner']}, {report.size_name(worst['bytes'])}); calls back to back"


def rows(records, _):
    """See rows.py: of all networks and sizes, each two of the three times. Only a run of all kinds, workers and sizes counts."""
    asked = {(kind, workers, size) for kind in KINDS for workers in WORKERS for size in SIZES}
    if not asked <= {(record["kind"], record["ranks"], record["bytes"]) for record in records}:
        records = []
    seeds = sorted({record["seed"] for record in records})
    arguments = "unseen" if seeds in ([], [SEED]) else f"unseen --seeds {','.join(map(str, seeds))}"
    for who, (what, key) in predict.ERRORS.items():
        made = [record for record in records if key in record]
        missing = sum(record["simulated_ms"] is not None for record in records) - len(made)
        summary = predict.summary("all", made)[who] if made else None
        worst = summary and max(made, key=lambda record: abs(record[key]))
        yield row(f"unseen/{who}", f"{what}, drawn stars, leaf-spines and meshes of 4 to 32 workers: median error", predict.ASKED,
                  arguments, summary and 100 * summary["median"], "%",
                  summary and summary["median"] <= predict.MEDIAN and abs(summary["worst"]) <= predict.WORST,
                  note=note_of(records, made, key, worst) if summary else "", failed=f"{missing} gave no time" if missing else "")
