"""The PyTorch scenarios: dist.all_reduce, all collectives and a DDP step, gloo against talweg, in namespaces of 1 Gbit/s."""
import pathlib
import statistics
import sys

import contestants
import places
import report

BACKENDS = ("gloo", "talweg")
PORT = "29500"  # inside namespaces of our own, so nobody else has it
# (what the table calls it, layers x width : bucket in MB, least gain over gloo). The second is what models with many
# small layers do to DDP: 150 buckets of 16 KiB.
MODELS = [("5.0 million parameters, DDP's own buckets", "40x352:25", 0.98),
          ("0.6 million parameters, 150 small buckets", "150x64:0.01", 1.2)]
DDP_STEPS = 15
COLLECTIVE_BYTES = [16 << 10, 256 << 10, 1 << 20, 8 << 20]  # of the whole vector


def measure(settings, place, job, backend, first, second):
    with places.workspace() as folder:
        script = pathlib.Path(__file__).parent / "torch_rank.py"
        environment = {"WORLD_SIZE": str(place.ranks), "MASTER_ADDR": place.address(0), "MASTER_PORT": PORT,
                       "GLOO_SOCKET_IFNAME": place.interface, "TALWEG_SOCKET_IFNAME": place.interface,
                       "OMP_NUM_THREADS": "1"}
        if backend == "talweg":
            environment["PYTHONPATH"] = str(settings.build / "python")
            environment |= contestants.talweg_environment(place, folder)
        return contestants.run_all(
            [place.prefix(r) + ["env", f"RANK={r}", settings.python, str(script), job, backend, f"{folder}/board",
                                first, second] for r in range(place.ranks)], environment)


def take_turns(settings, place, job, first, second):
    results = {backend: [] for backend in BACKENDS}
    for _ in range(settings.rounds):
        for backend in BACKENDS:
            result = measure(settings, place, job, backend, first, second)
            if "error" in result or result["wrong"]:
                print(f"# PyTorch {job} with {backend}: {result.get('error', 'wrong values')}", file=sys.stderr)
            results[backend].append(result)
    return results


def median(results, mode):
    good = [r[mode]["median_ms"] for r in results if "error" not in r and not r["wrong"]]
    return statistics.median(good) if good else None


def quotient(above, below):
    return above / below if above and below else None


def verdict(value, least):
    return "-" if value is None else "PASS" if value >= least else "MISS"


def run_torch(ranks, settings):
    size, least = 4096, 20
    with places.star([1000] * ranks) as place:
        results = take_turns(settings, place, "all_reduce", str(size), str(settings.seconds))
    rows, records = [], []
    for mode in ("isolated", "stream"):
        gloo, ours = (median(results[b], mode) for b in BACKENDS)
        gain = quotient(gloo, ours)
        rows.append([mode, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(gain), f">= {least}",
                     verdict(gain, least) if mode == settings.mode else "-"])
        records.append({"scenario": "torch", "ranks": ranks, "bytes": size, "mode": mode, "gloo_ms": gloo,
                        "talweg_ms": ours, "rounds": results})
    report.table(f"PyTorch dist.all_reduce, {report.size_name(size)}, {ranks} ranks, namespaces of 1 Gbit/s; median ms",
                 ["mode", "gloo", "talweg", "gloo / talweg", "target", "verdict"], rows)
    return records


def run_collectives(ranks, settings):
    rows, records = [], []
    with places.star([1000] * ranks) as place:
        for size in COLLECTIVE_BYTES:
            results = take_turns(settings, place, "collectives", str(size), str(settings.seconds))
            good = {b: [r["median_ms"] for r in results[b] if "error" not in r and not r["wrong"]] for b in BACKENDS}
            for name in (good["talweg"] or good["gloo"] or [{}])[0]:
                gloo, ours = (statistics.median(r[name] for r in good[b]) if good[b] else None for b in BACKENDS)
                rows.append([name, report.size_name(size), report.milliseconds(gloo), report.milliseconds(ours),
                             report.ratio(quotient(gloo, ours))])
                records.append({"scenario": "collectives", "ranks": ranks, "operation": name, "bytes": size,
                                "gloo_ms": gloo, "talweg_ms": ours})
    rows.sort(key=lambda row: row[0])
    report.table(f"PyTorch's collectives, {ranks} ranks, namespaces of 1 Gbit/s; median ms of the slowest rank",
                 ["operation", "whole vector", "gloo", "talweg", "gloo / talweg"], rows)
    return records


def run_ddp(ranks, settings):
    rows, records = [], []
    with places.star([1000] * ranks) as place:
        for name, model, least in MODELS:
            results = take_turns(settings, place, "ddp", model, str(DDP_STEPS))
            gloo, ours = (median(results[b], "isolated") for b in BACKENDS)
            gain = quotient(gloo, ours)
            rows.append([name, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(gain),
                         f">= {least}", verdict(gain, least)])
            records.append({"scenario": "ddp", "ranks": ranks, "model": model, "gloo_ms": gloo, "talweg_ms": ours,
                            "rounds": results})
    report.table(f"DDP step, {ranks} ranks, namespaces of 1 Gbit/s; median ms of a step",
                 ["model", "gloo", "talweg", "gloo / talweg", "target", "verdict"], rows)
    return records
