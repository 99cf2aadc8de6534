"""What calls of other sizes take, which the recorder asks its backend for."""

import array
import types

import torch
import torch.distributed as dist
from ranks import on_ranks
from test_record import parallel
from test_steps import made, seen, step
from training import train

from talweg import _probing, _steps
from talweg._watching import Kind
from talweg.torch import record


@on_ranks(2)
def test_a_job_goes_without_probes_where_a_rank_has_no_room_for_them(monkeypatch, tmp_path):
    def full(*_, **__):
        raise RuntimeError("out of memory")

    if dist.get_rank() == 1:
        monkeypatch.setattr(_probing, "torch", types.SimpleNamespace(zeros=full, float32=torch.float32))
    assert _probing.probe(dist.group.WORLD, torch.device("cpu"), [(4, 2), (16, 1)]) == []


def test_probes_have_as_much_as_a_step_and_end_in_time():
    assert _probing.sizes_of(4 << 20, 0.001) == [(4, 32), (4096, 32), (16384, 32), (65536, 32), (262144, 16), (1 << 20, 4), (4 << 20, 1)]
    assert _probing.sizes_of(10, 0) == [(4, 32), (8, 1)] and _probing.sizes_of(4, 0) == [(4, 32)]
    for gradients in (100_000, 25_000_000, 400_000_000):
        for seconds in (0.001, 0.1, 0.5, 1.2, 5, 100):
            sizes = _probing.sizes_of(gradients, seconds)
            assert sizes[0] == (4, 32) and all(count >= 1 for _, count in sizes) and sizes == sorted(sizes)
            # All that is sent: in each round one call goes before the others.
            sent = sum(size * (1 + count) for size, count in sizes[1:]) * (_probing.ROUNDS + 1)
            assert sent / gradients * seconds <= min(max(3, 4 * seconds), 30)
            if seconds <= 5:  # no bucket is more than four times as large as the largest, also on a slow network
                assert 4 * sizes[-1][0] >= gradients
    assert len(_probing.sizes_of(25_000_000, 1e6)) == 1


def test_a_probe_is_what_a_call_adds_and_the_first_round_does_not_count(monkeypatch):
    clock, under_way = [0], []
    # By how many calls are under way: what they take together, in each round.
    rounds = {32: iter([9_000_000, 53_200, 56_400, 53_200]), 1: iter([7_000_000, 50_000, 50_300, 49_900]), 4: iter([1, 8000, 8000, 8004])}

    class Work:
        def wait(self):
            if under_way:  # all were started before the first is waited for
                clock[0] += next(rounds[len(under_way)])
            under_way.clear()

    def all_reduce(tensor, group, async_op=False):
        if async_op:
            under_way.append(tensor)
        return Work()

    def all_gather_object(into, one, group):
        into[:] = [one]

    monkeypatch.setattr(_probing, "dist", types.SimpleNamespace(all_reduce=all_reduce, all_gather_object=all_gather_object))
    monkeypatch.setattr(_probing, "time", types.SimpleNamespace(monotonic_ns=lambda: clock[0]))
    group = types.SimpleNamespace(size=lambda: 1)
    probes = _probing.probe(group, torch.device("cpu"), [(4, 32), (4096, 4)])
    # What one call takes by itself is not added by the 31 others.
    assert probes == [(4, round(3200 / 31)), (4096, 2000)]


def test_what_a_step_exchanges_is_from_the_first_that_is_sent_to_the_last_that_arrives():
    # Sent at 50, the last arrives at 100 or later.
    assert _steps.usual_exchange(seen([step(), step(arrive=7), step(late=3, arrive=30)])) == 57_000
    assert _steps.usual_exchange(seen([[(Kind.FORWARD, -1, 5), (Kind.STEP, -1, 9)]])) == 0
    # Of one that arrives in the step that follows, with that one's own under way.
    log = [(Kind.SENT, 0, 10), (Kind.SENT, 1, 20), (Kind.ARRIVED, 0, 30), (Kind.STEP, -1, 0), (Kind.SENT, 2, 40), (Kind.ARRIVED, 1, 55),
           (Kind.ARRIVED, 2, 60)]  # fmt: skip
    kinds, indices, times = zip(*log)
    late = types.SimpleNamespace(kinds=array.array("b", kinds), indices=array.array("i", indices), times=array.array("q", times))
    assert _steps.usual_exchange(late) == (45 + 20) / 2


def test_of_a_probe_the_rank_counts_that_waited_for_nobody():
    ranks = [seen([step()] * 4), seen([step()] * 4)]
    ranks[0].probes = [_probing.Probe(4, 70), _probing.Probe(4096, 900)]
    ranks[1].probes = [_probing.Probe(4, 80), _probing.Probe(4096, 500)]
    job, _ = made(*ranks)
    assert job["probes"] == [{"op": "all_reduce", "bytes": 4, "time": 70}, {"op": "all_reduce", "bytes": 4096, "time": 500}]


@on_ranks(2)
def test_a_recorder_has_as_much_patience_as_its_steps_call_for(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(_probing, "sizes_of", lambda gradients, exchanged_s: asked.append((gradients, exchanged_s)) or [(4, 2)])
    model = parallel()
    with record(model, 4, 2, job=tmp_path / "job.yaml"):
        train(model, steps=8)
    if dist.get_rank() > 0:
        assert asked == []
    else:
        ((gradients, exchanged_s),) = asked
        assert gradients == sum(p.nbytes for p in model.parameters()) and 0 < exchanged_s < 100
