"""What goes wrong is said on every rank that can know, names what differs, and leaves the tensors as they were."""

import os
import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

import talweg.torch


def refused(kind, words, call):
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


@on_ranks(3)
def test_other_sizes_on_one_rank_are_an_error_on_all_and_nothing_is_written():
    tensor = torch.full((1000 if dist.get_rank() == 2 else 999,), 5.0)
    refused(dist.DistBackendError, ["1000", "999"], lambda: dist.all_reduce(tensor))
    assert torch.all(tensor == 5.0)
    good = torch.ones(3)
    dist.all_reduce(good)
    assert torch.all(good == 3)


@on_ranks(2)
def test_another_type_or_reduction_on_one_rank_is_an_error_on_all():
    rank = dist.get_rank()
    tensor = torch.ones(8, dtype=torch.float32 if rank else torch.int32)
    refused(dist.DistBackendError, ["f32", "i32"], lambda: dist.all_reduce(tensor))
    op = dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX
    refused(dist.DistBackendError, ["sum", "max"], lambda: dist.all_reduce(torch.ones(8), op))


@on_ranks(2)
def test_a_future_carries_the_error():
    tensor = torch.ones(4 + dist.get_rank())
    future = dist.all_reduce(tensor, async_op=True).get_future()
    refused(RuntimeError, ["4", "5"], future.wait)


@on_ranks(1)
def test_calls_that_can_never_work_are_refused_at_once():
    refused(TypeError, ["BAND", "Float"], lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    refused(TypeError, ["Float8", "SUM"], lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)))
    refused(ValueError, ["elements"], lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)))
    refused(ValueError, ["splits"], lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [2], [3]))
    refused(ValueError, ["elements"], lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(3)))
    backend = talweg.torch.backend()
    refused(ValueError, ["meta"], lambda: backend.allreduce([torch.ones(2, device="meta")]))
    refused(ValueError, ["one tensor"], lambda: backend.allreduce([torch.ones(2), torch.ones(2)]))


@on_ranks(2)
def test_what_is_refused_is_a_runtime_error_as_from_gloo_and_what_python_calls_it():
    size = dist.get_world_size()
    short, both = [torch.zeros(2) for _ in range(size - 1)], torch.ones(size)
    for call, kind in [
        (lambda: dist.all_gather(short, torch.ones(2)), ValueError),
        (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), TypeError),
        (lambda: dist.send(torch.ones(1), 1 - dist.get_rank(), tag=-1), ValueError),
        (lambda: dist.group.WORLD.send([torch.ones(1)], 9, 0), ValueError),
        (lambda: dist.irecv(both, dist.get_rank()), ValueError),
        (lambda: dist.all_to_all_single(both, both), ValueError),
    ]:
        for either in (RuntimeError, kind):
            refused(either, [], call)
    backend = talweg.torch.backend()
    for options, call in [(dist.BroadcastOptions(), backend.broadcast), (dist.ReduceOptions(), backend.reduce)]:
        for wrong in (-1, 1, 5):
            options.rootTensor = wrong
            refused(RuntimeError, ["root tensor", str(wrong)], lambda: call([torch.ones(2)], options))
    refused(RuntimeError, ["at least one tensor"], lambda: backend.allreduce_coalesced([]))
    dist.barrier()


@on_ranks(2)
def test_each_end_of_a_message_names_its_own_call_first():
    if dist.get_rank() == 0:
        refused(dist.DistBackendError, ["send_recv(f32, 3 elements) #0 to rank 1"],
                lambda: dist.send(torch.ones(3), 1))
    else:
        got = torch.ones(4)
        refused(dist.DistBackendError, ["send_recv(f32, 4 elements) #0 from rank 0"], lambda: dist.recv(got, 0))
        assert got.tolist() == [1.0] * 4
    other = torch.ones(3, dtype=torch.float32 if dist.get_rank() == 0 else torch.int32)
    refused(dist.DistBackendError, ["f32", "i32"],
            lambda: dist.send(other, 1) if dist.get_rank() == 0 else dist.recv(other, 0))


@on_ranks(2)
def test_a_deadline_ends_a_collective_that_a_rank_never_joins():
    if dist.get_rank() == 1:
        time.sleep(2)
        return
    start = time.monotonic()
    work = talweg.torch.backend().allreduce([torch.ones(4)], _all_reduce_options(timedelta(milliseconds=300)))
    refused(dist.DistBackendError, ["1"], work.wait)
    assert time.monotonic() - start < 20


def _all_reduce_options(timeout):
    options = dist.AllreduceOptions()
    options.timeout = timeout
    return options


def _seconds_until_a_deadline(group):
    """On rank 0, of a call that rank 1 does not join."""
    start = time.monotonic()
    refused(dist.DistBackendError, ["1"], lambda: dist.all_reduce(torch.ones(4), group=group))
    return time.monotonic() - start


@on_ranks(2)
def test_talweg_timeout_is_the_deadline_where_the_program_gave_none():
    own = dist.new_group()  # of torch's 30 minutes, before TALWEG_TIMEOUT is set
    os.environ["TALWEG_TIMEOUT"] = "6s"
    groups = [dist.new_group(), dist.new_group(timeout=timedelta(seconds=3))]
    if dist.get_rank() == 0:
        call = dist.all_reduce(torch.ones(4), group=own, async_op=True)
        assert 5.9 < _seconds_until_a_deadline(groups[0]) < 25
        assert _seconds_until_a_deadline(groups[1]) < 5.9
        assert not call.is_completed()
        os.environ["TALWEG_TIMEOUT"] = "soon"
        refused(ValueError, ["TALWEG_TIMEOUT", "soon"], lambda: dist.new_group([0], use_local_synchronization=True))
    dist.barrier()


@on_ranks(2)
def test_a_deadline_may_be_set_while_the_group_lives():
    for change in (dist.distributed_c10d._set_pg_timeout, lambda deadline, group: group.set_timeout(deadline)):
        group = dist.new_group()  # with torch's 30 minutes, for which no test would wait
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            change(timedelta(seconds=1), group)
        if dist.get_rank() == 0:
            refused(dist.DistBackendError, ["timed out"], lambda: dist.all_reduce(torch.ones(4), group=group))
            refused(dist.DistBackendError, ["timed out"], lambda: dist.recv(torch.ones(4), 1, group=group))
    alone = dist.new_group([0])
    if dist.get_rank() == 1:
        refused(ValueError, ["Invalid"], lambda: dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), alone))
    dist.barrier()


@on_ranks(2)
def test_a_wait_can_give_up_before_the_collective_does():
    if dist.get_rank() == 1:
        time.sleep(1)
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    if dist.get_rank() == 0:
        refused(RuntimeError, ["not done within 50 ms"], lambda: work.wait(timedelta(milliseconds=50)))
    work.wait()
    assert torch.all(tensor == 2)


@on_ranks(3)
def test_monitored_barrier_names_the_missing_rank():
    backend = talweg.torch.backend()
    backend.monitored_barrier(timedelta(seconds=10))
    if dist.get_rank() == 0:
        refused(
            RuntimeError,
            ["Rank 2", "monitoredBarrier", "500 ms"],
            lambda: backend.monitored_barrier(timedelta(milliseconds=500), wait_all_ranks=True),
        )
    elif dist.get_rank() == 1:
        refused(RuntimeError, ["Rank 1"], lambda: backend.monitored_barrier(timedelta(milliseconds=500)))
    else:
        time.sleep(1)


@on_ranks(2)
def test_a_destroyed_group_refuses_calls():
    backend = talweg.torch.backend()
    backend.shutdown()
    refused(dist.DistBackendError, ["shut down"], lambda: backend.allreduce([torch.ones(1)]))
