"""Hooks whose chosen gradients go by a switch: they come to what gathering comes to, and what is counted is what travels."""

import itertools
import math
import re
import time
import warnings

import pytest
import torch
import torch._dynamo  # noqa: F401  (DDP does: once, not in every rank that is forked)
import torch.distributed as dist
from given import averaged, given_gradients, parallel
from ranks import on_ranks, run
from switched import had_by_the_switch, served_switch

import talweg.torch
from talweg.torch import hooks

BY_SWITCH = {
    "top_k": lambda **o: hooks.top_k(0.05, **o),
    "threshold": lambda **o: hooks.threshold(1.5, **o),
    "block_top_k": lambda **o: hooks.block_top_k(0.1, 32, **o),
}


def sums_by_switch():
    switch = re.search(r"^switch: .*?, (\d+) sum", talweg.torch.backend().describe(), re.MULTILINE)
    return int(switch[1])


def wait_for_the_switch():
    there = torch.tensor([0.0])
    while not there:
        there[0] = sums_by_switch() > 0
        dist.all_reduce(there, dist.ReduceOp.PRODUCT)
        dist.all_reduce(torch.ones(100))


def had_so_far():
    """As had_by_the_switch(), once all ranks have come here."""
    dist.barrier()
    had = torch.tensor(had_by_the_switch() if dist.get_rank() == 0 else [0, 0])
    dist.broadcast(had, 0)
    return had


def sent_by_all(state):
    sent = torch.tensor([state.statistics()["sent_bytes"]])  # integers of 64 bits: no switch sums them
    dist.all_reduce(sent)
    return int(sent)


def comes_to_the_same_by_the_switch(ranks, sparse):
    wait_for_the_switch()
    block_bytes = 4 * talweg.torch.backend().switch_terms()["block"]
    for name, make in BY_SWITCH.items():
        state, other = make(by_switch=True), make()
        before = had_so_far()
        model, plain = parallel(state), parallel(other)
        for step in range(4):
            gradients = given_gradients(step, dist.get_rank())
            others = sums_by_switch() - state.statistics()["buckets"]
            got = averaged(model, gradients)
            # All buckets, and nothing else.
            assert sums_by_switch() - state.statistics()["buckets"] == others, talweg.torch.backend().describe()
            for part, expected in zip(got, averaged(plain, gradients)):
                assert torch.equal(part != 0, expected != 0), name
                # Two floats add up to the same in either order.
                torch.testing.assert_close(part, expected, rtol=0 if ranks == 2 else 1e-6, atol=0 if ranks == 2 else 1e-7)
            same = [part.clone() for part in got]
            for part in same:
                dist.broadcast(part, 0)
            assert all(torch.equal(part, mine) for part, mine in zip(same, got)), name
            assert_residuals_are_equal(state, other)
        # What a state counts is what the switch has had, without headers. The last block of a bucket may be short.
        (blocks, received), sent = (had_so_far() - before).tolist(), sent_by_all(state)
        assert 0 < sent < received, (name, sent, received)
        if sparse == "1":
            least = (blocks - ranks * state.statistics()["buckets"]) * block_bytes
            assert least < sent <= blocks * block_bytes, (name, sent, blocks)
        assert "by_switch=True" in repr(state) and "by_switch" not in repr(other)
        loaded = make()
        loaded.load_state_dict(state.state_dict())
        assert_residuals_are_equal(loaded, other)
        loaded = make(by_switch=True)
        loaded.load_state_dict(other.state_dict())
        assert_residuals_are_equal(loaded, other)


def assert_residuals_are_equal(state, other):
    mine, theirs = state.state_dict()["residuals"], other.state_dict()["residuals"]
    assert mine.keys() == theirs.keys() and any(part.any() for part in mine.values())
    for number, part in mine.items():
        assert torch.equal(part, theirs[number])


@pytest.mark.parametrize("sparse", ["pairs", "1", "auto"])
def test_what_is_chosen_comes_to_the_same_by_the_switch(monkeypatch, sparse):
    with served_switch(monkeypatch, sparse):
        for ranks in (2, 3):
            run(ranks, comes_to_the_same_by_the_switch, (ranks, sparse))


def is_forgotten_by_the_switch_too():
    wait_for_the_switch()
    for name, make in BY_SWITCH.items():
        for bad in (math.nan, math.inf):
            model = parallel(state := make(by_switch=True))
            before = sums_by_switch()
            gradients = given_gradients(0, dist.get_rank())
            if dist.get_rank() == 1:
                gradients[3][5] = bad
            parts = averaged(model, gradients)
            assert not parts[3].isfinite().all(), f"{name}: {bad} was lost"
            assert parts[0].isfinite().all(), name
            for part in averaged(model, given_gradients(1, dist.get_rank())):
                assert part.isfinite().all(), f"{name}: {bad} came again"
            assert sums_by_switch() - before == state.statistics()["buckets"] > 0, talweg.torch.backend().describe()


def test_what_is_not_a_number_comes_by_the_switch_and_is_forgotten(monkeypatch):
    with served_switch(monkeypatch, "pairs"):
        run(2, is_forgotten_by_the_switch_too)


def counts_what_it_gives_to_the_switch(ranks):
    wait_for_the_switch()
    model = parallel(state := hooks.bounded_loss(0.01))
    deadline = time.monotonic() + 120
    for step in itertools.count():  # at first its job may not be open, and buckets go from rank to rank
        before = state.statistics()
        averaged(model, given_gradients(step, dist.get_rank()))
        now = {name: count - before[name] for name, count in state.statistics().items()}
        assert now["dense_bytes"] == 2 * (ranks - 1) * now["gradient_bytes"] // ranks
        if now["by_switch"] == now["buckets"]:
            assert now["sent_bytes"] == now["gradient_bytes"] > 0
            return
        assert now["by_switch"] or now["sent_bytes"] == now["dense_bytes"]
        assert time.monotonic() < deadline, "no step's buckets have all gone by the switch"


def test_sums_that_may_lose_a_part_count_what_went_to_the_switch(monkeypatch):
    with served_switch(monkeypatch):
        run(3, counts_what_it_gives_to_the_switch, (3,))


def is_refused_by_switch(words):
    for make in BY_SWITCH.values():
        with pytest.raises(ValueError, match=words) as caught:
            make(by_switch=True)
        assert "\n" not in str(caught.value)


def test_by_switch_wants_one_that_sums_sparse_vectors(monkeypatch):
    no_switch = "by_switch needs a process group for which a switch sums: set TALWEG_SWITCH, and TALWEG_ALGO to switch"
    run(2, is_refused_by_switch, (no_switch,))
    with served_switch(monkeypatch, "pairs", "ring"):
        run(2, is_refused_by_switch, (no_switch,))
    with served_switch(monkeypatch):
        run(2, is_refused_by_switch, ("by_switch: what is zero would travel to the switch: set TALWEG_SWITCH_SPARSE to pairs, 1 or auto",))
    # Whole buckets, which are all that is compared then, are quicker by trees.
    for sparse in ("pairs", "1"):
        with served_switch(monkeypatch, sparse, ""):
            run(2, is_refused_by_switch, ("by_switch: buckets would go whole, by trees, .*: set TALWEG_ALGO to switch, or .* to auto",))
    run(1, is_taken_alone)


def what_goes_by_trees_is_counted_so():
    for name, make in BY_SWITCH.items():
        model = parallel(state := make(by_switch=True))
        for step in range(3):
            averaged(model, given_gradients(step, dist.get_rank()))
        told = state.statistics()
        assert told["sent_bytes"] == told["dense_bytes"] > 0, name


def test_small_buckets_go_by_trees_where_the_quickest_way_is_chosen(monkeypatch):
    with served_switch(monkeypatch, "auto", ""):
        run(2, what_goes_by_trees_is_counted_so)


def is_warned_of_blocks():
    for name, make in BY_SWITCH.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(by_switch=True)
        told = [str(warning.message) for warning in caught if "TALWEG_SWITCH_SPARSE=1" in str(warning.message)]
        assert len(told) == (0 if name == "block_top_k" else 1), (name, told)


def test_single_elements_in_blocks_are_warned_of(monkeypatch):
    with served_switch(monkeypatch, "1"):
        run(2, is_warned_of_blocks)


def is_taken_alone():
    for make in BY_SWITCH.values():
        model, plain = parallel(make(by_switch=True)), parallel(make())
        for part, expected in zip(averaged(model, given_gradients(0, 0)), averaged(plain, given_gradients(0, 0))):
            assert torch.equal(part, expected)


@on_ranks(2)
def test_by_switch_is_of_talweg_alone():
    group = dist.new_group(backend="gloo")
    for make in BY_SWITCH.values():
        with pytest.raises(ValueError, match="by_switch: .*talweg"):
            make(process_group=group, by_switch=True)
    dist.barrier()  # gloo's ranks connect one by one: who is done waits for who is not
