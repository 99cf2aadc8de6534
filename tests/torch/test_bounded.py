"""hooks.bounded_loss: gradients of which a part is lost on the way, over a network that loses datagrams when it is told to."""

import ctypes
import logging
import math
import pathlib

import pytest
import torch
import torch._dynamo  # noqa: F401  (DDP does: once, not in every rank that is forked)
import torch.distributed as dist
from ranks import on_ranks
from torch.nn.parallel import DistributedDataParallel
from training import assert_equal_on_all_ranks, flat, network, train

from talweg.torch import apply_plan, hooks
from talweg.torch._bounded import Guard

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "demo" / "digits.txt"
EXACT_CALLS = 20  # of each size, before anything may be lost


def lose(part):
    """What this rank sends from now on is lost to this part (lossy_network.c of tests/python, which is preloaded)."""
    ctypes.CDLL(None).lose(ctypes.c_double(part), ctypes.c_uint(dist.get_rank()))


class Given(torch.nn.Module):
    """A model whose gradients are what it is called with."""

    def __init__(self, sizes=(3000, 1, 2000), dtype=torch.float32):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.zeros(size, dtype=dtype) for size in sizes)

    def forward(self, gradients):
        return sum((part * gradient).sum() for part, gradient in zip(self.parts, gradients))


def whole_numbers(step, model):
    """Halves hold their sums, and a quarter of them, without rounding."""
    return [((torch.arange(part.numel()) * 37 + dist.get_rank() * 11 + step * 5) % 21 - 10).to(part.dtype) * 4 for part in model.parts]


def parallel(state, model):
    model = DistributedDataParallel(model)
    hooks.register(model, state)
    return model


def averaged(model, gradients):
    model.zero_grad()
    model(gradients).backward()
    return torch.cat([part.grad.flatten() for part in model.module.parts])


def summed(tensor):
    dist.all_reduce(tensor)
    return tensor


def own(state):
    """This rank's residuals, in the order of parameters."""
    residuals = state.state_dict()["residuals"]
    return torch.cat([residuals[name] for name in sorted(residuals)])


def kept(state):
    """All ranks' together."""
    return summed(own(state))


@on_ranks(3)
def test_the_smallest_are_lost_where_switches_drop_selectively():
    lose(0.2)
    ctypes.CDLL(None).lose_selectively(1)
    state = hooks.bounded_loss(p=0.3, packet_bytes=400, droppable=0.5, keep_important=True, queues=4)
    model = parallel(state, Given((36_000,)))
    ones_and_hundreds = [torch.where(torch.arange(36_000) // 100 % 2 == 0, 1.0, 300.0)]
    for _ in range(EXACT_CALLS + 10):
        large = ones_and_hundreds[0] == 300
        assert torch.allclose(averaged(model, ones_and_hundreds)[large], torch.tensor(300.0))
    told = state.statistics()
    assert summed(torch.tensor(told["lost_bytes"])) > 0 and told["lost_important_bytes"] == 0
    assert own(state)[large].abs().max() == 0
    ctypes.CDLL(None).lose_selectively(0)


@on_ranks(2)
def test_a_limit_holds_of_each_bucket():
    lose(0.1)
    state = hooks.bounded_loss(p=0.2, packet_bytes=200, p_sender=0.2, p_call=0.02)
    model = parallel(state, Given((20_000,)))
    for step in range(EXACT_CALLS + 10):
        averaged(model, whole_numbers(step, model.module))
    assert 0 < summed(torch.tensor(state.statistics()["lost_bytes"])) <= 2 * 10 * 0.02 * 40_000


@on_ranks(2)
def test_a_state_says_how_a_bucket_goes():
    state = hooks.bounded_loss(p=0.1, packet_bytes=400)
    assert state.explain(10_000).startswith("bounded, direct, up to 50 packets of 400 ")
    assert state.explain(10_000, "float64").startswith("bounded, direct, up to 100 packets of 400 ")
    for kind, words in [("f3", "no element type is called f3"), ("i32", "of i32: expected f16, bf16, f32 or f64")]:
        with pytest.raises(ValueError, match=words):
            state.explain(1, kind)


@on_ranks(2)
def test_a_bucket_is_as_deep_as_its_parameters():
    state = hooks.bounded_loss(queues=7, priority=7)
    last = ((9, 10),)
    assert [state._depth(key) for key in (last, ((0, 5),), ((3, 1), (6, 1)))] == [1, 0, 0.5]


@on_ranks(2)
def test_with_nothing_to_lose_it_is_ddp_bit_for_bit():
    lose(0.1)
    for policy in ("zero", "rescale"):
        state = hooks.bounded_loss(p=0, policy=policy, packet_bytes=512, servers=[1])
        assert torch.equal(flat(train(parallel(state, network()))), flat(train(DistributedDataParallel(network()))))
        told = state.statistics()
        assert told["exact"] == told["buckets"] > 0 and told["lost_bytes"] == 0


@on_ranks(2, 4)
def test_nothing_is_lost_that_is_not_kept_and_told():
    for dtype in (torch.float32, torch.float16):
        lose(0.05)
        lines = []
        logged = logging.Handler()
        logged.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("talweg.torch.hooks").addHandler(logged)
        logging.getLogger("talweg.torch.hooks").setLevel(logging.INFO)
        state = hooks.bounded_loss(p=0.1, packet_bytes=128, log_every=4)
        model = parallel(state, Given(dtype=dtype))
        got, wanted = torch.zeros(5001), torch.zeros(5001)
        for step in range(EXACT_CALLS + 12):
            if step == EXACT_CALLS + 8:  # at whose beginning a line is logged
                lost_until_told = state.statistics()["lost_bytes"]
            gradients = whole_numbers(step, model.module)
            average = averaged(model, gradients).float()
            assert_equal_on_all_ranks(average)
            got += average
            wanted += summed(torch.cat(gradients).float()) / dist.get_world_size()
        assert torch.equal(got + kept(state), wanted), dtype
        told, report = state.statistics(), state.report()
        assert list(report) == ["parts.0", "parts.1", "parts.2"]
        assert sum(layer["lost_bytes"] for layer in report.values()) == told["lost_bytes"]
        assert sum(layer["gradient_bytes"] for layer in report.values()) == told["gradient_bytes"]
        assert summed(torch.tensor(told["lost_bytes"])) > 0
        if lost_until_told:
            assert any("steps: lost of what this rank sent: parts." in line for line in lines), lines
        logging.getLogger("talweg.torch.hooks").removeHandler(logged)


def accuracy(hook):
    """Of a model that all ranks train on the demo's digits, each on its share of every batch."""
    lines = [line.split() for line in DIGITS.read_text().splitlines() if not line.startswith("#")]
    x = torch.tensor([[int(pixel, 17) for pixel in pixels] for pixels, _ in lines]) / 16
    y = torch.tensor([int(digit) for _, digit in lines])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    x, y = x[order], y[order]
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    state = hook()
    if state:
        hooks.register(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(100):
        mine = torch.arange(step * 64 + dist.get_rank(), (step + 1) * 64, dist.get_world_size()) % 1400
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
        optimizer.step()
    assert_equal_on_all_ranks(flat(model))
    with torch.no_grad():
        right = (model.module(x[1400:]).argmax(1) == y[1400:]).float().mean()
    return float(right), state


@pytest.mark.parametrize("policy", ["zero", "rescale"])
@on_ranks(2)
def test_digits_are_learned_as_well_with_a_tenth_lost(policy):
    lose(0.08)
    exactly, _ = accuracy(lambda: None)
    assert exactly > 0.9
    got, state = accuracy(lambda: hooks.bounded_loss(p=0.1, policy=policy, packet_bytes=128))
    assert got > exactly - 0.02
    assert summed(torch.tensor(state.statistics()["lost_bytes"])) > 0


@on_ranks(2)
def test_what_was_lost_comes_with_a_checkpoint():
    lose(0.1)
    state = hooks.bounded_loss(p=0.2, packet_bytes=128)
    model = parallel(state, Given())
    wanted, got = torch.zeros(5001), torch.zeros(5001)
    for step in range(EXACT_CALLS + 5):
        wanted += summed(torch.cat(whole_numbers(step, model.module))) / 2
        got += averaged(model, whole_numbers(step, model.module))
    saved = state.state_dict()
    assert kept(state).any()
    resumed = hooks.bounded_loss(p=0.2, packet_bytes=128)
    model = parallel(resumed, Given())
    resumed.load_state_dict(saved)
    got += averaged(model, [torch.zeros_like(part) for part in model.module.parts])  # exact: all that was kept comes
    assert torch.equal(got, wanted) and not kept(resumed).any()
    with pytest.raises(ValueError, match=r"this state is of bounded_loss\(p=0.2, policy='zero'\), not of bounded_loss\(p=0.1"):
        hooks.bounded_loss(p=0.1).load_state_dict(saved)


@on_ranks(2)
def test_what_is_not_a_number_is_never_lost_and_leaves_residuals_as_they_were():
    lose(0.1)
    state = hooks.bounded_loss(p=0.3, packet_bytes=128)
    model = parallel(state, Given())
    for step in range(EXACT_CALLS + 3):
        averaged(model, whole_numbers(step, model.module))
    before = kept(state)
    for bad in (math.nan, math.inf):
        for _ in range(5):
            gradients = whole_numbers(0, model.module)
            if dist.get_rank() == 1:
                gradients[2][77] = bad
            assert not averaged(model, gradients).isfinite().all(), bad
            assert torch.equal(kept(state), before)
    assert averaged(model, whole_numbers(0, model.module)).isfinite().all()


@on_ranks(2)
def test_the_guard_decides_by_the_change_of_the_norm_as_rank_0_sees_it():
    guard = Guard(0.5)

    def steps(norm):
        for _ in range(Guard.STEPS):
            guard.add(torch.tensor([norm, 0.0] if dist.get_rank() == 0 else [math.nan, norm]))
            guard.end_step(dist.group.WORLD)
        return guard.tight

    assert guard.tight
    assert [steps(norm) for norm in (4.0, 5.0, 5.5, 9.0, 9.0, 3.0, 3.0, math.inf, 3.0, 3.0)] == [
        True, False, False, True, False, True, False, True, True, False]


@on_ranks(2)
def test_with_a_guard_nothing_is_lost_where_the_norm_changes():
    lose(0.1)
    state = hooks.bounded_loss(p=0.2, packet_bytes=128, guard=0.5)
    model = parallel(state, Given())
    ones = [torch.ones_like(part) for part in model.module.parts]

    def lost_in_ten_steps(scale):
        before = state.statistics()["lost_bytes"]
        for _ in range(Guard.STEPS):
            assert_equal_on_all_ranks(averaged(model, [scale * part for part in ones]))
        return int(summed(torch.tensor(state.statistics()["lost_bytes"] - before)))

    lost = [lost_in_ten_steps(1) for _ in range(5)]  # a guard's 20, and 20 exact calls
    assert lost[:4] == [0] * 4 and lost[4] > 0, lost
    assert lost_in_ten_steps(3) > 0  # is seen at its end
    assert lost_in_ten_steps(3) == 0
    assert lost_in_ten_steps(3) > 0


@on_ranks(2)
def test_a_rank_that_leaves_is_an_error_on_the_other():
    state = hooks.bounded_loss(packet_bytes=128)
    model = parallel(state, Given())
    averaged(model, whole_numbers(0, model.module))
    before = own(state)
    dist.barrier()
    if dist.get_rank() == 1:
        return
    with pytest.raises(RuntimeError, match="talweg.*rank 1"):
        averaged(model, whole_numbers(1, model.module))
    assert torch.equal(own(state), before)


@on_ranks(1)
def test_one_rank_alone_is_served():
    model = parallel(hooks.bounded_loss(), Given())
    gradients = whole_numbers(0, model.module)
    assert torch.equal(averaged(model, gradients), torch.cat(gradients))


@on_ranks(2)
def test_what_cannot_be_gets_one_clear_line():
    gloo = dist.new_group(backend="gloo")
    for make, error, words in [
        (lambda: hooks.bounded_loss(p=0.6), ValueError, "bounded_loss: p must be from 0 to 0.5, not 0.6"),
        (lambda: hooks.bounded_loss(p=math.nan), ValueError, "bounded_loss: p must be from 0 to 0.5, not nan"),
        (lambda: hooks.bounded_loss(p=0.1, p_sender=0.2), ValueError, "bounded_loss: p_sender must be from 0 to p, which is 0.1, or None, not 0.2"),
        (lambda: hooks.bounded_loss(p=0.1, p_call="1"), ValueError, "bounded_loss: p_call must be from 0 to p, which is 0.1, or None, not '1'"),
        (lambda: hooks.bounded_loss(p="1%"), ValueError, "bounded_loss: p must be from 0 to 0.5, not '1%'"),
        (lambda: hooks.bounded_loss(policy="none"), ValueError, "bounded_loss: policy must be 'zero' or 'rescale', not 'none'"),
        (lambda: hooks.bounded_loss(packet_bytes=1.5), ValueError, "packet_bytes must be a whole number of at least 0, not 1.5"),
        (lambda: hooks.bounded_loss(packet_bytes=8), ValueError, "packets of 8 bytes: expected 64 to"),
        (lambda: hooks.bounded_loss(guard=0), ValueError, "guard must be a number above 0 or None, not 0"),
        (lambda: hooks.bounded_loss(log_every=-1), ValueError, "log_every must be a whole number of at least 0, not -1"),
        (lambda: hooks.bounded_loss(droppable=1.5), ValueError, "droppable must be from 0 to 1, or two such numbers, not 1.5"),
        (lambda: hooks.bounded_loss(droppable=(0, 0, 0)), ValueError, "droppable must be from 0 to 1"),
        (lambda: hooks.bounded_loss(queues=8), ValueError, "queues must be a whole number from 1 to 7, not 8"),
        (lambda: hooks.bounded_loss(priority=8), ValueError, "bounded_loss: priority must be a whole number from 0 to 7, not 8"),
        (lambda: hooks.bounded_loss(keep_important=True), ValueError, "nothing could be missing"),
        (lambda: hooks.bounded_loss(process_group=gloo), ValueError, "bounded_loss.*: this process group runs over gloo, not over talweg"),
        (lambda: hooks.bounded_loss(p=0.01 * (1 + dist.get_rank())), RuntimeError, "ranks disagree: rank 0 has p = 0.01"),
        (lambda: hooks.hook(None, None), TypeError, "takes a state that talweg.torch.hooks.int8"),
    ]:
        with pytest.raises(error, match=words) as caught:
            make()
        assert "\n" not in str(caught.value)
    model = parallel(hooks.bounded_loss(), Given(dtype=torch.float64))
    with pytest.raises(TypeError, match="takes gradients of float32, float16 or bfloat16, not torch.float64"):
        averaged(model, whole_numbers(0, model.module))
    for other in (hooks.int8(), hooks.bounded_loss()):
        with pytest.raises(ValueError, match="^register: this model has a communication hook already: DDP takes one"):
            hooks.register(model, other)
    with pytest.raises(ValueError, match="the model has a communication hook"):
        apply_plan(model, "no plan")
