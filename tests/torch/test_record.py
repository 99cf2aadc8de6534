"""record(): the Job and the trace of a DDP loop against what is known of it, over Talweg and gloo."""

import collections
import contextlib
import copy
import io
import json
import subprocess
import time
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks, run
from test_programs import program
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint
from training import assert_equal_on_all_ranks, batch, flat, loss, network, sgd, train

from talweg import _files, _record, _sending, _stamps
from talweg._c10d import StepLog
from talweg._watching import Kind
from talweg.torch import record

BUCKET_MB = 0.01  # so small that several buckets are in flight
SLEPT = 0.02
MODES = ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True})


def backends():
    return (None, dist.new_group(backend="gloo"))


def parallel(group=None, module=None, **options):
    return DistributedDataParallel(module or network(), process_group=group, bucket_cap_mb=BUCKET_MB, **options)


def recorded(model, tmp_path, loop=None, steps=4, **options):
    """The recording, and on rank 0 the job's layers by name."""
    files = {"job": tmp_path / "job.yaml", "trace": tmp_path / "trace.json"}
    with record(model, steps, 2, **files, **options) as recording:
        loop(recording) if loop else train(model, steps=steps + 4)
    assert_no_hooks(model)
    return recording, {layer["name"]: layer for layer in recording.job["layers"]} if dist.get_rank() == 0 else {}


def assert_no_hooks(model):
    for module in model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks
        assert "forward" not in module.__dict__ or "_LayerCall" not in type(module.__dict__["forward"]).__name__
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks
    assert model not in _sending._senders


class Slept(torch.autograd.Function):
    """Adds nothing but time."""

    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None, None


class Slow(torch.nn.Linear):
    def __init__(self, forward_s, backward_s):
        super().__init__(20, 20)
        self.seconds = forward_s, backward_s

    def forward(self, x):
        return super().forward(Slept.apply(x, *self.seconds))


class Idle(torch.nn.Module):
    """Sleeps between its layers, where none of them can be to blame."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Slow(0, 0), Slow(0, 0)

    def forward(self, x):
        return self.second(Slept.apply(self.first(x), SLEPT, SLEPT))


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


@on_ranks(2, 4)
def test_results_are_the_same_bits_with_and_without(tmp_path):
    for group in backends():
        for options in MODES if dist.get_world_size() == 2 else ({},):
            model = parallel(group, **options)
            recorded(model, tmp_path)
            assert_equal_on_all_ranks(flat(model))
            if dist.get_world_size() == 2 or group is not None:  # sums of two have one order only
                assert torch.equal(flat(model), flat(train(parallel(group, **options), steps=8)))


@on_ranks(2, 4)
def test_layers_sizes_and_buckets_are_those_of_the_model(tmp_path):
    for group in backends():
        model = parallel(group)
        sent = []
        recording, layers = recorded(model, tmp_path)
        for bucket in model.reducer._get_zeros_like_grad_buckets():
            owners = [model.module[int(name[0])] for p in bucket.parameters() for name in names_of(model, p)]
            sent.append((bucket.buffer().nbytes, [f"{list(model.module).index(m)}" for m in dict.fromkeys(owners)]))
        if dist.get_rank() == 0:
            job = recording.job
            assert (job["name"], job["ranks"], job["batch"]) == ("Sequential", dist.get_world_size(), 8)
            assert list(layers) == ["0", "1", "2", "3", "4"]
            assert [layer["gradient"] for layer in job["layers"]] == [4 * 64 * 21, 0, 4 * 64 * 65, 0, 4 * 5 * 65]
            assert len(sent) > 1 and [(e["bytes"], e["layers"]) for e in job["exchanges"]] == sent
            assert all(e["op"] == "all_reduce" and e["time"] > 0 for e in job["exchanges"])
            assert all(layer["forward"] > 0 and layer["backward"] > 0 for layer in job["layers"])
            gradients = sum(layer["gradient"] for layer in job["layers"])
            sizes = [probe["bytes"] for probe in job["probes"]]
            assert sizes in ([4, gradients // 4 // 4 * 4, gradients], [4, gradients // 4 // 4 * 4])  # the last where a slow machine has time for it
            assert all(probe["op"] == "all_reduce" and probe["time"] > 0 for probe in job["probes"])
            assert job["backend"] == ("gloo" if group else "talweg")
            assert "probes:\n  - {op: all_reduce, bytes: 4B, time: " in (tmp_path / "job.yaml").read_text()
        recording, _ = recorded(model, tmp_path, probe=False)
        if dist.get_rank() == 0:
            assert recording.job["probes"] == [] and "probes" not in (tmp_path / "job.yaml").read_text()


def names_of(model, parameter):
    return [name for name, p in model.module.named_parameters() if p is parameter]


@on_ranks(2)
def test_time_is_found_where_it_was_spent(tmp_path):
    torch.manual_seed(1)
    module = torch.nn.Sequential(collections.OrderedDict(
        quick=Slow(0, 0), forth=Slow(2 * SLEPT, 0), back=Slow(0, 2 * SLEPT), idle=Idle(), last=Slow(0, 0)))

    def loop(recording):
        optimizer = sgd(model)
        optimizer.register_step_pre_hook(lambda *_: time.sleep(SLEPT))  # a slow update
        while not recording.done:
            time.sleep(SLEPT)
            step(model, optimizer, torch.ones(3, 20))

    for group in backends():
        model = parallel(group, module=module)
        recording, layers = recorded(model, tmp_path, loop)
        if dist.get_rank() == 0:
            job, ns = recording.job, 1e9 * SLEPT
            assert layers["forth"]["forward"] >= 2 * ns > layers["quick"]["forward"] + layers["back"]["forward"]
            assert layers["back"]["backward"] >= 2 * ns > layers["quick"]["backward"] + layers["forth"]["backward"]
            assert layers["idle.first"]["forward_gap"] >= ns > layers["idle.second"]["forward"]
            assert layers["idle.second"]["backward_gap"] >= ns > layers["idle.first"]["backward"]
            assert job["update"] >= ns and job["overhead"] >= ns and job["step"] >= 8 * ns
            assert "passed between the optimiser and the forward pass" in recording.notes[0]


@on_ranks(2)
def test_waiting_for_a_late_rank_is_no_transfer_time(tmp_path):
    torch.manual_seed(1)
    module = torch.nn.Sequential(Slow(0, 0), Slow(0, 3 * SLEPT if dist.get_rank() == 1 else 0))
    for group in backends():
        recording, _ = recorded(parallel(group, module=module), tmp_path, lambda r: loop_until_done(r))
        if dist.get_rank() == 0:
            assert sum(e["wait"] for e in recording.job["exchanges"]) > 1e9 * SLEPT  # of rank 0's 3; rank 1 waits for nobody
            assert all(e["time"] < 1e9 * SLEPT for e in recording.job["exchanges"])


def loop_until_done(recording):
    optimizer = sgd(recording._model)
    while not recording.done:
        step(recording._model, optimizer, torch.ones(3, 20))


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = (torch.nn.Linear(20, 20) for _ in range(3))
        self.act, self.head = torch.nn.ReLU(inplace=True), torch.nn.Linear(20, 5)
        self.scale = torch.nn.Parameter(torch.ones(20))

    def forward(self, x):
        x = self.act(self.stem(x))
        y = checkpoint(self.left, x, use_reentrant=False) + self.right(input=x)
        return self.head(y * self.scale)


@on_ranks(2)
def test_branches_in_place_layers_and_checkpoints_are_followed(tmp_path):
    torch.manual_seed(1)
    recording, layers = recorded(model := parallel(module=Branches()), tmp_path)
    reference = train(parallel(module=same(Branches)), steps=8)
    assert torch.equal(flat(model), flat(reference))
    if dist.get_rank() == 0:
        assert list(layers) == ["stem", "act", "left", "right", "Branches", "head"]
        assert layers["head"]["after"] == ["left", "right"] and layers["Branches"]["gradient"] == 80
        assert sum(layer["gradient"] for layer in layers.values()) == sum(e["bytes"] for e in recording.job["exchanges"])


def same(module):
    torch.manual_seed(1)
    return module()


@on_ranks(2)
def test_a_step_may_have_several_passes(tmp_path):
    model = parallel()

    def loop(recording):
        optimizer = sgd(model)
        while not recording.done:
            with torch.no_grad():
                model(batch(0, 2)[0])  # an evaluation is no part of a step
            with model.no_sync():
                loss(model, 0).backward()
            loss(model, 1).backward()
            optimizer.step()
            optimizer.zero_grad()

    recording, layers = recorded(model, tmp_path, loop)
    assert any("a step has 2 forward passes" in note for note in recording.notes)
    if dist.get_rank() == 0:
        assert recording.job["batch"] == 16
        assert sum(e["bytes"] for e in recording.job["exchanges"]) == sum(layer["gradient"] for layer in layers.values())


@on_ranks(2)
def test_what_cannot_be_seen_is_said(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Linear(64, 5))
    module.unused = torch.nn.Linear(3, 3)
    module.forward = lambda x: module[1](module[0](x))
    model = parallel(module=module, find_unused_parameters=True)

    def loop(recording):
        while not recording.done:
            loss(model, 0).backward()
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p -= 0.1 * p.grad
                        p.grad = None

    recording, _ = recorded(model, tmp_path, loop)
    said = " / ".join(recording.notes)
    assert "unused did not run as a module" in said and "no torch.optim optimiser" in said and "carries no gradients" in said


@on_ranks(2)
def test_broadcasts_of_buffers_are_said(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 5))
    for options, bytes in (({}, 2 * 64 * 4 + 8), ({"broadcast_buffers": False}, 0)):
        recording, _ = recorded(parallel(module=module, **options), tmp_path)
        said = [note for note in recording.notes if "buffers" in note]
        assert len(said) == (bytes > 0)
        assert not bytes or f"broadcasts {bytes} bytes of buffers" in said[0]


@on_ranks(2, 4)
def test_the_trace_has_all_ranks_and_each_all_reduce_joins_them(tmp_path):
    for group in backends():
        recording, layers = recorded(parallel(group), tmp_path)
        if dist.get_rank() != 0:
            continue
        events = json.loads((tmp_path / "trace.json").read_text())
        bars = [e for e in events if e["ph"] == "X"]
        assert {e["pid"] for e in bars} == set(range(dist.get_world_size()))
        assert all(e["ts"] >= 0 and e["dur"] > 0 for e in bars)
        size, exchanges = dist.get_world_size(), len(recording.job["exchanges"])
        begins = {e["id"]: e for e in events if e["ph"] == "s"}
        ends = {e["id"]: e for e in events if e["ph"] == "f"}
        assert begins.keys() == ends.keys() and len(begins) == 4 * exchanges * (size - 1)
        for number, begin in begins.items():
            # All ranks are on one machine: nobody can have a sum before the last rank has given its part.
            assert begin["pid"] != ends[number]["pid"] and begin["ts"] <= ends[number]["ts"]
            for one in (begin, ends[number]):
                assert any(bar["pid"] == one["pid"] and bar["tid"] == one["tid"] and bar["ts"] <= one["ts"] <= bar["ts"] + bar["dur"] + 1e-3
                           for bar in bars)  # fmt: skip
        ready = collections.Counter(e["name"] for e in events if e["ph"] == "i")
        assert ready == {f"{layer}.{what} ready": 4 * size for layer in (0, 2, 4) for what in ("weight", "bias")}


def test_layers_stand_above_the_chunks_where_talweg_traces_them(monkeypatch, tmp_path):
    monkeypatch.setenv("TALWEG_TRACE", str(tmp_path / "traces"))
    run(2, lambda: recorded(parallel(), tmp_path))
    done = subprocess.run([program(), "doctor", "--trace", tmp_path / "all.json", tmp_path / "traces"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "left out" not in done.stdout + done.stderr
    events = json.loads((tmp_path / "all.json").read_text())
    for rank in (0, 1):
        mine = [e for e in events if e["pid"] == rank]
        chunks = [e["ts"] for e in mine if e.get("cat") == "chunk" and e["ph"] == "X"]
        steps = [e for e in mine if e.get("cat") == "step"]
        assert chunks and steps
        sent = [e for e in steps if e["name"].startswith("all-reduce")]
        # Whatever DDP sent went as chunks within the time in which it was under way.
        assert all(any(e["ts"] <= at <= e["ts"] + e["dur"] for at in chunks) for e in sent)


@on_ranks(2)
def test_an_error_in_the_loop_passes_and_leaves_nothing_behind(tmp_path):
    for steps in (0, 1, 2, 5):
        model = parallel()
        with pytest.raises(KeyError, match="mine"):
            with record(model, 10, 2, job=tmp_path / f"{steps}.yaml"):
                train(model, steps=steps)
                raise KeyError("mine")
        assert_no_hooks(model)
        assert not (tmp_path / f"{steps}.yaml").exists()
        train(model, steps=1)


@on_ranks(2)
def test_a_warning_that_is_an_error_comes_when_all_is_written(tmp_path):
    model = parallel(module=torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.BatchNorm1d(8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="^record: ") if dist.get_rank() == 0 else contextlib.nullcontext():
            recorded(model, tmp_path)
    assert (tmp_path / "job.yaml").exists()


@on_ranks(2)
def test_all_ranks_hear_of_what_nobody_thought_of(tmp_path, monkeypatch):
    def fails(*_):
        raise KeyError("a mistake")

    if dist.get_rank() == 0:
        monkeypatch.setattr(_record._job, "make", fails)
    with pytest.raises(RuntimeError, match=r"^record: KeyError\('a mistake'\)$"):
        recorded(parallel(), tmp_path)


class Unlike(torch.nn.Linear):
    """Its forward() is called otherwise."""

    def _other(self, x):
        return super().forward(x)

    forward = _other


@on_ranks(1)
def test_a_copy_made_meanwhile_computes_with_what_is_its_own(tmp_path):
    model = parallel(module=torch.nn.Sequential(torch.nn.Linear(20, 20), Unlike(20, 20), torch.nn.Linear(20, 5)))
    x, copies = torch.ones(3, 20), []

    def saved():
        file = io.BytesIO()
        torch.save(model.module, file)
        return torch.load(io.BytesIO(file.getvalue()), weights_only=False)

    def loop(recording):
        train(model, steps=4)
        assert "forward" in model.module[0].__dict__
        expected = model.module(x)
        for one in (copy.deepcopy(model.module), saved(), copy.deepcopy(saved()), torch.optim.swa_utils.AveragedModel(model.module)):
            assert torch.equal(one(x), expected)
            copies.append(one)
        train(model, steps=4)

    recorded(model, tmp_path, loop)
    for one in copies:
        with torch.no_grad():
            for p in one.parameters():
                p.zero_()
        assert not one(x).any()
    assert model.module(x).any()


@on_ranks(1)
def test_a_forward_of_the_programs_own_is_copied_and_left_where_it_is(tmp_path):
    model = parallel(module=torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 5)))
    first, second = model.module
    first.forward = mine = twice(first.forward)

    def loop(recording):
        train(model, steps=4)
        assert copy.deepcopy(model.module)[0].forward is mine  # a function is the same in all copies
        second.forward = twice(second.forward)
        train(model, steps=4)

    recorded(model, tmp_path, loop)
    assert first.forward is mine and "twice" in second.forward.__qualname__
    expected = 2 * torch.nn.functional.linear(torch.ones(20), second.weight, second.bias)
    assert torch.equal(second(torch.ones(20)), expected)


def twice(forward):
    return lambda x: 2 * forward(x)


@on_ranks(2)
def test_what_is_frozen_is_recorded_as_ddp_sends_it(tmp_path):
    for frozen_before in (True, False):
        model = parallel(find_unused_parameters=True)
        model.module[0].requires_grad_(not frozen_before)

        def loop(recording, model=model):
            train(model, steps=2)
            model.module[0].requires_grad_(False)
            train(model, steps=6)

        recording, layers = recorded(model, tmp_path, loop)
        assert not model.module[0].weight.requires_grad
        if dist.get_rank() == 0:
            assert layers["0"]["gradient"] == 4 * 64 * 21
            assert "0" in [layer for e in recording.job["exchanges"] for layer in e.get("layers", ())]


@on_ranks(2)
def test_what_cannot_be_recorded_is_refused_in_one_line(tmp_path):
    def refused(error, pattern, model, loop=None, **options):
        options = {"job": tmp_path / "job.yaml"} | options
        with pytest.raises(error, match=pattern) as caught:
            with record(model, 3, 2, **options):
                loop()
        assert "\n" not in str(caught.value)
        if isinstance(model, DistributedDataParallel):
            assert_no_hooks(model)

    refused(ValueError, "expected a model in DistributedDataParallel, got Sequential", network())
    refused(ValueError, "^record: expected a model in DistributedDataParallel, got NoneType$", None)
    for wrong, error, words in (
        ({"steps": "3"}, TypeError, "steps: expected an int, got '3'"),
        ({"warm_up": 2.0}, TypeError, "warm_up: expected an int, got 2.0"),
        ({"job": 5}, TypeError, "job: expected a path or None, got 5"),
        ({"trace": b"x"}, TypeError, "trace: expected a path or None, got b'x'"),
        ({"name": 5}, TypeError, "name: expected a str or None, got 5"),
        ({"batch": True}, TypeError, "batch: expected an int or None, got True"),
        ({"batch": 0}, ValueError, "batch: expected at least 1 sample, got 0"),
    ):
        with pytest.raises(error, match=f"^record: {words}$"):
            record(parallel(), **wrong)
    hooked = parallel()
    hooked.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future())
    refused(ValueError, "has a communication hook", hooked)
    model = parallel()
    with record(model, 2, 2, job=None):
        with pytest.raises(ValueError, match="is being recorded already"):
            record(model, job=None).__enter__()
        train(model, steps=5)
    with record(model, 2, 2, job=None) as used:
        train(model, steps=5)
    with pytest.raises(ValueError, match="^record: this recording was used before: make a new one for each block$"):
        used.__enter__()
    refused(RuntimeError, r"rank 0 saw no whole step", model, lambda: None)
    refused(RuntimeError, r"rank 0 saw no whole step", model, lambda: train(model, steps=2))
    # Before anything is trained.
    nowhere, kept = tmp_path / "none" / "x", tmp_path / "kept.yaml"
    refused(ValueError, f"^record: job: cannot write {nowhere}: No such file or directory$", model, job=nowhere)
    refused(ValueError, f"^record: trace: cannot write {tmp_path}: Is a directory$", model, trace=tmp_path)
    refused(ValueError, "^record: job: cannot write \0: embedded null byte$", model, job="\0")
    both = tmp_path / "both"
    refused(ValueError, f"^record: job and trace: both would be written to {both}: expected two files$", model, job=both,
            trace=f"{tmp_path}/./both")  # fmt: skip
    if dist.get_rank() == 0:
        assert not both.exists()
    refused(RuntimeError, "^record: job: cannot write /dev/full: No space left on device$", model,
            lambda: train(model, steps=8), job="/dev/full")  # fmt: skip
    refused(RuntimeError, "^record: trace: cannot write /dev/full: No space left on device$", model,
            lambda: train(model, steps=8), trace="/dev/full")  # fmt: skip
    if dist.get_rank() == 0:
        kept.write_text("as it was")
        _files.check("job", kept)
        _files.check("job", tmp_path / "fresh.yaml")
        assert kept.read_text() == "as it was" and not (tmp_path / "fresh.yaml").exists()
    with pytest.raises(TypeError, match="^record: probe: expected True or False, got 1$"):
        record(model, 3, 2, probe=1)
    with pytest.raises(TypeError, match="^record: steps: expected an int, got True$"):
        record(model, True, 2)
    with pytest.raises(ValueError, match="2 of warm_up, got 3 and 1"):
        record(model, 3, 1)

    changing = parallel(module=(changes := Changing()), find_unused_parameters=True)
    changes.extra = lambda: changes.calls > 4
    refused(RuntimeError, "changed between steps 0 and 2 of the window: it ran second in one of them only", changing,
            lambda: train(changing, steps=8))  # fmt: skip
    differs = parallel(module=(changes := Changing()), find_unused_parameters=True)
    changes.extra = lambda: dist.get_rank() == 1
    refused(RuntimeError, "rank 1 ran other layers than rank 0", differs, lambda: train(differs, steps=8))


class Changing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(20, 5), torch.nn.Linear(20, 5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.first(x) + (self.second(x) if self.extra() else 0)


@on_ranks(3)
def test_another_machines_clock_is_found_out(monkeypatch):
    ahead = {0: 0, 1: 5_000_000_000, 2: -77_000_000}[dist.get_rank()]
    true_ns = time.monotonic_ns
    for group in backends():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_stamps, "machine", lambda: f"machine {dist.get_rank()}")
            patch.setattr(_stamps.time, "monotonic_ns", lambda: true_ns() + ahead)
            # The model's device may be one whose tensors the group does not send.
            offset, error = _stamps.offset_to_first(group or dist.group.WORLD, torch.device("meta"))
        assert abs(offset + ahead) <= error < 1_000_000_000
        assert dist.get_rank() or error == 0
        assert _stamps.offset_to_first(group or dist.group.WORLD, torch.device("cpu")) == (0, 0)  # one machine


def test_stamps_of_a_device_become_times_of_the_host(monkeypatch):
    """A device whose clock has another origin, read in milliseconds of 32 bits."""
    device_ms = [1e6]

    class Event:
        def __init__(self, device, enable_timing):
            assert enable_timing

        def record(self):
            device_ms[0] += 1.5
            self.at = device_ms[0]

        def elapsed_time(self, other):
            return torch.tensor(other.at - self.at, dtype=torch.float32).item()

    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    clock = _stamps.DeviceClock(torch.device("cuda"), "nccl")
    before = time.monotonic_ns()
    clock.begin()
    after = time.monotonic_ns()
    stamps = []
    for _ in range(50):
        stamps += [clock.now(), clock.now(), None]
        clock.step()
    times = clock.nanoseconds(stamps)
    assert before <= times[0] - 1_500_000 <= after
    assert [b - a for a, b in zip(times, times[1:])] == [1_500_000 if k % 2 == 0 else 3_000_000 for k in range(99)]


@on_ranks(1)
def test_the_backend_is_that_of_the_tensors_that_are_sent():
    mixed = dist.new_group(backend="cpu:gloo,cuda:talweg")
    for group, device, name in ((mixed, "cpu", "gloo"), (mixed, "cuda", "talweg"), (dist.group.WORLD, "cpu", "talweg")):
        assert _record.backend_of(group, torch.device(device)) == name


@pytest.mark.parametrize("now", [None, iter(range(100)).__next__])
def test_what_happens_in_a_layer_is_noted_in_order_and_only_in_the_window(now):
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True)
    log = StepLog(1, now)
    call = log.in_front_of(0, layer.forward)
    log.watch_parameters(list(layer.parameters()))
    call(x)  # not within a pass of the whole model
    log.pass_begins()
    y = call(input=x * 2)
    log.pass_ends()
    y.sum().backward()
    log.note(Kind.STEP, -1)
    later = call(x).sum()
    log.end()
    later.backward()
    kinds, _, stamps = zip(*log.entries())
    gradients = {Kind.READY, Kind.GRAD_END}
    assert [kind for kind in kinds if kind not in gradients] == [
        Kind.FORWARD, Kind.LAYER_IN, Kind.LAYER_OUT, Kind.FORWARD_END, Kind.GRAD, Kind.BACKWARD_END, Kind.SYNC_END, Kind.STEP]  # fmt: skip
    assert sorted(kind for kind in kinds[5:-3]) == [Kind.GRAD_END, Kind.READY, Kind.READY]
    assert list(stamps[:-1]) == (sorted(stamps[:-1]) if now is None else list(range(len(stamps) - 1)))
    assert now is None or stamps[-1] is None
    with pytest.raises(ZeroDivisionError):
        log.in_front_of(0, lambda: 1 / 0)()
