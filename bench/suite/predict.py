"""How far the cost model's times are from measured ones: every planner at every size, on even and uneven networks."""
import json
import os
import statistics
import subprocess
import sys

import places
import report
from contestants import Contestant

LEAST_SIZE = 64 << 10  # below, wake-ups of the processor make most of the time
NETWORKS = {"even": lambda rank: 1000, "uneven": lambda rank: 1000 if rank % 2 == 0 else 200}
SLOWEST_SECONDS = 4  # predicted for one call; slower ones tell nothing that smaller sizes do not


def predictions(settings, place, sizes):
    """{size: {planner: predicted ms}} and {size: what a group takes}, of `talweg plan` on the network as it is."""
    with places.workspace() as folder:
        path = f"{folder}/cluster.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(place.cluster_yaml())
            if place.ranks > os.cpu_count():  # as a group adds by itself
                file.write(f"shared_cores: {os.cpu_count()}\n")
        done = subprocess.run([settings.build / "talweg", "plan", path, "--bytes", ",".join(map(str, sizes)), "--json", "-"],
                              capture_output=True, text=True, check=True)
    times, taken = {}, {}
    for line in json.loads(done.stdout)["sizes"]:
        times[line["size_bytes"]] = {c["algorithm"]: c["predicted_us"] / 1e3 for c in line["candidates"]
                                     if "predicted_us" in c}
        taken[line["size_bytes"]] = line["taken"]
    return times, taken


def measured(runner, place, planner, size, settings):
    rounds = []
    for _ in range(settings.rounds):
        result = runner.measure(Contestant("talweg", planner), place, size, settings.seconds)
        if result.get("error") or result.get("wrong"):
            print(f"# {planner}, {report.size_name(size)}: {result.get('error') or 'wrong values'}", file=sys.stderr, flush=True)
            return None
        rounds.append(result["isolated"]["median_ms"])
    return statistics.median(rounds)


def error_text(error):
    return "-" if error is None else f"{error:+.0%}"


def run_network(network, ranks, runner, settings):
    sizes = [size for size in settings.sizes if size >= LEAST_SIZE]
    records, rows = [], []
    with places.star([NETWORKS[network](rank) for rank in range(ranks)]) as place:
        predicted, taken = predictions(settings, place, sizes)
        planners = list(predicted[sizes[0]])
        for size in sizes:
            row = [report.size_name(size)]
            times = {}
            for planner in planners:
                expected = predicted[size].get(planner)
                if expected is None or expected > 1e3 * SLOWEST_SECONDS:
                    row.append("-")
                    continue
                time_ms = measured(runner, place, planner, size, settings)
                error = None if time_ms is None else expected / time_ms - 1
                row.append(error_text(error))
                if time_ms is None:
                    continue
                times[planner] = time_ms
                records.append({"scenario": "predict", "network": network, "ranks": ranks, "bytes": size,
                                "planner": planner, "predicted_ms": expected, "measured_ms": time_ms, "error": error})
            # What the choice cost: the measured time of what is taken over the best measured one.
            regret = times[taken[size]] / min(times.values()) if taken[size] in times else None
            rows.append(row + [taken[size], report.ratio(regret)])
            print(f"# predict, {network}, {ranks} ranks: {'  '.join(rows[-1])}", file=sys.stderr, flush=True)
    title = (f"predicted over measured time - 1, all_reduce, float32 sum, {ranks} ranks, {network} links; "
             f"{settings.rounds} rounds; regret = measured time of what is taken / of the quickest")
    report.table(title, ["size"] + planners + ["taken", "regret"], rows)
    if records:
        errors = sorted(abs(record["error"]) for record in records)
        print(f"# predict, {network}, {ranks} ranks: median error {statistics.median(errors):.0%}, "
              f"nine in ten within {errors[int(0.9 * (len(errors) - 1))]:.0%}, {len(errors)} pairs", flush=True)
    return records


def run(ranks, runner, settings):
    return [record for network in NETWORKS for record in run_network(network, ranks, runner, settings)]
