"""apply_plan(): DDP sends exactly the plan's buckets, and everything else stays DDP's."""

import contextlib
import json
import os
import subprocess
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run
from test_programs import program
from test_record import MODES, backends, names_of, recorded
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from training import assert_equal_on_all_ranks, assert_near, flat, loss, network, serial, sgd, train

import talweg.torch
from talweg import _sending
from talweg.torch import apply_plan

# Of layers 0, 2 and 4, which the backward pass reaches in the order 4, 2, 0.
PLANS = (
    {"buckets": [{"layers": ["4"]}, {"layers": ["2"]}, {"layers": ["0"]}]},
    {"buckets": [{"layers": ["4", "0"]}, {"layers": ["2"], "priority": 3}]},
    {"buckets": [{"layers": ["0.bias", "2"]}, {"layers": ["4.weight"]}, {"layers": ["0.weight", "4.bias"], "priority": 7}]},
    {"buckets": [{"layers": ["4", "3", "2", "1", "0"]}], "partition": 1000, "credit": 3000},
    {"buckets": [{"layers": ["0"]}, {"layers": ["2", "4"], "priority": 1}], "partition": 2000, "credit": None},
    {"buckets": [{"layers": ["2"]}, {"layers": ["0", "4"]}], "credit": 1},
)


def parallel(group=None, module=None, **options):
    return DistributedDataParallel(module or network(), process_group=group, **options)


def planned_parameters(plan):
    """Of each bucket, as names: a layer's own with the last first."""
    own = {name: [f"{name}.bias", f"{name}.weight"] for name in ("0", "2", "4")} | {"1": [], "3": []}
    return [sorted(p for layer in bucket["layers"] for p in own.get(layer, [layer])) for bucket in plan["buckets"]]


def buckets_of(model):
    return [sorted(name for p in bucket.parameters() for name in names_of(model, p))
            for bucket in model.reducer._get_zeros_like_grad_buckets()]


@on_ranks(2)
def test_rank_0_warns_of_priorities_that_do_nothing():
    over_talweg, over_gloo = (parallel(group) for group in backends())
    for model, plan, warns in ((over_talweg, PLANS[1], False), (over_gloo, PLANS[0], False), (over_gloo, PLANS[1], True)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            apply_plan(model, plan)
        said = [str(one.message) for one in caught if "priorities need the talweg backend" in str(one.message)]
        assert len(said) == (warns and dist.get_rank() == 0)


@on_ranks(2)
def test_a_warning_that_is_an_error_comes_when_the_plan_is_in_place():
    model = parallel(dist.new_group(backend="gloo"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="^apply_plan: priorities") if dist.get_rank() == 0 else contextlib.nullcontext():
            apply_plan(model, PLANS[1])
    assert_equal_on_all_ranks(flat(train(model)))
    assert buckets_of(model) == planned_parameters(PLANS[1])


@on_ranks(2)
def test_what_is_frozen_when_a_plan_comes_is_in_its_buckets():
    model, plain = (parallel(find_unused_parameters=True) for _ in range(2))
    own = buckets_of(model)
    for plan in (PLANS[1], PLANS[0], None):
        for one in (model, plain):
            optimizer = sgd(one)
            one.module[0].requires_grad_(False)
            if one is model:
                apply_plan(model, plan)
            train(one, optimizer, steps=2)
            one.module[0].requires_grad_(True)
            train(one, optimizer, steps=2)
        assert buckets_of(model) == (planned_parameters(plan) if plan else own)
        assert torch.equal(flat(model), flat(plain))


@on_ranks(2, 4)
def test_ddp_sends_the_plans_buckets_and_learns_the_same():
    expected = serial()
    for group in backends():
        for plan, options in [(plan, {}) for plan in PLANS] + [(PLANS[0], mode) for mode in MODES if dist.get_world_size() == 2]:
            model = parallel(group, **options)
            optimizer = sgd(model)
            train(model, optimizer, steps=2)
            model.load_state_dict({f"module.{k}": v for k, v in network().state_dict().items()})
            apply_plan(model, plan)
            got = flat(train(model, optimizer))
            assert buckets_of(model) == planned_parameters(plan)
            assert_near(got, expected)
            assert_equal_on_all_ranks(got)
            if dist.get_world_size() == 2:  # sums of two have one order only
                assert torch.equal(got, flat(train(parallel(group, **options))))


@on_ranks(2)
def test_what_is_sent_is_recorded_as_planned(tmp_path):
    for group in backends():
        model = parallel(group)
        apply_plan(model, PLANS[1])
        recording, _ = recorded_with_plan(model, tmp_path)
        if dist.get_rank() == 0:
            assert [e["layers"] for e in recording.job["exchanges"]] == [["4", "0"], ["2"]]
        apply_plan(model, None)
        recording, _ = recorded(model, tmp_path)
        if dist.get_rank() == 0:
            assert [e["layers"] for e in recording.job["exchanges"]] == [["4", "2", "0"]]


def recorded_with_plan(model, tmp_path):
    with talweg.torch.record(model, 3, 2, job=tmp_path / "job.yaml") as recording:
        train(model, steps=6)
    assert _sending._senders[model].watch is None
    return recording, None


def test_what_was_recorded_is_predicted_and_its_plan_is_run(tmp_path):
    def body():
        model = parallel()
        recorded(model, tmp_path)
        plan, found = tmp_path / "plan.json", None
        if dist.get_rank() == 0:
            done = subprocess.run([program(), "predict", tmp_path / "job.yaml", "--rate", "100Mbit/s,1ms", "-n", "2", "--strategy",
                                   "wfbp", "--json", "-", "-o", plan], capture_output=True, text=True, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert found["measured_us"] > 0 and found["replayed_us"] > 0
            assert found["plan"] == json.loads(plan.read_text())
        dist.barrier()
        apply_plan(model, plan)
        train(model)
        assert buckets_of(model) == [[f"{layer}.bias", f"{layer}.weight"] for layer in ("4", "2", "0")]  # a gradient for each

    run(2, body)


class Root(torch.nn.Module):
    """Has a parameter of its own beside its layers, one of which is called after the class."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.Root = torch.nn.Linear(20, 20), torch.nn.Linear(20, 5)
        self.scale = torch.nn.Parameter(torch.ones(20))

    def forward(self, x):
        return self.Root(self.first(x) * self.scale)


class Tied(torch.nn.Module):
    """The weight of one layer is that of another, too, which has a parameter of its own beside it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.enc, self.dec = torch.nn.Linear(20, 20, bias=False), torch.nn.Linear(20, 20)
        self.dec.weight = self.enc.weight

    def forward(self, x):
        return self.dec(self.enc(x))


class Hollow(torch.nn.Module):
    """One parameter has no elements."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(20, 20, bias=False), torch.nn.Linear(20, 5)
        self.nothing = torch.nn.Parameter(torch.ones(0))

    def forward(self, x):
        return self.last(self.first(x)) + self.nothing.sum()


@pytest.mark.parametrize(("module", "buckets"), [
    (Root, [["Root.bias", "Root.weight"], ["scale"], ["first.bias", "first.weight"]]),
    (Tied, [["dec.bias"], ["enc.weight"]]),
    (Hollow, [["first.weight", "nothing"], ["last.bias", "last.weight"]]),
])  # fmt: skip
def test_a_recorded_models_plan_has_all_its_gradients(module, buckets, tmp_path):
    def body():
        model = parallel(module=module())
        recorded(model, tmp_path)
        plan = tmp_path / "plan.json"
        if dist.get_rank() == 0:
            done = subprocess.run([program(), "predict", tmp_path / "job.yaml", "--rate", "100Mbit/s,1ms", "-n", "2", "--strategy",
                                   "wfbp", "-o", plan], capture_output=True, text=True, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
        dist.barrier()
        apply_plan(model, plan)
        train(model)
        assert sorted(buckets_of(model)) == sorted(buckets)
        assert_equal_on_all_ranks(flat(model))

    run(2, body)


@on_ranks(2)
def test_a_bucket_is_cut_into_as_many_pieces_as_the_plan_says():
    model = parallel()
    started = []
    for plan, pieces in ((PLANS[3], [250] * 23 + [79]), (PLANS[4], [500] * 2 + [344] + [500] * 8 + [485])):
        apply_plan(model, plan)
        train(model, steps=1)
        sender = _sending._senders[model]
        start = sender._pipe._start
        sender._pipe._start = lambda tensor, *rest, start=start: started.append(tensor.numel()) or start(tensor, *rest)
        train(model, steps=1)
        assert started == pieces
        started.clear()


@on_ranks(2)
def test_no_more_is_under_way_than_the_credit_allows():
    model = parallel()
    apply_plan(model, PLANS[3])
    pipe = _sending._senders[model]._pipe
    most, start = [], pipe._start

    def counted(tensor, *rest):
        most.append(pipe._under_way)
        return start(tensor, *rest)

    pipe._start = counted
    train(model, steps=3)
    assert len(most) == 72 and max(most) <= 3000 and pipe._under_way == 0
    assert max(most) > 1000  # several are


@on_ranks(2, 4)
def test_gradients_accumulate_and_wait_as_with_ddp():
    results = []
    for plan in (None, PLANS[1]):
        model = parallel(gradient_as_bucket_view=plan is None)
        train(model, steps=2)
        model.zero_grad()
        with model.no_sync():
            loss(model, 0).backward()
        if plan:
            apply_plan(model, plan)  # what waits in .grad is kept
        with model.no_sync():
            loss(model, 1).backward()
        loss(model, 2).backward()
        results.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert_near(*results)
    assert_equal_on_all_ranks(results[1])


class Partly(torch.nn.Module):
    """One layer is used on rank 0 only, one nowhere."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.always, self.sometimes, self.never = (torch.nn.Linear(20, 5) for _ in range(3))

    def forward(self, x):
        y = checkpoint(self.always, x, use_reentrant=False)
        return y + self.sometimes(x) if dist.get_rank() == 0 else y


@on_ranks(2, 4)
def test_unused_parameters_are_ddps_business():
    plan = {"buckets": [{"layers": ["never", "sometimes"]}, {"layers": ["always"]}]}
    results = []
    # With a credit the map of what was used stands in line, behind buckets of which one is under way at a time.
    for planned in (None, plan, plan | {"partition": 1000, "credit": 1}):
        model = parallel(module=Partly(), find_unused_parameters=True)
        if planned:
            apply_plan(model, planned)
        results.append(flat(train(model)))
        assert model.module.never.weight.grad is None and model.module.sometimes.weight.grad is not None
    for result in results[1:]:
        assert_near(results[0], result)
        assert_equal_on_all_ranks(result)
    strict = parallel(module=Partly())
    apply_plan(strict, plan)
    loss(strict, 0).backward()
    with pytest.raises(RuntimeError, match="finished reduction in the prior iteration"):
        loss(strict, 1)


@on_ranks(2)
def test_checkpoints_and_uneven_inputs_stay_ddps(tmp_path):
    planned, plain = parallel(), parallel()
    apply_plan(planned, PLANS[1])
    train(planned)
    plain.load_state_dict(planned.state_dict())
    assert torch.equal(flat(plain), flat(planned))
    for model in (plain, planned):
        with model.join():
            train(model, steps=3 + dist.get_rank())
    assert_near(flat(plain), flat(planned))
    assert_equal_on_all_ranks(flat(planned))


@on_ranks(2)
def test_a_plan_that_does_not_fit_is_refused_in_one_line_and_changes_nothing(tmp_path):
    model = parallel()
    before = buckets_of(model)
    (tmp_path / "plan.json").write_text('{"buckets": [')
    (tmp_path / "job.yaml").write_text("name: demo\nlayers:\n- {name: fc}\n")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "twice.json").write_text('{"buckets": [{"layers": ["0", "2", "4"]}], "credit": 1, "credit": 2}')
    if dist.get_rank() == 0:
        os.mkfifo(tmp_path / "pipe")
        with open(tmp_path / "large.json", "wb") as large:
            large.truncate((16 << 20) + 1)
        (tmp_path / "deep.json").write_text("[" * 100_000)
    dist.barrier()
    everything = [{"layers": ["0", "2", "4"]}]
    for plan, pattern in (
        (tmp_path / "job.yaml", r"job.yaml: Expecting value: line 1 .*; expected a plan, as talweg predict -o writes it$"),
        (tmp_path / "trace.json", "trace.json: expected a plan, as talweg predict -o writes it$"),
        (tmp_path / "list.json", "list.json: expected a plan, as talweg predict -o writes it$"),
        (tmp_path / "plan.json", r"plan.json: Expecting value: line 1"),
        (tmp_path / "no.json", f"^apply_plan: {tmp_path}/no.json: No such file or directory$"),
        ({}, "the plan: expected \"buckets\""),
        ({"buckets": everything, "size": 1}, "^apply_plan: the plan: unknown key 'size'; expected buckets, credit, partition"),
        ({"buckets": [{"layers": []}]}, r"buckets\[0\].layers: expected a list of names"),
        ({"buckets": [{"layers": ["0"], "priority": 8}]}, r"buckets\[0\].priority: expected 0 to 7, got 8"),
        (tmp_path / "deep.json", "deep.json: nested too deeply; expected a plan, as talweg predict -o writes it$"),
        (tmp_path / "twice.json", "twice.json: key 'credit' is there twice; expected a plan"),
        (tmp_path / "pipe", "pipe: expected a regular file; expected a plan"),
        ("/dev/zero", "^apply_plan: /dev/zero: expected a regular file; expected a plan"),
        (tmp_path / "large.json", "large.json: expected at most 16 MiB; expected a plan"),
        ({"buckets": everything, "partition": 0}, f"partition: expected 1000 to {2**63 - 1} bytes or null, got 0"),
        ({"buckets": everything, "partition": 999}, f"partition: expected 1000 to {2**63 - 1} bytes or null, got 999"),
        ({"buckets": everything, "partition": 10**30}, "partition: expected 1000 to"),
        ({"buckets": everything, "credit": 10**30}, "credit: expected 1 to"),
        ({"buckets": everything, "credit": "1M"}, "credit: expected a number of bytes or null, got '1M'"),
        ({"buckets": [{"layers": ["9"]}]}, r"buckets\[0\]: the model has no layer '9'"),
        ({"buckets": [{"layers": ["0", "2"]}, {"layers": ["0.bias", "4"]}]}, r"buckets\[1\]: '0.bias' is in buckets\[0\] already"),
        ({"buckets": [{"layers": ["2", "2.bias"]}]}, r"buckets\[0\]: '2.bias' is in buckets\[0\] already"),
        ({"buckets": [{"layers": ["1"]}, *everything]}, r"buckets\[0\]: none of its layers has a gradient"),
        ({"buckets": [{"layers": ["0", "4"]}]}, "no bucket has '2.weight'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=pattern) as caught:
            apply_plan(model, plan)
        assert "\n" not in str(caught.value)
    for plan, got in ((5, r"5 \(int\)"), (b"plan.json", r"b'plan.json' \(bytes\)"), ([{"layers": ["0"]}], "list")):
        with pytest.raises(TypeError, match=f"^apply_plan: plan: expected a file, a dict or None, got {got}$"):
            apply_plan(model, plan)
    with pytest.raises(ValueError, match="rank 1 has another plan than rank 0"):
        apply_plan(model, PLANS[dist.get_rank()])
    with pytest.raises(ValueError, match="expected 0 to 7"):  # on rank 1 only, but all are told
        apply_plan(model, {"buckets": [{"layers": ["0", "2", "4"], "priority": 8 * dist.get_rank()}]})
    (tmp_path / f"{dist.get_rank()}.json").write_text(json.dumps(PLANS[0]))
    with pytest.raises(ValueError, match="deep.json: nested too deeply"):  # likewise
        apply_plan(model, tmp_path / ("deep.json" if dist.get_rank() else "0.json"))
    with pytest.raises(ValueError, match="expected a model in DistributedDataParallel, got Sequential"):
        apply_plan(network(), PLANS[0])
    assert buckets_of(model) == before and model not in _sending._senders
    assert_near(flat(train(model)), serial())
    mixed = parallel(module=torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()))
    with pytest.raises(ValueError, match="gradients of several types"):
        apply_plan(mixed, {"buckets": [{"layers": ["0"]}, {"layers": ["1"]}]})


@on_ranks(2)
def test_a_failed_call_reaches_whoever_waits_for_its_bucket(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLANS[3]))
    model = parallel()
    apply_plan(model, tmp_path / "plan.json")
    train(model, steps=1)

    def fails(*_):
        raise RuntimeError("no network today")

    _sending._senders[model]._pipe._start = fails
    with pytest.raises(RuntimeError, match="no network today"):
        loss(model, 0).backward()


@on_ranks(1)
def test_a_priority_is_for_cpu_tensors_and_others_go_as_the_group_sends_them():
    """A group over Talweg may have another backend for a device's tensors."""

    class Group:
        def allreduce(self, tensors, options):
            self.got = tensors[0].device.type

    sender = _sending.Sender(dist.group.WORLD)
    sender.group = Group()
    sender.follow([_sending.Way(4, 1)], None, None)
    sender.allreduce([torch.ones(4, device="meta")])
    assert sender.group.got == "meta"


class Ended:
    """The work of a call that has ended before anybody asks for it, as each one of a broken group does."""

    def __init__(self, error):
        self.future = torch.futures.Future()
        if error:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)

    def get_future(self):
        return self.future


@pytest.mark.parametrize("error", [None, RuntimeError("the group is broken")])
@pytest.mark.parametrize("credit", [None, 4])
def test_a_bucket_ends_whose_many_pieces_all_end_at_once(error, credit):
    started = []

    def start(piece, options, priority):
        started.append(piece.item())
        return Ended(error)

    pipe = _sending._Pipe(start, credit)
    bucket = torch.arange(5000.0)
    work = pipe.send(bucket, list(bucket.split(1)), None, 0)
    assert started == bucket.tolist()
    assert work.is_completed()
    if error:
        with pytest.raises(RuntimeError, match="the group is broken"):
            work.get_future().wait()
    else:
        work.get_future().wait()
