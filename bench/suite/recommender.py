"""A recommendation model in the lab, on links of 100 Mbit/s: a step with its gradients whole, over gloo and over Talweg, and in
the forms that send less (examples/train_recommender.py). A form's gain counts only with the loss that it comes to."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import report
from rows import pick, row

ROOT = pathlib.Path(__file__).resolve().parents[2]
MBIT = 100
STEPS = 60
# (backend, form): how much quicker than gloo a step is to be, and how much of what gloo's training gains may be missing.
CONTESTANTS = {("gloo", "dense"): None, ("talweg", "dense"): None, ("talweg", "auto"): (2, 0.01), ("talweg", "int8"): (2, 0.05),
               ("talweg", "block_top_k"): (2, 0.25)}
UNTRAINED = 0.6931  # the loss of who knows nothing: ln 2
SAID = re.compile(r": (\d+\.\d+), (\d+\.\d+) ms a step")


def network(ranks):
    links = [{"between": [f"h{rank}", "sw"], "capacity": f"{MBIT}Mbit/s", "latency": "30us"} for rank in range(ranks)]
    return {"nodes": [{"name": f"h{rank}", "kind": "worker"} for rank in range(ranks)] + [{"name": "sw", "kind": "switch"}],
            "links": links}


def measure(settings, ranks, backend, form):
    """{"ms", "loss"}, or {"failed"}."""
    program = settings.build / "talweg"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(settings.build / "python")}
    with tempfile.TemporaryDirectory(prefix="talweg-recommender") as folder:
        cluster = pathlib.Path(folder) / "network.yaml"
        cluster.write_text(json.dumps(network(ranks)))
        done = subprocess.run([program, "lab", "run", cluster, "--timeout", "600s", "--", settings.python,
                               ROOT / "examples" / "train_recommender.py", "--backend", backend, "--send", form, "--steps", str(STEPS)],
                              capture_output=True, text=True, env=environment)
    said = SAID.search(done.stdout)
    if done.returncode != 0 or not said:
        return {"failed": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    return {"loss": float(said[1]), "ms": float(said[2])}


def run(ranks, settings):
    results = {contestant: [] for contestant in CONTESTANTS}
    for _ in range(settings.rounds):
        for backend, form in CONTESTANTS:
            results[backend, form].append(measure(settings, ranks, backend, form))
    records, lines = [], []
    for (backend, form), rounds in results.items():
        good = [r for r in rounds if "failed" not in r]
        record = {"scenario": "recommender", "ranks": ranks, "backend": backend, "form": form, "rounds": rounds,
                  "failed": next((r["failed"] for r in rounds if "failed" in r), ""),
                  "ms": statistics.median(r["ms"] for r in good) if good else None,
                  "loss": statistics.median(r["loss"] for r in good) if good else None}
        records.append(record)
        lines.append([f"{backend} {form}", report.milliseconds(record["ms"]),
                      record["failed"] or f"{record['loss']:.4f} after {STEPS} steps"])
    report.table(f"a step of a recommendation model, {ranks} ranks, links of {MBIT} Mbit/s; median ms", ["sent", "ms", "loss"], lines)
    return records


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        gloo = pick(records, ranks=n, backend="gloo", form="dense") or {}
        for (backend, form), asked in CONTESTANTS.items():
            if asked is None:
                continue
            ours = pick(records, ranks=n, backend=backend, form=form) or {}
            gain, slack = asked
            both = bool(ours.get("ms") and gloo.get("ms"))
            ratio = gloo["ms"] / ours["ms"] if both else None
            missing = (ours["loss"] - gloo["loss"]) / (UNTRAINED - gloo["loss"]) if both and gloo["loss"] < UNTRAINED else None
            yield row(f"recommender/{n}/{form}", f"a step with embeddings, {n} ranks, {MBIT} Mbit/s, {form}",
                      f"{gain}x as quick as gloo, loss within {100 * slack:.0f} % of the gain", f"recommender --ranks {n}", ratio, "x gloo",
                      both and missing is not None and ratio >= gain and missing <= slack,
                      "peer gloo failed" if ours.get("ms") and not gloo.get("ms") else "",
                      note=f"{report.milliseconds(ours['ms'])} ms, gloo {report.milliseconds(gloo['ms'])} ms; loss {ours['loss']:.4f}, "
                           f"gloo {gloo['loss']:.4f}" if both else "", failed=ours.get("failed", ""))
