"""Compressed gradients: each hook against a plain reference, what it keeps and saves, what it sends, and that models learn."""

import math

import compressed
import numpy
import pytest
import torch
import torch._dynamo  # noqa: F401  (DDP does: once, not in every rank that is forked)
import torch.distributed as dist
import train_recommender
from given import SIZES, Given, averaged, given_gradients, parallel
from ranks import on_ranks
from torch.nn.parallel import DistributedDataParallel
from training import assert_equal_on_all_ranks, flat, loss, network, sgd, train

import talweg.torch
from talweg.torch import hooks

ALL = {
    "fp16": hooks.fp16,
    "bf16": hooks.bf16,
    "int8": hooks.int8,
    "int8 at random": lambda **o: hooks.int8(64, stochastic=True, seed=5, **o),
    "int4": hooks.int4,
    "top_k": lambda **o: hooks.top_k(0.1, **o),
    "random_k": lambda **o: hooks.random_k(0.1, **o),
    "threshold": lambda **o: hooks.threshold(0.02, **o),
    "block_top_k": lambda **o: hooks.block_top_k(0.1, 16, **o),
}


@on_ranks(2, 3, 4)
def test_every_hook_comes_to_what_numpy_says():
    ranks = dist.get_world_size()
    references = {
        "fp16": (hooks.fp16(), lambda: compressed.Encoded("f16")),
        "bf16": (hooks.bf16(), lambda: compressed.Encoded("bf16")),
        "int8": (hooks.int8(), lambda: compressed.Encoded("int8", 256)),
        "int4": (hooks.int4(block=32), lambda: compressed.Encoded("int4", 32)),
        "top_k": (hooks.top_k(0.05), lambda: compressed.Chosen(compressed.largest(0.05))),
        "block_top_k": (hooks.block_top_k(0.1, 32), lambda: compressed.Chosen(compressed.largest(0.1, 32))),
        "threshold": (hooks.threshold(1.5), lambda: compressed.Chosen(compressed.at_least(1.5, ranks))),
    }
    for name, (state, reference) in references.items():
        model = parallel(state)
        plain = [reference() for _ in SIZES]
        for step in range(4):
            got = averaged(model, given_gradients(step, dist.get_rank()))
            by_rank = [given_gradients(step, rank) for rank in range(ranks)]
            for i, part in enumerate(got):
                expected = plain[i].step([gradients[i].numpy() for gradients in by_rank])
                assert numpy.array_equal(part.numpy(), expected), f"{name}, step {step}, parameter {i}"


@on_ranks(2, 3)
def test_random_k_sends_what_was_drawn_and_keeps_the_rest():
    ranks = dist.get_world_size()
    model = parallel(hooks.random_k(0.25, seed=3))
    kept = [numpy.zeros((ranks, size), numpy.float32) for size in SIZES]
    drawn = []
    for step in range(4):
        got = averaged(model, given_gradients(step, dist.get_rank()))
        by_rank = [given_gradients(step, rank) for rank in range(ranks)]
        for i, part in enumerate(got):
            kept[i] += compressed.contributions([gradients[i].numpy() for gradients in by_rank])
            sent = part.numpy() != 0
            assert sent.sum() == max(1, math.ceil(0.25 * SIZES[i]))
            numpy.testing.assert_allclose(part.numpy()[sent], kept[i].sum(0)[sent], rtol=1e-5, atol=1e-6)
            kept[i][:, sent] = 0
        drawn.append(got[0].numpy() != 0)
    assert not numpy.array_equal(drawn[0], drawn[1])


@on_ranks(3)
def test_nothing_is_lost_in_the_long_run():
    gradients = given_gradients(0, dist.get_rank())
    exact = [g.clone() for g in gradients]
    for g in exact:
        dist.all_reduce(g, dist.ReduceOp.AVG)
    steps = 40
    for name, make in ALL.items():
        model = parallel(make())
        sums, first = [torch.zeros(size) for size in SIZES], None
        for _ in range(steps):
            for total, part in zip(sums, averaged(model, gradients)):
                total += part
            first = first or [total.clone() for total in sums]
        error = sum(float((total / steps - e).abs().sum()) for total, e in zip(sums, exact))
        first_error = sum(float((total - e).abs().sum()) for total, e in zip(first, exact))
        # Where a tenth is drawn, an element waits for nine steps on average.
        assert error < 0.3 * first_error, f"{name}: {error} after {first_error}"


@on_ranks(4)
def test_models_learn_and_stay_the_same_on_all_ranks():
    expected = float(loss_of_all(sgd_steps(network(), 30)))
    for name, make in (ALL | {"auto": hooks.auto}).items():
        model = parallel(make(), network(), bucket_mb=0.01)
        got = float(loss_of_all(sgd_steps(model, 30)))
        assert_equal_on_all_ranks(flat(model))
        assert got < 1.1 * expected + 0.02, f"{name}: {got}, densely {expected}"


def sgd_steps(model, steps):
    if not isinstance(model, DistributedDataParallel):
        model = DistributedDataParallel(model)
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, step % 4).backward()
        optimizer.step()
    return model


def loss_of_all(model):
    with torch.no_grad():
        total = sum(loss(model, step) for step in range(4)) / 4
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total


@on_ranks(2, 3)
def test_how_ddp_cuts_its_buckets_does_not_matter():
    for name, make in ALL.items():
        results = [flat(train(parallel(make(), network(), mb), steps=4)) for mb in (0.001, 0.02, 25)]
        if name == "random_k" and dist.get_world_size() > 2:
            continue  # what is drawn is summed by the backend, whose order depends on the place in the bucket
        assert all(torch.equal(results[0], other) for other in results[1:]), name


@on_ranks(2, 3)
def test_a_job_goes_on_from_its_checkpoint_bit_for_bit():
    for name, make in ALL.items():
        if name == "random_k" and dist.get_world_size() > 2:
            continue
        for named in (False, True):
            def begin(model):
                state = make()
                ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
                if named:
                    hooks.register(ddp, state)
                else:
                    ddp.register_comm_hook(state, hooks.hook)
                return ddp, state

            def go_on(ddp, steps):
                optimizer = sgd(ddp)
                for step in steps:
                    optimizer.zero_grad()
                    loss(ddp, step).backward()
                    optimizer.step()

            whole, _ = begin(network())
            go_on(whole, range(6))
            half, state = begin(network())
            go_on(half, range(3))
            saved = (half.module.state_dict(), state.state_dict())
            if named:
                assert set(saved[1]["residuals"]) == set(half.module.state_dict())
            rest, state = begin(network())
            rest.module.load_state_dict(saved[0])
            state.load_state_dict(saved[1])
            go_on(rest, range(3, 6))
            assert torch.equal(flat(whole), flat(rest)), f"{name}, named: {named}"
            # Without the residuals it would be another training.
            other, _ = begin(network())
            other.module.load_state_dict(saved[0])
            go_on(other, range(3, 6))
            assert not torch.equal(flat(whole), flat(other)), name


@on_ranks(2, 3)
def test_what_is_not_a_number_reaches_all_ranks_and_is_forgotten():
    for name, make in (ALL | {"auto": hooks.auto}).items():
        for bad in (math.nan, math.inf, -math.inf):
            model = parallel(make())
            gradients = given_gradients(0, dist.get_rank())
            if dist.get_rank() == 1:
                gradients[0][777] = bad
                gradients[3][5] = bad
            parts = averaged(model, gradients)
            for i in (0, 3):
                assert not parts[i].isfinite().all(), f"{name}: {bad} was lost"
            assert parts[4].isfinite().all(), name
            for part in averaged(model, given_gradients(1, dist.get_rank())):
                assert part.isfinite().all(), f"{name}: {bad} came again"


@on_ranks(2)
def test_a_step_that_is_thrown_away_leaves_residuals_as_they_were():
    for name, make in ALL.items():
        for dtype in (torch.float32, torch.float16):
            model, untouched = parallel(state := make(), Given(dtype=dtype)), parallel(other := make(), Given(dtype=dtype))
            for kept in (model, untouched):
                averaged(kept, given_gradients(0, dist.get_rank(), dtype=dtype))
            bad = given_gradients(1, dist.get_rank(), dtype=dtype)
            bad[0][7] = math.inf if dist.get_rank() == 1 else 0  # in the bucket that is sent last, and on one rank
            averaged(model, bad)
            other._step = state._step  # by which some draw
            for after, clean in zip(averaged(model, given_gradients(2, dist.get_rank(), dtype=dtype)),
                                    averaged(untouched, given_gradients(2, dist.get_rank(), dtype=dtype))):
                assert torch.equal(after, clean), name
            averaged(model, bad)
            before = other.state_dict()
            for what in {"residuals", "shard_residuals"} & before.keys():
                after = state.state_dict()[what]
                assert after.keys() == before[what].keys()
                assert dtype == torch.float16 or any(part.any() for part in after.values()), name
                for number, part in after.items():
                    assert torch.equal(part, before[what][number]), f"{name}: {what} of {number}"


@on_ranks(2)
def test_large_gradients_are_finite_too():
    model = parallel(state := hooks.top_k(0.1), Given(dtype=torch.float16))
    averaged(model, [torch.full((size,), 6e4, dtype=torch.float16) for size in SIZES])  # whose sum a half cannot hold
    assert any(part.any() for part in state.state_dict()["residuals"].values())


@on_ranks(2, 3, 4)
def test_the_wire_carries_what_was_promised():
    ranks, count = dist.get_world_size(), 400_000
    gradients = given_gradients(0, dist.get_rank(), (count,))
    dense = 2 * (ranks - 1) / ranks * 4 * count
    others = ranks - 1
    promised = {
        "fp16": (hooks.fp16(), dense / 2),
        "bf16": (hooks.bf16(), dense / 2),
        "int8": (hooks.int8(), dense * (1 + 4 / 256) / 4),
        "int4": (hooks.int4(), dense * (1 + 8 / 64) / 8),
        "top_k": (hooks.top_k(0.01), others * 8 * 4000),
        "random_k": (hooks.random_k(0.05), 2 * others / ranks * 4 * 20_000),
        "block_top_k": (hooks.block_top_k(0.01, 64), others * (4 + 4 * 64) * 63),
    }
    group = talweg.torch.backend()
    for name, (state, expected) in promised.items():
        model = parallel(state, Given((count,)), 25)
        dist.barrier()
        before = group.statistics()["bytes_sent"]
        steps = 5
        for _ in range(steps):
            averaged(model, gradients)
        dist.barrier()
        sent = torch.tensor(float(group.statistics()["bytes_sent"] - before))
        dist.all_reduce(sent, dist.ReduceOp.AVG)
        # Frames have headers, short ones relatively long ones. A tree may carry more than a ring at some ranks.
        assert float(sent) / steps < 1.15 * expected + 4000, f"{name}: {float(sent) / steps} bytes, {expected} promised"
        told = state.statistics()
        assert told["sent_bytes"] / steps == pytest.approx(expected, rel=0.02), name
        assert told["buckets"] == steps and told["gradient_bytes"] == steps * 4 * count
        assert told["ratio"] == pytest.approx(dense / expected, rel=0.02)


@on_ranks(2, 3)
def test_auto_loses_nothing_and_chooses():
    sizes = (4096, 64 * 500)
    state = hooks.auto()
    model, plain = parallel(state, Given(sizes), 25), DistributedDataParallel(Given(sizes))
    for step in range(24):
        gradients = given_gradients(step, dist.get_rank(), sizes)
        if 4 <= step < 16:  # a few rows, as of an embedding; the first parameter has none
            keep = torch.zeros(500, 1)
            keep[step * 10:step * 10 + 7] = 1
            gradients = [gradients[0] * 0, (gradients[1].view(500, 64) * keep).flatten()]
        for got, expected in zip(averaged(model, gradients), averaged(plain, gradients)):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)  # another order of sums
            assert_equal_on_all_ranks(got)
    told = state.statistics()
    assert told["dense"] + told["elements"] + told["blocks"] == told["buckets"]
    assert told["blocks"] >= 6 and told["dense"] >= 10, told
    assert told["sent_bytes"] < told["dense_bytes"]


@on_ranks(3)
def test_a_recommender_learns_the_same_however_its_gradients_travel():
    gloo = dist.new_group(backend="gloo")
    untrained = train_recommender.train("dense", 1, 1000, 16)[0]
    densely = train_recommender.train("dense", 60, 1000, 16, group=gloo)[0]
    assert densely < 0.95 * untrained
    for form in train_recommender.FORMS:
        reached, _, state = train_recommender.train(form, 60, 1000, 16, ratio=0.1)
        # What was not among the largest waits: some of what was learned may be missing yet.
        slack = 0.15 if form.endswith("top_k") else 0.03
        assert reached - densely < slack * (untrained - densely), f"{form}: {reached}, over gloo {densely}"
        if state:
            assert state.statistics()["ratio"] > 1.5, form


@on_ranks(3)
def test_sparse_gradients_are_summed_exactly():
    results = []
    for compress in (False, True):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True))
        if compress:
            model.register_comm_hook(hooks.int4(), hooks.hook)
        optimizer = sgd(model)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([[step, 7 + dist.get_rank()]])).sum().backward()
            optimizer.step()
        results.append(flat(model))
    assert_equal_on_all_ranks(results[1])
    torch.testing.assert_close(*results)


@on_ranks(2)
def test_halves_are_taken_and_doubles_refused():
    for dtype in (torch.float16, torch.bfloat16):
        for name, make in (ALL | {"auto": hooks.auto}).items():
            model = parallel(make(), Given(dtype=dtype))
            for part in averaged(model, given_gradients(0, dist.get_rank(), dtype=dtype)):
                assert part.dtype == dtype
                assert_equal_on_all_ranks(part)
    model = parallel(hooks.int8(), Given(dtype=torch.float64))
    with pytest.raises(TypeError, match="takes gradients of float32, float16 or bfloat16, not torch.float64"):
        averaged(model, given_gradients(0, 0, dtype=torch.float64))


@on_ranks(3)
def test_gloo_comes_to_the_same_bits():
    gloo = dist.new_group(backend="gloo")
    for name, make in ALL.items():
        results = [flat(train(parallel(make(process_group=group), network(), group=group), steps=4))
                   for group in (None, gloo)]
        assert name == "random_k" or torch.equal(*results), name
        torch.testing.assert_close(*results)


@on_ranks(2)
def test_a_rank_that_leaves_is_an_error_on_the_others():
    models = [parallel(state) for state in (hooks.top_k(0.5), hooks.threshold(0.5), hooks.int8(), hooks.auto())]
    for model in models:
        averaged(model, given_gradients(0, dist.get_rank()))
    dist.barrier()
    if dist.get_rank() == 1:
        return
    for model in models:
        with pytest.raises(RuntimeError, match="talweg.*error"):
            averaged(model, given_gradients(1, 0))


@on_ranks(1)
def test_one_rank_alone_is_served():
    for make in (ALL | {"auto": hooks.auto}).values():
        assert all(part.isfinite().all() for part in averaged(parallel(make()), given_gradients(0, 0)))


@on_ranks(2)
def test_half_of_the_ranks_may_have_a_group_of_their_own():
    for ranks in ((0,), (1,)):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            model = parallel(hooks.int8(process_group=group), network(), group=group)
            train(model, steps=2)


@on_ranks(2)
def test_bad_arguments_get_one_clear_line():
    for make, error, words in [
        (lambda: hooks.int8(block=100), ValueError, "int8: block must be a multiple of 16 from 16 to 1024, not 100"),
        (lambda: hooks.int4(block=2048), ValueError, "int4: block must be a multiple of 16 from 16 to 1024, not 2048"),
        (lambda: hooks.int8(block=64.0), ValueError, "block must be a whole number above 0, not 64.0"),
        (lambda: hooks.int8(seed=-1), ValueError, "seed must be a whole number"),
        (lambda: hooks.top_k(0), ValueError, "ratio must be above 0 and up to 1, not 0"),
        (lambda: hooks.random_k(1.5), ValueError, "ratio must be above 0 and up to 1, not 1.5"),
        (lambda: hooks.block_top_k("all"), ValueError, "ratio must be above 0 and up to 1, not 'all'"),
        (lambda: hooks.block_top_k(0.1, block=0), ValueError, "block must be a whole number above 0, not 0"),
        (lambda: hooks.threshold(math.nan), ValueError, "threshold: t must be a number above 0, not nan"),
        (lambda: hooks.auto(block=-5), ValueError, "block must be a whole number above 0, not -5"),
        (lambda: hooks.hook(None, None), TypeError, "takes a state that talweg.torch.hooks.int8"),
        (lambda: hooks.register(network(), hooks.top_k(0.1)), TypeError, "takes a DistributedDataParallel, not Sequential"),
        (lambda: hooks.register(DistributedDataParallel(network()), None), TypeError, "register.. takes a state that .*, not None"),
        (lambda: talweg.torch.backend(5), TypeError, "backend: group: expected a ProcessGroup or None, got 5"),
        (lambda: hooks.int8().load_state_dict(5), TypeError, "load_state_dict.. takes what state_dict.. has made, not int"),
    ]:
        with pytest.raises(error, match=words) as caught:
            make()
        assert "\n" not in str(caught.value)


@on_ranks(2)
def test_states_that_do_not_fit_get_one_clear_line():
    model, state = DistributedDataParallel(network()), hooks.int8()
    hooks.register(model, state)
    for again in (model, DistributedDataParallel(network())):
        with pytest.raises(ValueError, match=r"^register: talweg.torch.hooks.int8\(.*\) is registered already: expected a state of its own"):
            hooks.register(again, state)
    train(model, steps=1)
    saved = state.state_dict()
    for change, words in [
        ({"compression": "int4()"}, r"this state is of int4\(\), not of int8"),
        ({"rank": 7}, f"saved by rank 7 of 2, and this is rank {dist.get_rank()} of 2"),
        ({"residuals": 5}, "this is not a state of .*: its residuals are no tensors by parameter"),
        ({"shard_residuals": {"0.weight": 5}}, "its shard_residuals are no tensors by parameter"),
        ({"residuals": {"nowhere": torch.zeros(1)}}, "has a parameter nowhere, which the model does not have"),
    ]:
        with pytest.raises(ValueError, match=words):
            state.load_state_dict(saved | change)
    with pytest.raises(ValueError, match=r"this is not a state of talweg.torch.hooks.int8\(.*it has no shard_residuals"):
        state.load_state_dict({name: kept for name, kept in saved.items() if name != "shard_residuals"})
    with pytest.raises(ValueError, match="parameters by name: use register"):
        hooks.int8().load_state_dict(saved)
    with pytest.raises(ValueError, match="parameters are named before the first backward pass"):
        state.name_parameters([])
    state.load_state_dict(saved | {"residuals": {"0.weight": torch.zeros(3)}})
    with pytest.raises(ValueError, match="residual of parameter 0 has 3 elements, but 1280 are needed"):
        train(model, steps=1)


@on_ranks(2)
def test_a_hook_needs_a_backend_for_the_cpu():
    class Elsewhere:
        def __getattr__(self, name):
            raise AssertionError(name)

    configured = dist.get_backend_config
    dist.get_backend_config = lambda group: "cuda:nccl"
    try:
        with pytest.raises(ValueError, match=r"top_k\(0.5\) needs a process group with a backend for CPU tensors; this one has cuda:nccl"):
            hooks.top_k(0.5, process_group=Elsewhere())
    finally:
        dist.get_backend_config = configured
