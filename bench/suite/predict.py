"""How far the cost model's and the packet simulator's times are from measured ones: every planner at every size, on
even and uneven networks. Both read the same description of the network, and take the same costs of processors.

Calls back to back are what is predicted: a token bucket then meets each batch of calls full and most calls empty. Where
only single calls are measured (see bench/peers/measure.cc), every call finds it full."""
import json
import os
import statistics
import subprocess
import sys

import places
import report
from contestants import Contestant
from rows import row

LEAST_SIZE = 64 << 10  # below, wake-ups of the processor make most of the time
# Name: (Mbit/s of a rank, KiB of bursts, for which numbers of ranks; None: all others). No constant of the model or the
# simulator was fitted on `unseen`.
NETWORKS = {"even": (lambda rank: 1000, places.BURST_KIB, None),
            "uneven": (lambda rank: 1000 if rank % 2 == 0 else 200, places.BURST_KIB, None),
            "unseen": (lambda rank: 300, 32, 6)}
SLOWEST_SECONDS = 4  # predicted for one call; slower ones tell nothing that smaller sizes do not
LONG = 8 << 20
BATCH = 8  # calls back to back, as bench/peers/measure.cc makes them
MOST_STREAM = 16 << 20  # above, it measures single calls only
# What the lab's hosts and switches are: a limit in front of each link, no marking, Linux's least timer, and buckets that
# fill while values are written and checked.
LAB = ["--processors", "tcp", "--queue", str(places.LIMIT_BYTES), "--mark", "0", "--least-rto", "200ms", "--rest", "20ms",
       "--average", "max"]


def networks(ranks):
    special = {only for _, _, only in NETWORKS.values()}
    return [name for name, (_, _, only) in NETWORKS.items() if only == ranks or only is None and ranks not in special]


def processor_costs(runner, settings):
    """What TCP costs a processor here, for a cluster file: of two ranks on links without a limit, by the cost model's
    formulas for a call that is all messages (each rank sends one and gets one) and one that is all bytes. The quickest of
    the calls counts: what else the machine did is no cost of theirs."""
    with places.star([0, 0]) as place:
        short, long = (runner.measure(Contestant("talweg", planner), place, size, settings.seconds)
                       for planner, size in (("one_hop", 4), ("ring", LONG)))
    for result in (short, long):
        if result.get("error"):
            raise SystemExit(f"predict: costs of processors: {result['error']}")
    latency_ms = 2 * float(places.LATENCY.removesuffix("us")) / 1e3
    message_ms = max(short["isolated"]["min_ms"] - latency_ms, 0) / 2
    bits_per_ms = 2 * 8 * LONG / long["stream"]["min_ms"]
    return f"{{message: {1e6 * message_ms:.0f}ns, copy: {bits_per_ms / 1e6:.3f}Gbit/s}}"


def write_cluster(place, folder):
    """The network as it is, with what a group adds by itself."""
    path = f"{folder}/cluster.yaml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(place.cluster_yaml())
        if place.ranks > os.cpu_count():
            file.write(f"shared_cores: {os.cpu_count()}\n")
    return path


def talweg(settings, *words):
    done = subprocess.run([settings.build / "talweg", *map(str, words), "--json", "-"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"talweg {' '.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def predictions(settings, cluster, sizes):
    """{size: {planner: predicted ms}} and {size: what a group takes}, of `talweg plan`."""
    times, taken = {}, {}
    for line in talweg(settings, "plan", cluster, "--bytes", ",".join(map(str, sizes)))["sizes"]:
        times[line["size_bytes"]] = {c["algorithm"]: c["predicted_us"] / 1e3 for c in line["candidates"]
                                     if c.get("predicted_us", 1e6 * SLOWEST_SECONDS) < 1e6 * SLOWEST_SECONDS}
        taken[line["size_bytes"]] = line["taken"]
    return times, taken


def simulations(settings, cluster, size, planners):
    """{planner: simulated ms}, of `talweg simulate`."""
    calls = ["--warmup", 1, "--iters", BATCH if size <= MOST_STREAM else 1]
    rows = talweg(settings, "simulate", cluster, "--bytes", size, "--algo", ",".join(planners), *LAB, *calls)["results"]
    return {planner: row["out_of_place"]["time_us"] / 1e3 for planner, row in zip(planners, rows, strict=True)}


def measured(runner, place, planner, size, settings):
    rounds = []
    for _ in range(settings.rounds):
        result = runner.measure(Contestant("talweg", planner), place, size, settings.seconds)
        if result.get("error") or result.get("wrong"):
            print(f"# {planner}, {report.size_name(size)}: {result.get('error') or 'wrong values'}", file=sys.stderr, flush=True)
            return None
        rounds.append(result.get("stream", result["isolated"])["median_ms"])
    return statistics.median(rounds)


def error_text(error):
    return "-" if error is None else f"{error:+.0%}"


# Who is compared with whom, what that is called in a row, and where a record has the error.
ERRORS = {"model": ("the model's predicted time against the measured one", "error"),
          "simulator": ("the simulator's predicted time against the measured one", "simulation_error"),
          "model-simulator": ("the model's predicted time against the simulator's", "error_of_simulation")}
MEDIAN, WORST = 0.08, 0.25  # what the three times of a planner at a size may be apart
ASKED = f"median within {MEDIAN:.0%}, worst within {WORST:.0%}"


def errors_of(record):
    """What the three times of a record are apart, by the keys of ERRORS."""
    model, simulator, lab = (record[key] for key in ("predicted_ms", "simulated_ms", "measured_ms"))
    return {"error": model / lab - 1, "simulation_error": simulator / lab - 1, "error_of_simulation": model / simulator - 1}


def summary(planner, records):
    """Of one planner's records, or of all: the median of |error| and the worst error of each comparison."""
    line = {"planner": planner, "pairs": len(records)}
    for who, (_, key) in ERRORS.items():
        errors = [record[key] for record in records if record["measured_ms"]]
        line[who] = {"median": statistics.median(map(abs, errors)), "worst": max(errors, key=abs)} if errors else None
    return line


def summaries(network, ranks, planners, records, settings):
    found = [summary(planner, [r for r in records if r["planner"] == planner]) for planner in planners]
    found.append(summary("all", records))
    lines = []
    for one in found:
        line = [one["planner"], str(one["pairs"])]
        for who in ERRORS:
            line += [f"{one[who]['median']:.0%}", error_text(one[who]["worst"])] if one[who] else ["-", "-"]
        lines.append(line)
    report.table(f"error of predicted times, all_reduce, {ranks} ranks, {network} links, {settings.rounds} rounds; "
                 "median of its size, and the worst",
                 ["planner", "pairs", *(word for who in ERRORS for word in (f"{who} median", "worst"))], lines)
    return [{"scenario": "predict summary", "network": network, "ranks": ranks} | one for one in found]


def run_network(network, ranks, processor, runner, settings):
    sizes = [size for size in settings.sizes if size >= LEAST_SIZE]
    records, choices, lines = [], [], []
    rate, burst_kib, _ = NETWORKS[network]
    with places.star([rate(rank) for rank in range(ranks)], burst_kib) as place:
        place.processor = processor
        with places.workspace() as folder:
            cluster = write_cluster(place, folder)
            predicted, taken = predictions(settings, cluster, sizes)
            simulated = {size: simulations(settings, cluster, size, list(predicted[size])) for size in sizes}
        planners = list(predicted[sizes[0]])
        for size in sizes:
            line = [report.size_name(size)]
            times = {}
            for planner in planners:
                expected = predicted[size].get(planner)
                if expected is None:
                    line.append("-")
                    continue
                time_ms = measured(runner, place, planner, size, settings)
                simulated_ms = simulated[size][planner]
                records.append({"scenario": "predict", "network": network, "ranks": ranks, "bytes": size,
                                "planner": planner, "processor": processor, "predicted_ms": expected, "simulated_ms": simulated_ms,
                                "measured_ms": time_ms})
                if time_ms is None:
                    line.append("-")
                    continue
                records[-1] |= errors_of(records[-1])
                line.append("/".join(error_text(records[-1][key]) for key in ("error", "simulation_error")))
                times[planner] = time_ms
            # What the choice cost: the measured time of what is taken over the best measured one.
            regret = times[taken[size]] / min(times.values()) if taken[size] in times else None
            if regret:
                choices.append({"scenario": "predict choice", "network": network, "ranks": ranks, "bytes": size,
                                "taken": taken[size], "best": min(times, key=times.get), "regret": regret})
            lines.append(line + [taken[size], report.ratio(regret)])
            print(f"# predict, {network}, {ranks} ranks: {'  '.join(lines[-1])}", file=sys.stderr, flush=True)
    title = (f"time by the model / by the simulator over the measured one - 1, all_reduce, float32 sum, {ranks} ranks, "
             f"{network} links; {settings.rounds} rounds; regret = measured time of what is taken / of the quickest")
    report.table(title, ["size"] + planners + ["taken", "regret"], lines)
    return records + choices + (summaries(network, ranks, planners, records, settings) if records else [])


def run(ranks, runner, settings):
    processor = processor_costs(runner, settings)
    print(f"# predict, processors as measured between two ranks: {processor}", flush=True)
    return [record for network in networks(ranks) for record in run_network(network, ranks, processor, runner, settings)]


def rows(records, ranks):
    """See rows.py: of each network model, simulator and lab against each other. Errors are of all planners at all sizes."""
    places_of = {(network, n) for n in ranks for network in networks(n)}
    pairs = [record for record in records if record["scenario"] == "predict" and record["measured_ms"]]
    if {(record["network"], record["ranks"]) for record in pairs} >= places_of:
        for who, (what, key) in ERRORS.items():
            medians = [100 * statistics.median(abs(r[key]) for r in pairs if (r["network"], r["ranks"]) == place)
                       for place in places_of]
            yield row(f"predict/all/{who}", f"{what}: median error, the worst of {len(medians)} networks", "", "predict --rounds 1",
                      max(medians), "%", note=f"{min(medians):.0f} to {max(medians):.0f} % by network")
    for n in ranks:
        for network in networks(n):
            same = [record for record in records if (record["network"], record["ranks"]) == (network, n)]
            asked = [record for record in same if record["scenario"] == "predict"]
            pairs = [record for record in asked if record["measured_ms"]]
            failed = f"{len(asked) - len(pairs)} of {len(asked)} pairs gave no time" if len(pairs) < len(asked) else ""
            rate, burst_kib, _ = NETWORKS[network]
            where = f"{n} ranks, {', '.join(dict.fromkeys(f'{rate(r)}' for r in range(n)))} Mbit/s, bursts of {burst_kib} KiB"
            for who, (what, key) in ERRORS.items():
                first_words = f"predict/{network}/{n}/{who}", f"{what}, {where}: median error", ASKED, f"predict --ranks {n} --rounds 1"
                if not pairs:
                    yield row(*first_words, failed=failed)
                    continue
                errors = [record[key] for record in pairs]
                median, worst = statistics.median(map(abs, errors)), max(pairs, key=lambda record: abs(record[key]))
                largest = max(record["bytes"] for record in pairs)
                there = statistics.median(abs(record[key]) for record in pairs if record["bytes"] == largest)
                yield row(*first_words, 100 * median, "%", median <= MEDIAN and abs(worst[key]) <= WORST,
                          note=f"{len(pairs)} pairs, worst {worst[key]:+.0%} ({worst['planner']}, {report.size_name(worst['bytes'])}), "
                          f"at {report.size_name(largest)} {there:.0%}", failed=failed)
            choices = [record for record in same if record["scenario"] == "predict choice"]
            if worst := max(choices, key=lambda record: record["regret"], default=None):
                yield row(f"predict/{network}/{n}/regret", f"what was chosen over the quickest planner, {where}: the worst size", "",
                          f"predict --ranks {n} --rounds 1", worst["regret"], "x",
                          note=f"at {report.size_name(worst['bytes'])}: {worst['taken']}, {worst['best']} is best")
