"""Training of 8 workers beside bursts of other hosts, simulated: sums of which a part may be lost, against reliable ones over
transports as DCTCP, pFabric, PIAS and NDP have them. An iteration computes and then adds up all gradients: nothing overlaps."""
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from rows import NOT_SLOWER, pick, row

import report

SCALE = 64  # gradients and computing are so many times smaller than those of the models, by which a run takes minutes
# Parameters, of 4 bytes, and ms of an iteration's computing: batches of 32 at some 380 and 230 images a second, as a V100 has them.
MODELS = {"ResNet-50": (25.6e6, 84), "VGG-16": (138.4e6, 139)}
NETWORK = "leaf-spine:leaves=4,hosts=4,spines=2,rate=100G,up=100G"  # two links of a leaf to the spines, as MLT's testbed has them
WORKERS = ["h0", "h1", "h4", "h5", "h8", "h9", "h12", "h13"]
OTHERS = ["h2", "h3", "h6", "h7", "h10", "h11", "h14", "h15"]
VICTIMS = ["h0", "h8"]  # to which all others send
RATE = "1Gbit/s"  # on average, from each other host to each of these
# How long bursts are says how bad the tail is: 99th percentile over the median of what a ring over dctcp takes for ResNet-50's gradients.
BURSTS = {1.5: "1500KB", 3: "16MB"}
TAIL_NEAR = 0.25  # as a part of it
PROBES, ITERATIONS = 400, 100
WARM_UP = 20  # calls that lose nothing, of which bounded sums learn how long they take
SEED = 1
# The authors' sizes, scaled as the gradients are.
DEMOTE = ",".join(str(packets * 1460 // SCALE) for packets in (759, 1132, 1456, 1737, 2010, 2199, 2325))
TRANSPORTS = {"dctcp": [], "pfabric": [], "pias": ["--demote", DEMOTE], "ndp": []}
ALGORITHMS = {"ring": "ring", "packed": "packed", "direct": "sharded_star"}
# Its packets take all ways in turn, as MLT's do.
BOUNDED = ["--routing", "spray"]
# With classes they say how soon and how much they are needed, and switches are those that can be bought: eight strict priorities, and
# queues that drop what is droppable where they mark the rest. All layers are one bucket, which is in the middle of the model, as for the
# hook of PyTorch. What other hosts send is best effort. Rows are of those without: it is they that end sooner.
SWITCHES, CLASSES, DEPTH, BEST_EFFORT = ["--priorities", "8"], {"queues": 4, "droppable": 0.5}, 0.5, 4
PARTS = (0.1, 0.05)  # that may be missing; rows are of the first, with which MLT was evaluated
MOST_GROWTH, SPEED_UP = 3, 1.84


def workload(model, tail, algorithm, part, classes, iterations):
    parameters, compute_ms = MODELS[model]
    group = {"name": "training", "ranks": WORKERS, "repeat": WARM_UP + iterations,
             "steps": [{"compute": f"{compute_ms * 1e6 / SCALE:.0f}ns"},
                       {"op": "all_reduce", "bytes": f"{int(parameters / SCALE) * 4}", "algorithm": algorithm}]}
    burst = {"rate": RATE, "burst": BURSTS[tail]}
    if part:
        group["may_lose"] = str(part)
    if classes:
        group |= {name: str(value) for name, value in CLASSES.items()}
        group["steps"][1]["depth"] = str(DEPTH)
        burst["priority"] = BEST_EFFORT
    return {"groups": [group], "background": [{"from": other, "to": victim} | burst for other in OTHERS for victim in VICTIMS]}


def simulated(settings, model, tail, algorithm, transport, part=0, classes=False, iterations=ITERATIONS):
    """Milliseconds of each iteration, and of its sum, once the warm-up is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "workload.json"
        path.write_text(json.dumps(workload(model, tail, ALGORITHMS.get(algorithm, algorithm), part, classes, iterations)))
        command = [settings.build / "talweg", "simulate", "--topology", NETWORK, "--workload", path, "--transport", transport,
                   "--seed", str(SEED), "--json", "-", *(BOUNDED + SWITCHES * classes if part else TRANSPORTS[transport])]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    group = said["groups"][0]
    times = [time / 1e3 for time in group["iterations_us"][WARM_UP:]]
    sums = [time - MODELS[model][1] / SCALE for time in times]
    return {"mean_ms": statistics.mean(times), "p50_ms": statistics.median(times), "p99_ms": nth(times, 0.99),
            "sum_p50_ms": statistics.median(sums), "sum_p99_ms": nth(sums, 0.99), "iterations": len(times),
            "lost_part": group.get("lost_part"), "lost_important_part": group.get("lost_important_part"),
            "dropped": sum(said["report"]["dropped_by_priority"]), "timeouts": said["report"]["timeouts"]}


def nth(times, share):
    return sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]


def run(settings):
    contestants = [("bounded", "dctcp", part, False) for part in PARTS] + [("bounded", "dctcp", PARTS[0], True)]
    contestants += [(algorithm, transport, 0, False) for transport in TRANSPORTS for algorithm in ALGORITHMS]
    cases = [(model, tail, *contestant) for model in reversed(MODELS) for contestant in contestants for tail in BURSTS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        probes = {tail: pool.submit(simulated, settings, "ResNet-50", tail, "ring", "dctcp", iterations=PROBES) for tail in BURSTS}
        found = list(pool.map(lambda case: simulated(settings, *case), cases))
        tails = {tail: probe.result()["sum_p99_ms"] / probe.result()["sum_p50_ms"] for tail, probe in probes.items()}
    records = [{"scenario": "baselines", "ranks": len(WORKERS), "model": model, "tail": tail, "measured_tail": tails[tail],
                "algorithm": algorithm, "transport": transport, "part": part, "classes": classes} | said
               for (model, tail, algorithm, transport, part, classes), said in zip(cases, found)]
    for model in MODELS:
        for tail in BURSTS:
            lines = [[name_of(r), *(f"{r[key]:.3f}" for key in ("mean_ms", "p50_ms", "p99_ms", "sum_p50_ms", "sum_p99_ms")),
                      *("-" if r[key] is None else f"{r[key]:.2%}" for key in ("lost_part", "lost_important_part")), str(r["timeouts"])]
                     for r in records if (r["model"], r["tail"]) == (model, tail)]
            report.table(f"{model}, 1/{SCALE} of it, 8 workers of 100 Gbit/s beside bursts with a tail of {tail} ({tails[tail]:.2f} measured); "
                         "ms, simulated", ["sent by", "iteration", "p50", "p99", "sum p50", "p99", "lost", "important of it", "timeouts"], lines)
    return records


def name_of(record):
    if not record["part"]:
        return f"{record['algorithm']}, {record['transport']}"
    return f"bounded, {record['part']:.0%}" + (", with classes" if record["classes"] else "")


def rows(records, _):
    """See rows.py."""
    for model in MODELS:
        means = {}
        for tail in BURSTS:
            some = [r for r in records if (r["model"], r["tail"]) == (model, tail)]
            key, what = f"baselines/{model}/{tail}", f"{model}, 8 workers beside bursts with a tail of {tail}, simulated"
            yield row_of(some, f"{key}/iteration", f"{what}: mean iteration, the best that loses nothing over bounded loss ({PARTS[0]:.0%})",
                         "mean_ms")
            yield row_of(some, f"{key}/iteration-p99", f"{what}: 99th percentile of iterations, likewise", "p99_ms")
            yield row_of(some, f"{key}/sum-p99", f"{what}: 99th percentile of sums, likewise", "sum_p99_ms")
            means[tail] = {name_of(r): r["mean_ms"] for r in some}
        yield row_of([r for r in records if (r["model"], r["tail"]) == (model, max(BURSTS))], f"baselines/{model}/speed-up",
                     f"{model}, likewise, tail of {max(BURSTS)}: training with bounded loss, as fast as the best that loses nothing times",
                     "mean_ms", SPEED_UP)
        yield growth_row(model, means, doubt_of([r for r in records if r["model"] == model]))


def doubt_of(records):
    off = sorted({f"a tail of {r['tail']} came out as {r['measured_tail']:.2f}" for r in records
                  if abs(r["measured_tail"] / r["tail"] - 1) > TAIL_NEAR})
    return "; ".join(off)


def row_of(records, key, what, which, factor=1):
    ours = (pick(records, part=PARTS[0], classes=False) or {}).get(which)
    peers = {name_of(r): r[which] for r in records if not r["part"]}
    best = min(peers.items(), key=lambda item: item[1], default=None)
    ratio = best[1] / ours if ours and best else None
    least = factor if factor > 1 else 1 / NOT_SLOWER
    classed = pick(records, part=PARTS[0], classes=True)
    note = f"{ours:.3f} ms; best {best[0]} {best[1]:.3f} ms{f'; with classes {classed[which]:.3f} ms' if classed else ''}" if ratio else ""
    return row(key, what, f"{factor}x", "baselines", ratio, "x", ratio and ratio >= least, doubt_of(records), note=note)


def growth_row(model, means, doubt):
    low, high = (means[tail] for tail in sorted(BURSTS))
    grown = {name: 100 * (high[name] / low[name] - 1) for name in high}
    ours = grown.get(f"bounded, {PARTS[0]:.0%}")
    rings = [f"{name} {value:+.1f} %" for name, value in grown.items() if "bounded" not in name]
    return row(f"baselines/{model}/growth", f"{model}, 8 workers beside bursts, simulated: how much longer a mean iteration with bounded loss takes "
               f"where their tail is {max(BURSTS)} and not {min(BURSTS)}", f"at most {MOST_GROWTH} %", "baselines", ours, "%",
               ours is not None and ours <= MOST_GROWTH, doubt, note=", ".join(rings))
