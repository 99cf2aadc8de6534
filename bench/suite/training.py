"""The PyTorch scenarios: dist.all_reduce and a DDP step, gloo against talweg, in namespaces of 1 Gbit/s."""
import pathlib
import statistics
import sys
import tempfile

import contestants
import places
import report

BACKENDS = ("gloo", "talweg")
PORT = "29500"  # inside namespaces of our own, so nobody else has it
BUCKETS_MB = {"as DDP chooses (25 MB)": "25", "many small (0.25 MB)": "0.25"}
DDP_STEPS = 15


def measure(python, place, job, backend, first, second):
    with tempfile.TemporaryDirectory(prefix="talweg-bench-", dir="/dev/shm") as folder:
        script = pathlib.Path(__file__).parent / "torch_rank.py"
        environment = {"WORLD_SIZE": str(place.ranks), "MASTER_ADDR": place.address(0), "MASTER_PORT": PORT,
                       "GLOO_SOCKET_IFNAME": place.interface, "TALWEG_SOCKET_IFNAME": place.interface,
                       "OMP_NUM_THREADS": "1"}
        if backend == "talweg":
            environment |= contestants.talweg_environment(place, folder)
        return contestants.run_all(
            [place.prefix(r) + ["env", f"RANK={r}", python, str(script), job, backend, f"{folder}/board", first,
                                second] for r in range(place.ranks)], environment)


def take_turns(python, place, job, first, second, rounds):
    results = {backend: [] for backend in BACKENDS}
    for _ in range(rounds):
        for backend in BACKENDS:
            result = measure(python, place, job, backend, first, second)
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


def run_torch(ranks, python, settings):
    size, least = 4096, 20
    with places.star([1000] * ranks) as place:
        results = take_turns(python, place, "all_reduce", str(size), str(settings.seconds), settings.rounds)
    rows, records = [], []
    for mode in ("isolated", "stream"):
        gloo, ours = (median(results[b], mode) for b in BACKENDS)
        gain = quotient(gloo, ours)
        rows.append([mode, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(gain), f">= {least}",
                     verdict(gain, least) if mode == settings.mode else "-"])
        records.append({"scenario": "torch", "ranks": ranks, "bytes": size, "mode": mode, "gloo_ms": gloo,
                        "talweg_ms": ours})
    report.table(f"PyTorch dist.all_reduce, {report.size_name(size)}, {ranks} ranks, namespaces of 1 Gbit/s; median ms",
                 ["mode", "gloo", "talweg", "gloo / talweg", "target", "verdict"], rows)
    return records


def run_ddp(ranks, python, settings):
    rows, records = [], []
    with places.star([1000] * ranks) as place:
        for name, megabytes in BUCKETS_MB.items():
            results = take_turns(python, place, "ddp", megabytes, str(DDP_STEPS), settings.rounds)
            gloo, ours = (median(results[b], "isolated") for b in BACKENDS)
            gain = quotient(gloo, ours)
            least = 0.98 if megabytes == "25" else 1.1
            rows.append([name, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(gain),
                         f">= {least}", verdict(gain, least)])
            records.append({"scenario": "ddp", "ranks": ranks, "bucket_mb": megabytes, "gloo_ms": gloo,
                            "talweg_ms": ours})
    report.table(f"DDP step, 5 million parameters, {ranks} ranks, namespaces of 1 Gbit/s; median ms of a step",
                 ["buckets", "gloo", "talweg", "gloo / talweg", "target", "verdict"], rows)
    return records
