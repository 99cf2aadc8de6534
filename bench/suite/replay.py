"""How near `talweg predict` comes to the DDP steps that talweg.torch.record has seen, over gloo and talweg: what the model of a
step makes of the recorded job, and what it predicts from the layers and the network alone, also for other networks and
numbers of ranks than those of the record. Besides, what recording costs, and what the plan of the prediction gains, by itself
and where talweg.torch.try_plan keeps it."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import contestants
import places
import report
from rows import NOT_SLOWER, row
from training import BACKENDS, PORT

STEPS = 12
CAPS_MB = {"demo": 25, "many-small": 0.1, "wide": 2}  # the models of replay_rank.py, and their DDP's bucket_cap_mb
NETWORKS = {"100 Mbit/s": lambda rank: 100, "300 Mbit/s": lambda rank: 300,
            "300 and 100 Mbit/s": lambda rank: 300 if rank % 2 == 0 else 100}
PATIENCE_SECONDS = 1200  # some three hundred steps, of a second each on the slowest network
MEDIAN_OFF, MOST_OFF, MOST_COST = 0.05, 0.1, 0.02


def measure(settings, place, backend, model):
    with places.workspace() as folder:
        pathlib.Path(folder, "step.yaml").write_text(place.cluster_yaml(), encoding="utf-8")
        environment = {"WORLD_SIZE": str(place.ranks), "MASTER_ADDR": place.address(0), "MASTER_PORT": PORT,
                       "GLOO_SOCKET_IFNAME": place.interface, "TALWEG_SOCKET_IFNAME": place.interface,
                       "OMP_NUM_THREADS": "1", "PYTHONPATH": str(settings.build / "python"),
                       **contestants.talweg_environment(place, folder)}
        script = pathlib.Path(__file__).parent / "replay_rank.py"
        result = contestants.run_all(
            [place.prefix(r) + ["env", f"RANK={r}", settings.python, str(script), backend, model, str(STEPS), folder,
                                str(settings.build / "talweg")] for r in range(place.ranks)], environment, PATIENCE_SECONDS)
        if "error" not in result:
            result["job_text"] = pathlib.Path(folder, "job.yaml").read_text(encoding="utf-8")
        return result


def predicted_elsewhere(settings, job_text, cluster_text, ranks, cap_mb):
    """A step of DDP in microseconds for a job that was recorded on another network, or with other ranks; None if there is none."""
    with tempfile.TemporaryDirectory(prefix="talweg-replay") as folder:
        job, cluster = pathlib.Path(folder, "job.yaml"), pathlib.Path(folder, "step.yaml")
        job.write_text(job_text, encoding="utf-8")
        cluster.write_text(cluster_text, encoding="utf-8")
        done = subprocess.run([settings.build / "talweg", "predict", job, "--cluster", cluster, "-n", str(ranks), "--bucket-cap",
                               str(int(cap_mb * 2**20)), "--strategy", "ddp", "--json", "-"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"# replay: {done.stderr.strip()}", file=sys.stderr)
        return None
    return next(found.get("step_us") for found in json.loads(done.stdout)["strategies"] if found["name"] == "ddp")


# What has been recorded so far over talweg: {(ranks, network, model): (the job's text, the network's, its plain step in ms)}.
SEEN = {}


def elsewhere(settings, ranks):
    """A record for each pair of networks with so many ranks, and for each smaller number on the same network."""
    for (there, to_network, model), (_, cluster_text, plain_ms) in SEEN.items():
        if there != ranks:
            continue
        for (n, network, other), (job_text, _, _) in SEEN.items():
            if other != model or (n == there) == (network == to_network) or n > there:
                continue
            step_us = predicted_elsewhere(settings, job_text, cluster_text, ranks, CAPS_MB[model])
            yield {"scenario": "replay", "ranks": ranks, "backend": "talweg", "model": model, "network": to_network,
                   "recorded_with": n, "recorded_on": network,
                   "elsewhere_off": off(step_us, plain_ms)}


def off(predicted_us, measured_ms):
    return predicted_us / 1e3 / measured_ms - 1 if predicted_us and measured_ms else None


def record_of(result, **where):
    """What rows and tables need of one run."""
    measured = result["job"]["step"] / 1e6
    predicted = result["predicted"] or {"replayed_us": None, "plan_of": "", "step_us": {}}
    gain = result["plain_ms"] / result["planned_ms"] if result["planned_ms"] else None
    before, after = (predicted["step_us"].get(name) for name in ("ddp", predicted["plan_of"]))
    # Against steps that nobody recorded: what a record leaves out it calls overhead, so that it always adds up to its own.
    return {"scenario": "replay", **where, "step_ms": measured, "plain_ms": result["plain_ms"],
            "cost": result["recorded_ms"] / result["plain_ms"] - 1,
            "played_back_off": off(predicted["replayed_us"], result["plain_ms"]),
            "predicted_off": off(predicted["step_us"].get("ddp"), result["plain_ms"]),
            "plan_of": predicted["plan_of"],
            "gain": gain, "kept": {True: gain, False: 1, None: None}[result["kept"]],
            "gain_off": gain / (before / after) - 1 if gain and before and after else None}


def run(ranks, settings):
    records, lines = [], []
    for network, rate in NETWORKS.items():
        with places.star([rate(r) for r in range(ranks)]) as place:
            for backend in BACKENDS:
                for model in CAPS_MB:
                    where = {"ranks": ranks, "network": network, "backend": backend, "model": model}
                    result = measure(settings, place, backend, model)
                    if "error" in result:
                        print(f"# replay {where}: {result['error']}", file=sys.stderr)
                        records.append({"scenario": "replay", **where, "error": result["error"]})
                        continue
                    if backend == "talweg":
                        SEEN[ranks, network, model] = (result["job_text"], place.cluster_yaml(), result["plain_ms"])
                    records.append(one := record_of(result, **where))
                    lines.append([network, backend, model, report.milliseconds(one["plain_ms"]), report.milliseconds(one["step_ms"]),
                                  *(percent(one[key]) for key in ("cost", "played_back_off", "predicted_off")), report.ratio(one["gain"]),
                                  percent(one["gain_off"])])
    report.table(f"DDP steps recorded on {ranks} ranks; median ms", ["network", "backend", "model", "step", "recorded", "cost",
                 "played back", "predicted", "plan's gain", "over predicted"], lines)  # fmt: skip
    others = list(elsewhere(settings, ranks))
    report.table(f"DDP steps of {ranks} ranks over talweg, predicted from records of another network or fewer ranks",
                 ["network", "model", "recorded on", "ranks", "predicted"],
                 [[one["network"], one["model"], one["recorded_on"], str(one["recorded_with"]), percent(one["elsewhere_off"])]
                  for one in others])  # fmt: skip
    return records + others


def percent(value):
    return "-" if value is None else f"{100 * value:+.1f} %"


def median_size(values):
    return statistics.median(map(abs, values))


def farthest(values):
    return max(values, key=abs)


# What is asked of all networks and models together:
# (the row's key, of a record, words, target, what counts of the cases, whether it is enough).
ASKED = [("played_back_off/median", "played_back_off", "played back by the model of a step, the median of how far it is off steps that "
          "were not recorded", f"within {MEDIAN_OFF:.0%}", median_size, lambda value: value <= MEDIAN_OFF),
         ("played_back_off", "played_back_off", "played back by the model of a step, the worst off steps that were not recorded",
          f"within {MOST_OFF:.0%}", farthest, lambda value: abs(value) <= MOST_OFF),
         ("predicted_off", "predicted_off", "predicted from its layers and the network, the worst off steps that were not recorded",
          f"within {MOST_OFF:.0%}", farthest, lambda value: abs(value) <= MOST_OFF),
         ("elsewhere_off/median", "elsewhere_off", "predicted from records of another network or fewer ranks, the median of how far it "
          "is off", f"within {MOST_OFF:.0%}", median_size, lambda value: value <= MOST_OFF),
         ("cost", "cost", "what recording costs, the median", f"at most {MOST_COST:.0%}", statistics.median,
          lambda value: value <= MOST_COST),
         ("cost/worst", "cost", "what recording costs, the worst", "", max, lambda value: True),
         ("gain_off", "gain_off", "the gain of the plan of talweg predict against the predicted gain, the worst",
          f"within {MOST_OFF:.0%}", farthest, lambda value: abs(value) <= MOST_OFF),
         ("gain", "gain", "DDP's own buckets over the plan of talweg predict, the least", "not slower", min,
          lambda value: value * NOT_SLOWER >= 1),
         # Where the plan was not kept these are the same: measuring the one twice would only tell how far two runs differ.
         ("kept", "kept", "DDP's own buckets over what try_plan() leaves in place, the plan or again DDP's own, the least", "not slower",
          min, lambda value: value * NOT_SLOWER >= 1)]  # fmt: skip


def values_of(part, cases):
    """(the values, what went wrong, a note). Every case must have one: of few that came to anything nothing is to be said of all.
    `talweg predict` always has a plan; where that is of DDP's own buckets, the predicted gain is exactly 1, and there is nothing
    that it could be off."""
    asked = [one for one in cases if ("recorded_with" in one) == (part == "elsewhere_off")]
    own = [one for one in asked if part == "gain_off" and one.get("plan_of") == "ddp"]
    asked = [one for one in asked if one not in own]
    values = [one[part] for one in asked if one.get(part) is not None]
    failed = f"{len(asked) - len(values)} of {len(asked)} cases gave none" if len(values) < len(asked) else ""
    back = sum(value == 1 for value in values) if part == "kept" else 0
    return values, failed, (f"without {len(own)} whose plan is DDP's own buckets" if own else
                            f"{back} of {len(values)} plans were put back, which count as 1" if back else "")


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for backend in BACKENDS:
            cases = [one for one in records if one["ranks"] == n and one["backend"] == backend]
            error = next((one["error"] for one in cases if "error" in one), "")
            for key, part, words, target, chosen, enough in ASKED:
                # Over gloo, times are fitted to the transfers that were recorded, and say nothing of another network.
                if part == "elsewhere_off" and backend != "talweg":
                    continue
                values, failed, note = values_of(part, cases)
                value = chosen(values) if values else None
                shown, unit = (value, "x") if part in ("gain", "kept") or value is None else (100 * value, "%")
                yield row(f"replay/{n}/{backend}/{key}", f"DDP steps of {len(CAPS_MB)} models on {len(NETWORKS)} networks, {n} ranks over "
                          f"{backend}: {words}", target, f"replay --ranks {n}", shown, unit, values and enough(value), note=note,
                          failed=error or (failed if target else ""))
