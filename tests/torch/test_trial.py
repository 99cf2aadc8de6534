"""try_plan(): a plan stays where its steps are quicker, on all ranks alike, and the training is as it would be. Times are given,
not measured."""

import contextlib
import itertools
import statistics
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from test_plan import PLANS, buckets_of, parallel, planned_parameters
from test_record import MODES, backends
from training import assert_equal_on_all_ranks, flat, loss, network, sgd, train

from talweg import _plan, _sending, _trial
from talweg.torch import apply_plan, record, try_plan

PLAN = PLANS[1]
NEEDED = 2 * 3 * (_trial.WARM_UP + 1)  # steps of a trial with steps=1
ORDER = [False, True, True, False, False, True]  # the windows of three turns: whether each is planned


def trial_of(model, own_s, planned_s, plan=PLAN):
    """One for whose clock a step takes so long by what the model follows (or as a function of the window says)."""
    trial = try_plan(model, plan, 1)
    at = [0.0]

    def now():
        seconds = planned_s if _sending.plan_of(model) == trial._plan else own_s
        at[0] += seconds(len(trial._windows)) if callable(seconds) else seconds
        return at[0]

    trial._now = now
    return trial


def assert_nothing_left(model):
    assert not model._forward_pre_hooks and model not in _sending.tried
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


@on_ranks(2)
def test_a_plan_stays_where_it_is_quicker_and_the_bits_are_the_same():
    for group in backends():
        for planned_s, options in zip((0.5, 2.0, 0.5, 2.0, 2.0, 0.5), (*MODES, *MODES[:2])):
            model, plain = parallel(group, **options), parallel(group, **options)
            own = buckets_of(model)
            with trial_of(model, 1.0, planned_s) as trial:
                train(model, steps=NEEDED + 2)
            assert trial.done and trial.kept == (planned_s < 1) and trial.notes == []
            assert (trial.gain, trial.step_ms, trial.planned_ms) == pytest.approx((1 / planned_s, 1e3, 1e3 * planned_s))
            assert torch.equal(flat(model), flat(train(plain, steps=NEEDED + 2)))  # sums of two have one order only
            train(model, steps=2)
            assert buckets_of(model) == (planned_parameters(PLAN) if trial.kept else own)
            assert (model in _sending._senders) == trial.kept
            assert_nothing_left(model)


@on_ranks(3)
def test_all_ranks_decide_alike_though_their_own_times_differ():
    for slowest, kept in ((1.4, True), (1.8, False)):  # the mean of 0.7, 0.7 and this
        model = parallel()
        with trial_of(model, 1.0, slowest if dist.get_rank() == 1 else 0.7) as trial:
            train(model, steps=NEEDED)
        assert trial.kept == kept and trial.gain == pytest.approx(3 / (1.4 + slowest))
        train(model)
        assert_equal_on_all_ranks(flat(model))


@on_ranks(1)
def test_the_median_of_the_turns_counts_and_each_is_compared_with_itself():
    own, planned = [1.0, 0, 0, 3.0, 9.0, 0], [0, 0.5, 2.0, 0, 0, 10.0]
    with trial_of(model := parallel(), own.__getitem__, planned.__getitem__) as trial:
        train(model, steps=NEEDED)
    assert trial.gain == pytest.approx(statistics.median((1 / 0.5, 3 / 2, 9 / 10))) and trial.kept
    assert (trial.step_ms, trial.planned_ms) == pytest.approx((3e3, 2e3))


@on_ranks(1)
def test_steps_that_settle_do_not_count_and_of_the_others_the_median_does():
    model, steps = parallel(), iter([0.0, 1.0, 1.0, 7.0] * 6)
    trial, at = try_plan(model, PLAN, steps=3), [0.0]

    def now():
        at[0] += 100 if trial._begun % 6 == 1 and not trial._stamps else next(steps)
        return at[0]

    trial._now = now
    with trial:
        train(model, steps=2 * 3 * 6)
    assert (trial.step_ms, trial.planned_ms) == pytest.approx((1e3, 1e3)) and not trial.kept


@on_ranks(2)
def test_passes_that_accumulate_or_do_not_train_are_no_steps():
    model, plain, sent = parallel(), parallel(), []

    def step(model, optimizer, number):
        with torch.no_grad():
            model(torch.ones(2, 20))
        with model.no_sync():
            loss(model, 3 * number).backward()
        (loss(model, 3 * number + 1) + loss(model, 3 * number + 2)).backward()  # one backward pass of two forward passes
        optimizer.step()
        optimizer.zero_grad()

    with trial_of(model, 1.0, 2.0) as trial:
        optimizer = sgd(model)
        while not trial.done:
            sent.append(len(sent))
            step(model, optimizer, sent[-1])
            sent[-1] = _sending.plan_of(model) is not None
    assert sent == [planned for planned in ORDER for _ in range(_trial.WARM_UP + 1)] + [False]
    optimizer = sgd(plain)
    for number in range(len(sent)):
        step(plain, optimizer, number)
    assert torch.equal(flat(model), flat(plain))


@on_ranks(2)
def test_a_static_graph_changes_where_it_may():
    model, plain = parallel(static_graph=True), parallel(static_graph=True)

    def step(model, optimizer, number, accumulates):
        if accumulates:
            with model.no_sync():
                loss(model, 2 * number).backward()
        loss(model, 2 * number + 1).backward()
        optimizer.step()
        optimizer.zero_grad()

    def run(model):
        optimizer = sgd(model)
        for number in range(NEEDED + 2):
            step(model, optimizer, number, number > 0)  # torch wants the first pass of such a graph to synchronise

    with trial_of(model, 1.0, 0.5) as trial:
        run(model)
    assert trial.kept
    run(plain)
    assert torch.equal(flat(model), flat(plain))


def hook(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


@on_ranks(2)
def test_a_communication_hook_that_comes_meanwhile_is_not_lost():
    model = parallel()
    trial = trial_of(model, 1.0, 0.5)
    model.register_comm_hook(None, hook)
    with pytest.raises(ValueError, match="^try_plan: the model has a communication hook"), trial:
        pass
    assert_nothing_left(model)
    model, calls = parallel(), []
    with pytest.raises(ValueError, match="^try_plan: the model has a communication hook"), trial_of(model, 1.0, 0.5):
        train(model, steps=2)
        model.register_comm_hook(calls, lambda calls, bucket: calls.append(0) or hook(None, bucket))
        train(model, steps=NEEDED)
    assert_nothing_left(model)
    calls.clear()
    train(model, steps=2)
    assert calls


@on_ranks(1)
def test_nothing_is_left_where_changing_fails(monkeypatch):
    model = parallel()

    def broken(model, plan):
        raise RuntimeError("cannot change")

    with pytest.raises(RuntimeError, match="^cannot change$"), trial_of(model, 1.0, 0.5):
        train(model, steps=_trial.WARM_UP + 1)
        monkeypatch.setattr(_trial._plan, "follow", broken)  # the end of the block is the first to change
    assert_nothing_left(model)


@on_ranks(2)
def test_ddps_own_buckets_are_there_where_a_change_fails_half_way():
    def renames(_):
        model.module._modules["9"] = model.module._modules.pop("4")  # of which the plan knows nothing

    def breaks(patch):
        def fails(*_):
            raise RuntimeError("no new reducer")

        patch.setattr(_plan, "_replace_reducer", fails)

    for way, error, said in ((renames, ValueError, "the model has no layer '4'"), (breaks, RuntimeError, "no new reducer")):
        for steps in (2, _trial.WARM_UP + 1):  # in the loop, or as late as at the end of the block
            model = parallel()
            with pytest.raises(error, match=said), pytest.MonkeyPatch.context() as patch, trial_of(model, 1.0, 0.5):
                train(model, steps=steps)
                way(patch)
                train(model, steps=_trial.WARM_UP + 1 - steps)
                if steps == 2:
                    train(model)
            assert_nothing_left(model)
            assert model not in _sending._senders
            train(model, steps=3)
            assert_equal_on_all_ranks(flat(model))


@on_ranks(2)
def test_what_is_frozen_meanwhile_is_reduced_when_it_is_unfrozen():
    for planned_s, frozen_at in ((0.5, 0), (2.0, 0), (2.0, 2)):
        model, plain = (parallel(find_unused_parameters=True) for _ in range(2))
        for one in (model, plain):
            optimizer = sgd(one)
            train(one, optimizer, steps=2)
            with trial_of(model, 1.0, planned_s) if one is model else contextlib.nullcontext() as trial:
                train(one, optimizer, steps=frozen_at)
                one.module[0].requires_grad_(False)
                train(one, optimizer, steps=NEEDED + 1 - frozen_at)
            assert one is plain or trial.kept == (planned_s < 1)
            assert not any(p.requires_grad for p in one.module[0].parameters())
            one.module[0].requires_grad_(True)
            train(one, optimizer, steps=3)
        assert torch.equal(flat(model), flat(plain))
        assert_equal_on_all_ranks(flat(model))


@on_ranks(2)
def test_warnings_that_are_errors_come_when_no_rank_waits_for_another():
    model = parallel(dist.new_group(backend="gloo"))
    for steps, said in ((NEEDED, "^try_plan: priorities need the talweg backend"), (5, "^try_plan: 5 steps were seen")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match=said) if dist.get_rank() == 0 else contextlib.nullcontext():
                with trial_of(model, 1.0, 0.5) as trial:
                    train(model, steps=steps)
        assert trial.done == (steps == NEEDED)
        assert_nothing_left(model)
        train(model, steps=3)
        assert_equal_on_all_ranks(flat(model))


@on_ranks(2)
def test_what_is_put_back_is_the_plan_that_the_model_had():
    model = parallel()
    apply_plan(model, PLANS[0])
    for plan in (PLANS[5], None):
        for planned_s, kept in ((2.0, PLANS[0]), (0.5, plan)):
            with trial_of(model, 1.0, planned_s, plan) as trial:
                train(model, steps=NEEDED)
            train(model, steps=3)
            assert buckets_of(model) == (planned_parameters(kept) if kept else buckets_of(train(parallel(), steps=3)))
            assert trial.kept == (planned_s < 1)
            apply_plan(model, PLANS[0])


@on_ranks(2)
def test_a_block_that_ends_too_early_puts_back_what_was_there():
    own = buckets_of(train(parallel(), steps=3))
    for steps in (0, 6, NEEDED - 1):
        model = parallel()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with trial_of(model, 1.0, 0.5) as trial:
                train(model, steps=steps)
        said = f"{steps} steps were seen of the {NEEDED} needed: the plan is not kept"
        assert trial.notes == [said] and not trial.done and not trial.kept and trial.gain is None
        heard = [str(one.message) for one in caught if "try_plan" in str(one.message)]
        assert heard == ([f"try_plan: {said}"] if dist.get_rank() == 0 else [])
        assert_nothing_left(model)
        train(model, steps=3)
        assert buckets_of(model) == own and model not in _sending._senders


@on_ranks(2)
def test_an_error_passes_and_needs_no_other_rank():
    for before, steps in itertools.product((None, PLANS[0]), (2, 6)):
        model = parallel()
        apply_plan(model, before)
        with pytest.raises(KeyError, match="mine"):
            with trial_of(model, 1.0, 0.5):
                train(model, steps=steps)
                assert (_sending.plan_of(model) is None) == (before is None and steps == 2)
                if dist.get_rank() == 0:
                    raise KeyError("mine")
                # The other rank is not there to be asked, until it fails, too.
                dist.barrier()
                raise KeyError("mine")
        assert _sending.plan_of(model) is None and model not in _sending._senders
        if dist.get_rank() == 0:
            dist.barrier()
        assert_nothing_left(model)
        assert buckets_of(train(model, steps=3)) == buckets_of(train(parallel(), steps=3))
        assert_equal_on_all_ranks(flat(model))


@on_ranks(2)
def test_uneven_inputs_are_not_tried():
    model = parallel()
    with pytest.warns(UserWarning) if dist.get_rank() == 0 else warnings.catch_warnings():
        with trial_of(model, 1.0, 0.5) as trial, model.join():
            train(model, steps=NEEDED + dist.get_rank())
    assert trial.notes[0].startswith("0 steps were seen")


@on_ranks(2)
def test_what_cannot_be_tried_is_refused_in_one_line_on_all_ranks(tmp_path):
    model = parallel()

    def refused(error, pattern, model=model, plan=PLAN, **options):
        with pytest.raises(error, match=pattern) as caught:
            with try_plan(model, plan, **options):
                pass
        assert "\n" not in str(caught.value)

    refused(ValueError, "^try_plan: expected a model in DistributedDataParallel, got Sequential$", network())
    refused(TypeError, "^try_plan: steps: expected an int, got '3'$", steps="3")
    refused(TypeError, "^try_plan: turns: expected an int, got True$", turns=True)
    refused(ValueError, "^try_plan: steps: expected at least 1, got 0$", steps=0)
    refused(ValueError, "^try_plan: turns: expected at least 1, got -1$", turns=-1)
    refused(TypeError, r"^try_plan: plan: expected a file, a dict or None, got 5 \(int\)", plan=5)
    refused(ValueError, f"^try_plan: {tmp_path}/no.json: No such file or directory$", plan=tmp_path / "no.json")
    refused(ValueError, "^try_plan: no bucket has '2.weight'", plan={"buckets": [{"layers": ["0", "4"]}]})
    refused(ValueError, "^try_plan: rank 1 has another plan than rank 0$", plan=PLANS[dist.get_rank()])
    refused(ValueError, "^try_plan: rank 1 has other steps or turns than rank 0$", steps=3 + dist.get_rank())
    hooked = parallel()
    hooked.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future())
    refused(ValueError, "^try_plan: the model has a communication hook", hooked)
    assert model not in _sending._senders
    with record(model, 1, 2, job=None):
        refused(ValueError, "^try_plan: the model is being recorded$")
        train(model, steps=4)
    with trial_of(model, 1.0, 0.5) as trial:
        refused(ValueError, "^try_plan: a plan is being tried on the model$")
        with pytest.raises(ValueError, match="^record: a plan is being tried on the model$"), record(model, job=None):
            pass
        with pytest.raises(ValueError, match="^apply_plan: a plan is being tried on the model$"):
            apply_plan(model, None)
        train(model, steps=NEEDED + 1)
        apply_plan(model, None)  # it is decided
    with pytest.raises(ValueError, match="^try_plan: this trial was used before: make a new one for each block$"), trial:
        pass


@on_ranks(1)
def test_on_a_device_its_own_clock_counts(monkeypatch):
    class Event:
        def __init__(self, at):
            self.at = at

        def elapsed_time(self, other):
            assert waited
            return other.at - self.at

    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    trial = try_plan(parallel(), PLAN)
    trial._device = torch.device("cuda")
    trial._stamps = [Event(at) for at in (0, 5, 8, 20)]
    assert trial._median_ms() == 5
