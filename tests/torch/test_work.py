"""Works and futures: who can wait, what they tell, and that callbacks are free to do what they like."""

import concurrent.futures
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import on_ranks
from torch.profiler import ProfilerActivity, profile

import talweg.torch


@on_ranks(2)
def test_a_work_tells_when_it_is_done_and_what_came_out():
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(timedelta(seconds=10))
    assert work.is_completed() and work.is_success()
    assert torch.all(work.result()[0] == 2)


@on_ranks(2)
def test_a_future_has_the_tensors_whether_asked_for_early_or_late():
    early = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert early.wait()[0].tolist() == [2, 2, 2]
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    assert work.get_future().wait()[0].tolist() == [2, 2, 2]
    chained = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda f: f.value()[0] / 2)
    assert chained.wait().tolist() == [1, 1, 1]


@on_ranks(2)
def test_a_callback_may_wait_for_collectives_of_its_own():
    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    # One at a time: callbacks of several works may run in any order, and the ranks must agree on one.
    for _ in range(5):
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
        assert future.wait().tolist() == [4, 4, 4, 4]


@on_ranks(2)
def test_a_dropped_work_goes_on_and_keeps_its_tensor():
    for n in range(1, 20):
        dist.all_reduce(torch.ones(1000 * n), async_op=True)
    last = torch.ones(5)
    dist.all_reduce(last)
    assert torch.all(last == 2)


@on_ranks(4)
def test_many_collectives_in_flight_end_in_any_order_of_waiting():
    tensors = [torch.full((97 * n + 1,), float(dist.get_rank())) for n in range(40)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    assert all(torch.all(tensor == 6) for tensor in tensors)


@on_ranks(2)
def test_threads_may_wait_for_different_works():
    group = dist.new_group()
    results = {}

    def use(which, process_group):
        for _ in range(20):
            tensor = torch.ones(100)
            dist.all_reduce(tensor, group=process_group)
            results[which] = results.get(which, 0) + tensor.sum().item()

    threads = [threading.Thread(target=use, args=(i, g)) for i, g in enumerate((None, group))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 4000.0, 1: 4000.0}


@on_ranks(3)
def test_threads_that_call_the_same_share_a_group():
    def use():
        for turn in range(500):
            tensor = torch.ones(1000)
            work = dist.all_reduce(tensor, async_op=turn % 3 == 0)
            if work:
                work.wait()
            assert torch.all(tensor == 3)

    for _ in range(5):  # threads made anew, too
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(use) for _ in range(4)]:
                done.result()


@on_ranks(2)
def test_a_barrier_ends_after_what_its_rank_started_before():
    one, got = torch.ones(1), torch.zeros(1)
    rank = dist.get_rank()
    receiving = dist.irecv(got, 1, tag=7) if rank == 0 else None
    barrier = dist.barrier(async_op=True)
    if rank == 1:
        barrier.wait()
    dist.all_reduce(one)  # the barrier's frames have come
    assert barrier.is_completed() == (rank == 1)
    dist.all_reduce(one)  # rank 0 has looked
    if rank == 1:
        dist.send(torch.full((1,), 42.0), 0, tag=7)
    barrier.wait()
    assert receiving is None or (receiving.is_completed() and got.item() == 42)


@on_ranks(3)
def test_a_barrier_ends_after_every_sum_that_was_started_before():
    tensors = [torch.full((1 << 20,), float(dist.get_rank() + i)) for i in range(16)]
    started = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    assert all(work.is_completed() for work in started)
    assert all(torch.all(tensor == 3 * i + 3) for i, tensor in enumerate(tensors))


@on_ranks(2)
def test_collectives_have_their_names_in_profiles():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        dist.all_reduce(torch.ones(4))
        dist.barrier()
    names = {event.key for event in trace.key_averages()}
    assert "talweg:all_reduce" in names and "record_param_comms" in names


@on_ranks(2)
def test_the_backend_tells_about_itself():
    backend = talweg.torch.backend()
    assert backend.name() == "talweg"
    assert ":" in backend.describe()
    assert backend.explain("all_reduce", 1 << 20, "f32")
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 1
