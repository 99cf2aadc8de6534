"""The PyTorch scenarios: dist.all_reduce, all collectives and a DDP step, gloo against talweg, in namespaces of 1 Gbit/s."""
import pathlib
import statistics
import sys

import contestants
import places
import report
from rows import NOT_SLOWER, pick, row, size_word

BACKENDS = ("gloo", "talweg")
PORT = "29500"  # inside namespaces of our own, so nobody else has it
# (what the table calls it, layers x width : bucket in MB, least gain over gloo). The second is what models with many
# small layers do to DDP: 150 buckets of 16 KiB.
MODELS = [("5.0 million parameters, DDP's own buckets", "40x352:25", 0.98),
          ("0.6 million parameters, 150 small buckets", "150x64:0.01", 1.2)]
DDP_STEPS = 15
TORCH_BYTES, TORCH_GAIN = 4096, 20
NEW_GROUPS = 20  # of all ranks, one after the other
# (mode, what it is in words, at most how many ms)
NEW_GROUP = [("made", "dist.new_group of all ranks", 4.5), ("first", f"the first all_reduce of a new group, {report.size_name(TORCH_BYTES)}", 1.25)]
NOT_SLOWER_THAN_GLOO = [("scatter", 1 << 20)]  # (collective, bytes)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter")
COLLECTIVE_BYTES = [16 << 10, 256 << 10, 1 << 20, 8 << 20]  # of the whole vector


def measure(settings, place, job, backend, first, second, more=None):
    """The rank's JSON as a dict. `more` goes into the environment."""
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
                                first, second] for r in range(place.ranks)], environment | (more or {}))


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


def run_torch(ranks, settings):
    with places.star([1000] * ranks) as place:
        calls = take_turns(settings, place, "all_reduce", str(TORCH_BYTES), str(settings.seconds))
        groups = take_turns(settings, place, "new_group", str(TORCH_BYTES), str(NEW_GROUPS))
    lines, records = [], []
    for mode, results in [("isolated", calls), ("stream", calls)] + [(mode, groups) for mode, _, _ in NEW_GROUP]:
        gloo, ours = (median(results[b], mode) for b in BACKENDS)
        lines.append([mode, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(quotient(gloo, ours))])
        records.append({"scenario": "torch", "ranks": ranks, "bytes": TORCH_BYTES, "mode": mode, "gloo_ms": gloo,
                        "talweg_ms": ours, "rounds": results})
    report.table(f"PyTorch dist.all_reduce, {report.size_name(TORCH_BYTES)}, and groups; {ranks} ranks, namespaces of 1 Gbit/s; median ms",
                 ["mode", "gloo", "talweg", "gloo / talweg"], lines)
    return records


def run_collectives(ranks, settings):
    lines, records = [], []
    with places.star([1000] * ranks) as place:
        for size in COLLECTIVE_BYTES:
            results = take_turns(settings, place, "collectives", str(size), str(settings.seconds))
            good = {b: [r["median_ms"] for r in results[b] if "error" not in r and not r["wrong"]] for b in BACKENDS}
            for name in (good["talweg"] or good["gloo"] or [{}])[0]:
                gloo, ours = (statistics.median(r[name] for r in good[b]) if good[b] else None for b in BACKENDS)
                lines.append([name, report.size_name(size), report.milliseconds(gloo), report.milliseconds(ours),
                             report.ratio(quotient(gloo, ours))])
                records.append({"scenario": "collectives", "ranks": ranks, "operation": name, "bytes": size,
                                "gloo_ms": gloo, "talweg_ms": ours})
    lines.sort(key=lambda line: line[0])
    report.table(f"PyTorch's collectives, {ranks} ranks, namespaces of 1 Gbit/s; median ms of the slowest rank",
                 ["operation", "whole vector", "gloo", "talweg", "gloo / talweg"], lines)
    return records


def run_ddp(ranks, settings):
    lines, records = [], []
    with places.star([1000] * ranks) as place:
        for name, model, _ in MODELS:
            results = take_turns(settings, place, "ddp", model, str(DDP_STEPS))
            gloo, ours = (median(results[b], "isolated") for b in BACKENDS)
            lines.append([name, report.milliseconds(gloo), report.milliseconds(ours), report.ratio(quotient(gloo, ours))])
            records.append({"scenario": "ddp", "ranks": ranks, "model": model, "gloo_ms": gloo, "talweg_ms": ours,
                            "rounds": results})
    report.table(f"DDP step, {ranks} ranks, namespaces of 1 Gbit/s; median ms of a step",
                 ["model", "gloo", "talweg", "gloo / talweg"], lines)
    return records


def over_gloo(key, what, target, least, arguments, record):
    """A row of how much longer gloo takes; `record` has gloo_ms and talweg_ms, None where nothing came of it."""
    ours, gloo = (record.get(f"{who}_ms") if record else None for who in ("talweg", "gloo"))
    return row(key, what, target, arguments, quotient(gloo, ours), "x gloo", ours and gloo and gloo >= least * ours,
               "peer gloo failed" if ours and not gloo else "",
               note=f"{report.milliseconds(ours)} ms, gloo {report.milliseconds(gloo)} ms" if ours and gloo else "",
               failed="every round failed" if record and not ours else "")


def torch_rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for mode in ("isolated", "stream"):
            words = f"PyTorch dist.all_reduce, {n} ranks, 1 Gbit/s, {report.size_name(TORCH_BYTES)}, "
            yield over_gloo(f"torch/{n}/{mode}", words + ("isolated" if mode == "isolated" else "calls back to back"),
                            f"{TORCH_GAIN}x as quick as gloo", TORCH_GAIN, f"torch --ranks {n}", pick(records, ranks=n, mode=mode))
        for mode, words, most in NEW_GROUP:
            record = pick(records, ranks=n, mode=mode) or {}
            ours, gloo = record.get("talweg_ms"), record.get("gloo_ms")
            yield row(f"torch/{n}/new_group/{mode}", f"PyTorch, {n} ranks, 1 Gbit/s: {words}", f"at most {most} ms", f"torch --ranks {n}",
                      ours, met=ours and ours <= most, peer=("gloo", gloo) if gloo else None,
                      failed="every round failed" if record and not ours else "")


def collectives_rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for name in COLLECTIVES:
            for size in COLLECTIVE_BYTES:
                yield over_gloo(f"collectives/{n}/{name}/{size_word(size)}",
                                f"PyTorch's {name}, {n} ranks, 1 Gbit/s, {report.size_name(size)}",
                                "not slower than gloo" if (name, size) in NOT_SLOWER_THAN_GLOO else "", 1 / NOT_SLOWER,
                                f"collectives --ranks {n} --rounds 1", pick(records, ranks=n, operation=name, bytes=size))


def ddp_rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for name, model, least in MODELS:
            yield over_gloo(f"ddp/{n}/{model}", f"a DDP step, {n} ranks, 1 Gbit/s, {name}", f"{least}x as quick as gloo", least,
                            f"ddp --ranks {n}", pick(records, ranks=n, model=model))
