"""Whole programs: the example, torchrun, and programs that end as they should not."""

import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path

from switched import program, served_switch

LIMIT_S = 250  # a hang must not stop the run; torch alone takes many seconds to import on a busy machine


def free_port():
    """Below those that the kernel gives to clients: rank 0 binds it seconds later, when it has imported torch."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def run_program(arguments, size):
    """Its ranks as processes that find each other as torchrun's do; their outputs."""
    port = free_port()
    shared = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen([sys.executable, *arguments], env={**shared, "RANK": str(rank)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(size)
    ]  # fmt: skip
    results = [process.communicate(timeout=LIMIT_S) for process in processes]
    for process, (_, errors) in zip(processes, results):
        assert process.returncode == 0, errors
    return [output for output, _ in results]


def test_the_readme_example_learns():
    example = Path(__file__).parents[2] / "examples" / "train_ddp.py"
    output = run_program([str(example)], 2)[0]
    assert "on 2 ranks" in output and float(output.split()[-1]) < 1.0


def test_a_program_may_end_without_destroying_its_groups():
    program = """
import torch, torch.distributed as dist, talweg.torch
dist.init_process_group("talweg")
half = dist.new_group()
futures = [dist.all_reduce(torch.ones(3), group=g, async_op=True).get_future() for g in (None, half)]
print([f.then(lambda g: g.value()[0].sum()).wait().item() for f in futures])
"""
    assert run_program(["-c", program], 2) == ["[6.0, 6.0]\n"] * 2


def test_torchrun_restarts_a_job_that_lost_a_rank(tmp_path):
    program = tmp_path / "job.py"
    program.write_text("""
import os, torch, torch.distributed as dist, talweg.torch
dist.init_process_group("talweg")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if dist.get_rank() == 1:
        os._exit(3)
    dist.all_reduce(tensor)
    print("an all-reduce without rank 1 came to an end")
line = f"rank {dist.get_rank()} start {os.environ['TORCHELASTIC_RESTART_COUNT']} sum {tensor[0].item()}\\n"
os.write(1, line.encode())  # print may write a line in two parts, and the ranks share the pipe
dist.destroy_process_group()
""")
    # With an address: torchrun would tell its ranks this machine's name, which need not be known to any resolver.
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node",
         "2", "--max-restarts", "1", "--monitor-interval", "0.1", str(program)],
        text=True, capture_output=True, timeout=LIMIT_S)  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n")) == ["", "rank 0 start 1 sum 2.0", "rank 1 start 1 sum 2.0"], run.stdout


AGGREGATOR = str(Path(__file__).parents[2] / "examples" / "clusters" / "aggregator4.yaml")
# Groups one after the other, and one within the first.
AGGREGATED = """
import torch, torch.distributed as dist, talweg.torch
for turn in range({turns}):
    dist.init_process_group("talweg")
    tensor = torch.ones(1_000_000)
    dist.all_reduce(tensor)
    half = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.all_reduce(tensor, group=half)
    plan = talweg.torch.backend().explain("all_reduce", 1_000_000, "f32").split(",")[0]
    print(f"{{int(tensor.max())}} by {{plan}}\\n", end="", flush=True)
    dist.barrier()  # who has left is not there for a group within
    dist.destroy_process_group()
"""


def test_an_aggregator_serves_every_world_of_a_job_under_talweg_run():
    job = subprocess.run(
        [program(), "run", "-n", "4", "--no-tag-output", "--", sys.executable, "-c", AGGREGATED.format(turns=2)],
        env={**os.environ, "TALWEG_CLUSTER": AGGREGATOR}, text=True, capture_output=True, timeout=LIMIT_S)  # fmt: skip
    assert job.returncode == 0 and "planned without" not in job.stderr, job.stderr
    assert sorted(job.stdout.split("\n")[:-1]) == 4 * ["4 by sharded_star through agg"] + 4 * ["8 by sharded_star through agg"]


def test_an_aggregator_that_is_started_by_hand_serves_ranks_that_are_told_where_it_looks(monkeypatch):
    monkeypatch.setenv("TALWEG_KEY", "a key for this test")
    monkeypatch.setenv("TALWEG_AGGREGATORS_AT", f"tcp://127.0.0.1:{free_port()}")
    with subprocess.Popen([program(), "aggregator", "--name", "agg", "--timeout", f"{LIMIT_S}s"]) as aggregator:
        monkeypatch.setenv("TALWEG_CLUSTER", AGGREGATOR)
        try:
            output = run_program(["-c", AGGREGATED.format(turns=1)], 4)
            assert aggregator.wait(timeout=LIMIT_S) == 0
        finally:
            aggregator.kill()
    assert sorted(output) == 2 * ["4 by sharded_star through agg\n"] + 2 * ["8 by sharded_star through agg\n"]


def test_where_no_aggregator_can_look_the_warning_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("TALWEG_CLUSTER", AGGREGATOR)
    monkeypatch.setenv("TALWEG_DEBUG_FILE", str(tmp_path / "log"))
    assert all("through" not in line for line in run_program(["-c", AGGREGATED.format(turns=1)], 4))
    assert (tmp_path / "log").read_text().endswith(
        "planned without aggregator agg: the ranks meet in their program's own store, where it cannot look: "
        "set TALWEG_AGGREGATORS_AT, as talweg run does\n")  # fmt: skip


# By trees, until all ranks have joined the switch.
SWITCHED = """
import re, torch, torch.distributed as dist, talweg.torch
dist.init_process_group("talweg")
through = torch.tensor([0])
while through == 0:
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()
    sums = re.search(r"^switch: .*, (\\d+) sum", talweg.torch.backend().describe(), re.MULTILINE)[1]
    through[0] = int(sums) > 0
    dist.all_reduce(through, dist.ReduceOp.MIN)
print("through the switch")
dist.destroy_process_group()
"""


def test_a_switch_sums_for_the_world(monkeypatch):
    with served_switch(monkeypatch):
        assert run_program(["-c", SWITCHED], 2) == 2 * ["through the switch\n"]


# Of a group of its own, whose job is opened by its first sum.
SPARSELY_SWITCHED = """
import json, torch, torch.distributed as dist, talweg.torch
from switched import had_by_the_switch
from talweg.torch import hooks
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("talweg")
group = dist.new_group([0, 1])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(200, 200), process_group=group)
state = hooks.top_k(0.01, process_group=group, by_switch=True)
hooks.register(model, state)
def step():
    model.zero_grad()
    model(torch.randn(8, 200)).square().mean().backward()

def ways():
    calls = json.loads(talweg.torch.backend(group).flight_record())["operations"]
    return [call.get("way") for call in calls if call["operation"] == "all_reduce" and call["bytes"] == 4 * 40_200]

through = torch.tensor([0])
while through == 0:
    step()
    through[0] = "pairs" in ways()
    dist.all_reduce(through, dist.ReduceOp.MIN)
told = state.statistics()
assert told["sent_bytes"] == sum(8 * 402 if way == "pairs" else 4 * 40_200 for way in ways()), (told, ways())
before = had_by_the_switch()
dist.barrier()
step()
dist.barrier()
print(f"{(state.statistics()['sent_bytes'] - told['sent_bytes']) / 8:g} pairs of each rank, {had_by_the_switch()[1] - before[1]} bytes")
dist.barrier()
dist.destroy_process_group()
"""


def test_a_switch_sums_the_largest_gradients_of_a_group(monkeypatch):
    with served_switch(monkeypatch, "pairs"):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]))
        for output in run_program(["-c", SPARSELY_SWITCHED], 2):
            pairs, received = re.fullmatch(r"(\S+) pairs of each rank, (\d+) bytes\n", output).groups()
            # 402 of 40200; with their headers a small part of what two whole vectors are.
            assert pairs == "402" and 2 * 8 * 402 < int(received) < 2 * 4 * 40_200 / 4, output
