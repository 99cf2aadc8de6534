"""Sparse tensors that a switch sums come to what gloo makes of them."""

import re
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run
from switched import served_switch
from torch.nn.parallel import DistributedDataParallel

import talweg.torch

BY_SWITCH = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
SHAPES = (  # sizes, and how many of them are sparse
    ((7,), 1), ((50, 8), 1), ((5, 4, 3), 3), ((5, 4, 3), 2), ((9, 300), 1), ((3, 2, 4, 2), 1), ((1 << 20, 1 << 11), 2),
    ((1 << 20, 1 << 12), 2),  # more than the switch numbers
)  # fmt: skip


def sums_by_switch():
    counted = re.search(r"of sparse tensors: .*?, (\d+) sum", talweg.torch.backend().describe())
    return int(counted[1]) if counted else 0


def part_of(rank, sizes, sparse_dimensions, dtype, seed, count=20):
    """Uncoalesced, with rows that come twice, and some zeros; whole numbers. Some ranks have nothing."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    count = 0 if (rank + seed) % 3 == 0 else count
    indices = [torch.randint(size, (count,), generator=generator) for size in sizes[:sparse_dimensions]]
    values = torch.randint(-2, 3, (count, *sizes[sparse_dimensions:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(indices), values, sizes)


def wait_for_the_switch():
    deadline = time.monotonic() + 60
    there = torch.tensor([0])
    while not there:
        dist.all_reduce(part_of(1, (50, 8), 1, torch.float32, 0))
        there[0] = sums_by_switch()
        dist.all_reduce(there, dist.ReduceOp.MIN)
        assert time.monotonic() < deadline, talweg.torch.backend().describe()


def assert_same(tensor, expected):
    expected = expected.coalesce()
    assert tensor.is_coalesced() and tensor.dtype == expected.dtype and tensor.shape == expected.shape
    assert torch.equal(tensor.indices(), expected.indices())
    torch.testing.assert_close(tensor.values(), expected.values(), rtol=0, atol=0, equal_nan=True)


def come_to_what_gloo_makes_of_them():
    rank = dist.get_rank()
    gloo = dist.new_group(backend="gloo")
    wait_for_the_switch()
    for seed, (sizes, sparse_dimensions) in enumerate(SHAPES):
        for dtype in (*BY_SWITCH, torch.float64, torch.int64):
            before = sums_by_switch()
            tensor = part_of(rank, sizes, sparse_dimensions, dtype, seed)
            # Gloo adds up no halves.
            expected = tensor.to(torch.float32) if dtype == torch.float16 else tensor.clone()
            dist.all_reduce(tensor)
            dist.all_reduce(expected, group=gloo)
            assert_same(tensor, expected.to(dtype))
            numbered = torch.Size(sizes[:sparse_dimensions]).numel() <= 1 << 31
            assert sums_by_switch() - before == (dtype in BY_SWITCH and numbered), (sizes, dtype)
    nothing = part_of(rank, (50, 8), 1, torch.float32, 0, count=0)
    dist.all_reduce(nothing)
    assert nothing.is_coalesced() and nothing._nnz() == 0
    no_numbers = part_of(rank, (50, 8), 1, torch.float32, 1)
    for number in (float("nan"), float("inf"), -float("inf")):
        tensor = no_numbers.coalesce().clone()
        tensor.values()[::3] = number if rank == 1 else 1.0
        expected = tensor.clone()
        dist.all_reduce(tensor)
        dist.all_reduce(expected, group=gloo)
        assert_same(tensor, expected)
    dist.barrier()


def are_refused_where_ranks_disagree():
    rank = dist.get_rank()
    wait_for_the_switch()
    for sizes, sparse_dimensions, dtype in (
        ((50, 8 + rank), 1, torch.float32),
        ((50 + rank, 8), 1, torch.float32),
        ((6, 4) if rank else (4, 6), 2, torch.float32),
        ((50, 8), 1 + rank, torch.float32),
        ((50, 8), 1, torch.float16 if rank else torch.float32),
    ):
        with pytest.raises(dist.DistBackendError, match="ranks . and . disagree about size, type or sparse dimensions"):
            dist.all_reduce(part_of(rank, sizes, sparse_dimensions, dtype, 1))
    before = sums_by_switch()
    dist.all_reduce(part_of(rank, (50, 8), 1, torch.float32, 0))
    assert sums_by_switch() == before + 1


def gradients_come_to_the_same():
    results = []
    for group in (None, dist.new_group(backend="gloo")):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.EmbeddingBag(500, 16, sparse=True), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(30):
            optimizer.zero_grad()
            model(torch.tensor([[step, 7 + dist.get_rank(), 7]])).sum().backward()
            optimizer.step()
        results.append(model.module.weight.detach().clone())
    torch.testing.assert_close(*results)
    dist.barrier()


@pytest.mark.parametrize("ranks", [2, 3])
def test_sparse_tensors_come_to_what_gloo_makes_of_them(monkeypatch, ranks):
    with served_switch(monkeypatch):
        run(ranks, come_to_what_gloo_makes_of_them)


def test_sparse_tensors_are_refused_where_ranks_disagree(monkeypatch):
    with served_switch(monkeypatch):
        run(2, are_refused_where_ranks_disagree)


@pytest.mark.parametrize("algorithm", ["switch", ""])
def test_sparse_gradients_come_to_the_same(monkeypatch, algorithm):
    with served_switch(monkeypatch, algorithm=algorithm):
        run(3, gradients_come_to_the_same)
