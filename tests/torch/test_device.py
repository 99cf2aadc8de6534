"""Models on a GPU: record() and apply_plan() over groups that have another backend for its tensors, and what is refused."""

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_errors import refused
from torch.nn.parallel import DistributedDataParallel
from training import assert_equal_on_all_ranks, flat, network

from talweg import _sending
from talweg.torch import apply_plan, backend, hooks, record

# Counted without starting CUDA, which would not survive the fork of ranks.
pytestmark = pytest.mark.skipif(torch.cuda.device_count() == 0, reason="needs a GPU that PyTorch can use")

CYCLES = 200_000_000  # about 0.1 s
MIXED = "cpu:talweg,cuda:gloo"


class Later(dist.ProcessGroup):
    """Doubles what it is given, on a stream of its own: as with NCCL, futures are done when that is queued."""

    def __init__(self):
        super().__init__(0, 1)
        self.stream = torch.cuda.Stream()

    def allreduce(self, tensors, options=None):
        self.stream.wait_stream(torch.cuda.current_stream())
        future = torch.futures.Future(devices=[tensors[0].device])
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(CYCLES // 10)
            tensors[0].mul_(2)
            future.set_result(tensors)
        return torch._C._distributed_c10d._create_work_from_future(future)


@on_ranks(1)
def test_a_bucket_in_pieces_is_there_for_who_waits_for_it():
    sender = _sending.Sender(dist.group.WORLD)
    sender.group = Later()
    for partition, credit in ((None, None), (1000, None), (1000, 2000), (None, 1)):
        sender.follow([_sending.Way(1024, 0)], partition, credit)
        bucket = torch.ones(1024, device="cuda")
        sender.allreduce([bucket]).wait()
        assert torch.all(bucket.clone() == 2), (partition, credit)
        copied = sender.allreduce([bucket]).get_future().then(lambda future: future.value()[0].clone())
        assert torch.all(copied.wait() == 4), (partition, credit)


class Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        torch.cuda._sleep(CYCLES)
        return gradient.clone()


class SlowBackwards(torch.nn.Linear):
    def forward(self, x):
        return Busy.apply(super().forward(x))


@on_ranks(2)
def test_an_all_reduce_ends_before_the_layers_that_are_queued_behind_it(tmp_path):
    for name in ("gloo", MIXED):
        module = torch.nn.Sequential(SlowBackwards(64, 64), torch.nn.Linear(64, 64)).cuda()
        model = DistributedDataParallel(module, process_group=dist.new_group(backend=name), bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with record(model, 4, 2, job=tmp_path / "job.yaml") as recording:
            while not recording.done:
                optimizer.zero_grad()
                model(torch.ones(8, 64, device="cuda")).square().mean().backward()
                optimizer.step()
        if dist.get_rank() == 0:
            slow, quick = recording.job["layers"]
            assert slow["backward"] > 10 * quick["backward"]
            first = recording.job["exchanges"][0]
            assert first["layers"] == ["1"] and first["time"] < slow["backward"] / 2


@on_ranks(2)
def test_a_group_for_both_kinds_of_tensors_trains_and_follows_a_plan():
    group = dist.new_group(backend=MIXED)
    assert backend(group).statistics()
    results = []
    for plan in (None, {"buckets": [{"layers": [layer], "priority": 2} for layer in ("4", "2", "0")], "partition": 1000, "credit": 3000}):
        model = DistributedDataParallel(network().cuda(), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        apply_plan(model, plan)
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(8, 20, generator=generator).cuda()).square().mean().backward()
            optimizer.step()
        results.append(flat(model).cpu())
        assert_equal_on_all_ranks(results[-1])
    assert torch.equal(*results)  # sums of two have one order only


@on_ranks(2)
def test_tensors_on_a_gpu_are_refused_in_one_line():
    gpu = torch.ones(2, device="cuda")
    refused(ValueError, ["all_reduce takes CPU tensors; this one is on cuda:0"], lambda: backend().allreduce([gpu]))
    refused(RuntimeError, ["cuda"], lambda: dist.all_reduce(gpu))
    model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), process_group=dist.new_group(backend=MIXED))
    hooks.register(model, hooks.int8(process_group=model.process_group))
    refused(TypeError, ["takes gradients on the CPU; these are on cuda:0"], lambda: model(gpu).sum().backward())
    host = torch.ones(2, pin_memory=True)
    dist.all_reduce(host)
    assert torch.all(host == 2)
