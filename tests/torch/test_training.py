"""DistributedDataParallel and its relatives train over Talweg as they do over gloo."""

import copy
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import on_ranks
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5)
    )


def train(model, optimizer, steps=5):
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(8, 20, generator=generator)
        y = torch.randint(0, 5, (8,), generator=generator)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_on_all_ranks(tensor):
    copies = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, tensor)
    return all(torch.equal(copies[0], c) for c in copies)


@on_ranks(4)
def test_ddp_trains_to_gloos_parameters_with_equal_replicas():
    gloo = dist.new_group(backend="gloo")
    results = []
    for group in (None, gloo):
        # Small buckets, so that several are in flight.
        model = DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.01)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        results.append(flat(model))
    assert same_on_all_ranks(results[0])
    assert not torch.equal(results[0], flat(network()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


@on_ranks(2)
def test_ddp_runs_a_hook_that_chains_futures():
    def hook(_, bucket):
        total = dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future()
        return total.then(lambda f: f.value()[0])

    plain, hooked = (DistributedDataParallel(network()) for _ in range(2))
    hooked.register_comm_hook(None, hook)
    for model in (plain, hooked):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(flat(plain), flat(hooked))


@on_ranks(2)
def test_ddp_sums_sparse_gradients():
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[step, 7 + dist.get_rank()]])).sum().backward()
        optimizer.step()
    assert same_on_all_ranks(flat(model))


@on_ranks(2)
def test_both_generations_of_fsdp_and_the_sharded_optimizer_train():
    reference = network()
    replicated = DistributedDataParallel(copy.deepcopy(reference))
    train(replicated, torch.optim.SGD(replicated.parameters(), lr=0.1))
    expected = flat(replicated)

    first = FullyShardedDataParallel(copy.deepcopy(reference), device_id=torch.device("cpu"))
    train(first, torch.optim.SGD(first.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(first):
        torch.testing.assert_close(flat(first), expected, rtol=1e-5, atol=1e-6)

    second = copy.deepcopy(reference)
    fully_shard(second, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    train(second, torch.optim.SGD(second.parameters(), lr=0.1))
    full = torch.cat([p.full_tensor().detach().flatten() for p in second.parameters()])
    torch.testing.assert_close(full, expected, rtol=1e-5, atol=1e-6)

    third = DistributedDataParallel(copy.deepcopy(reference))
    train(third, ZeroRedundancyOptimizer(third.parameters(), torch.optim.SGD, lr=0.1))
    torch.testing.assert_close(flat(third), expected, rtol=1e-5, atol=1e-6)


def run_program(arguments, size):
    """Its ranks as processes that find each other as torchrun's do; their outputs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen([sys.executable, *arguments], env={**shared, "RANK": str(rank)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(size)
    ]  # fmt: skip
    results = [process.communicate(timeout=90) for process in processes]
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
