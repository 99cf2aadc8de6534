"""One rank of the scenario `replay`; prints one line of JSON on rank 0.

    replay_rank.py BACKEND MODEL STEPS FOLDER TALWEG

MODEL is one of MODELS; FOLDER holds step.yaml, the network, and gets job.yaml, trace.json and plan.json; TALWEG is the program.
Rank, size and rendezvous come from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

import torch
import torch.distributed as dist

import talweg.torch

BATCH = 16
TURNS = 3


def chain(*widths):
    return [layer for a, b in zip(widths, widths[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]


# Name: (layers, width of the input, DDP's bucket_cap_mb).
MODELS = {
    "demo": (lambda: [torch.nn.Linear(20, 256), torch.nn.ReLU(), *chain(256, 256, 256, 256), torch.nn.Linear(256, 5)], 20, 25),
    "many-small": (lambda: chain(*[64] * 101), 64, 0.1),
    "wide": (lambda: chain(512, 1024, 1024, 512), 512, 2),
}


def main():
    backend, name, steps, folder, program = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(backend)
    layers, width, cap = MODELS[name]
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers()), bucket_cap_mb=cap)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + dist.get_rank())
    inputs = torch.randn(BATCH, width)

    def step():
        start = time.perf_counter()
        optimiser.zero_grad()
        model(inputs).square().mean().backward()
        optimiser.step()
        return time.perf_counter() - start

    def turn(where=contextlib.nullcontext()):
        """The window's steps, without those that warm up and those that follow."""
        dist.barrier()
        with where:
            return [step() for _ in range(int(steps) + 6)][4:-2]

    recorded = talweg.torch.record(model, int(steps), 3, job=f"{folder}/job.yaml", trace=f"{folder}/trace.json")
    turn()
    turn(recorded)
    predicted = plan = None
    if dist.get_rank() == 0:
        predicted = predict(program, folder, cap, backend)
        with contextlib.suppress(OSError), open(f"{folder}/plan.json", encoding="utf-8") as file:
            plan = json.load(file)
    box = [plan]
    dist.broadcast_object_list(box, src=0)
    times = {"plain": [], "recorded": [], "planned": []}
    for _ in range(TURNS):
        times["plain"] += turn()
        times["recorded"] += turn(talweg.torch.record(model, int(steps), 3, job=None))
        if box[0] is not None:
            talweg.torch.apply_plan(model, box[0])
            times["planned"] += turn()
            talweg.torch.apply_plan(model, None)
            step()  # in which DDP settles its own buckets
    kept = None
    if box[0] is not None:
        with talweg.torch.try_plan(model, box[0], turns=TURNS) as trial:
            while not trial.done:
                step()
        kept = trial.kept
    if dist.get_rank() == 0:
        print(json.dumps({"wrong": 0, "job": recorded.job, "predicted": predicted, "kept": kept,
                          **{f"{k}_ms": 1e3 * statistics.median(v) if v else None for k, v in times.items()}}), flush=True)
    dist.destroy_process_group()


def predict(program, folder, cap, backend):
    """What `talweg predict` says of the job: on this network, or, since the times of a network are those of Talweg's collectives,
    by the transfers that it has recorded over another backend. None where it says nothing."""
    network = ["--cluster", f"{folder}/step.yaml"] if backend == "talweg" else []
    done = subprocess.run([program, "predict", f"{folder}/job.yaml", *network, "-n", os.environ["WORLD_SIZE"], "--bucket-cap",
                           str(int(cap * 2**20)), "--json", "-", "-o", f"{folder}/plan.json"], capture_output=True, text=True, check=False,
                          env={name: value for name, value in os.environ.items() if name != "TALWEG_CLUSTER"})  # fmt: skip
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    found = json.loads(done.stdout)
    return {"replayed_us": found["replayed_us"], "plan_of": found["plan_of"],
            "step_us": {row["name"]: row.get("step_us") for row in found["strategies"]}}


if __name__ == "__main__":
    main()
