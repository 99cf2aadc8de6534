"""How near `talweg predict` comes to the DDP steps that talweg.torch.record has seen, over gloo and talweg: what the model of a
step makes of the recorded job, and what it predicts from the layers and the network alone. Besides, what recording costs, and
what the plan of the prediction gains."""
import pathlib
import statistics
import sys

import contestants
import places
import report
from rows import NOT_SLOWER, row
from training import BACKENDS, PORT

STEPS = 12
MODEL_NAMES = ("demo", "many-small", "wide")  # of replay_rank.py
NETWORKS = {"100 Mbit/s": lambda rank: 100, "300 Mbit/s": lambda rank: 300,
            "300 and 100 Mbit/s": lambda rank: 300 if rank % 2 == 0 else 100}
MOST_OFF, MOST_COST = 0.1, 0.02


def measure(settings, place, backend, model):
    with places.workspace() as folder:
        pathlib.Path(folder, "step.yaml").write_text(place.cluster_yaml(), encoding="utf-8")
        environment = {"WORLD_SIZE": str(place.ranks), "MASTER_ADDR": place.address(0), "MASTER_PORT": PORT,
                       "GLOO_SOCKET_IFNAME": place.interface, "TALWEG_SOCKET_IFNAME": place.interface,
                       "OMP_NUM_THREADS": "1", "PYTHONPATH": str(settings.build / "python"),
                       **contestants.talweg_environment(place, folder)}
        script = pathlib.Path(__file__).parent / "replay_rank.py"
        return contestants.run_all(
            [place.prefix(r) + ["env", f"RANK={r}", settings.python, str(script), backend, model, str(STEPS), folder,
                                str(settings.build / "talweg")] for r in range(place.ranks)], environment)


def off(predicted_us, measured_ms):
    return predicted_us / 1e3 / measured_ms - 1 if predicted_us and measured_ms else None


def record_of(result, **where):
    """What rows and tables need of one run."""
    measured = result["job"]["step"] / 1e6
    predicted = result["predicted"] or {"replayed_us": None, "step_us": {}}
    return {"scenario": "replay", **where, "step_ms": measured, "plain_ms": result["plain_ms"],
            "cost": result["recorded_ms"] / result["plain_ms"] - 1,
            "replayed_off": off(predicted["replayed_us"], measured), "ddp_off": off(predicted["step_us"].get("ddp"), measured),
            "gain": result["plain_ms"] / result["planned_ms"] if result["planned_ms"] else None}


def run(ranks, settings):
    records, lines = [], []
    for network, rate in NETWORKS.items():
        with places.star([rate(r) for r in range(ranks)]) as place:
            for backend in BACKENDS:
                for model in MODEL_NAMES:
                    where = {"ranks": ranks, "network": network, "backend": backend, "model": model}
                    result = measure(settings, place, backend, model)
                    if "error" in result:
                        print(f"# replay {where}: {result['error']}", file=sys.stderr)
                        records.append({"scenario": "replay", **where, "error": result["error"]})
                        continue
                    records.append(one := record_of(result, **where))
                    lines.append([network, backend, model, report.milliseconds(one["plain_ms"]), report.milliseconds(one["step_ms"]),
                                  *(percent(one[key]) for key in ("cost", "replayed_off", "ddp_off")), report.ratio(one["gain"])])
    report.table(f"DDP steps recorded on {ranks} ranks; median ms", ["network", "backend", "model", "step", "recorded", "cost",
                 "played back", "predicted", "plan's gain"], lines)  # fmt: skip
    return records


def percent(value):
    return "-" if value is None else f"{100 * value:+.1f} %"


# What is asked of all networks and models together: (of a record, words, target, what counts of the cases, whether it is enough).
ASKED = [("replayed_off", "played back by the model of a step, the worst", f"within {MOST_OFF:.0%}", lambda values: max(values, key=abs),
          lambda value: abs(value) <= MOST_OFF),
         ("ddp_off", "predicted from its layers and the network, the worst", f"within {MOST_OFF:.0%}",
          lambda values: max(values, key=abs), lambda value: abs(value) <= MOST_OFF),
         ("cost", "what recording costs, the median", f"at most {MOST_COST:.0%}", statistics.median, lambda value: value <= MOST_COST),
         ("gain", "DDP's own buckets over the plan of talweg predict, the least", "not slower", min,
          lambda value: value * NOT_SLOWER >= 1)]  # fmt: skip


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        for backend in BACKENDS:
            cases = [one for one in records if one["ranks"] == n and one["backend"] == backend]
            failed = next((one["error"] for one in cases if "error" in one), "")
            for part, words, target, chosen, enough in ASKED:
                values = [one[part] for one in cases if one.get(part) is not None]
                value = chosen(values) if values else None
                shown, unit = (value, "x") if part == "gain" or value is None else (100 * value, "%")
                if part == "ddp_off" and backend != "talweg":
                    target = ""  # the network's times are those of Talweg's collectives
                yield row(f"replay/{n}/{backend}/{part}", f"DDP steps of {len(MODEL_NAMES)} models on {len(NETWORKS)} networks, {n} ranks over "
                          f"{backend}: {words}", target, f"replay --ranks {n}", shown, unit, values and enough(value), failed=failed)
