"""Records how a DDP model's training step goes: the `Job` of talweg predict, and a trace of all ranks on one clock."""

from __future__ import annotations

import os
import socket
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from talweg import _files, _job, _probing, _sending, _steps, _timeline
from talweg._stamps import DeviceClock, HostClock, offset_to_first
from talweg._watching import Kind, Watching

LEAST_WARM_UP = 2  # DDP settles its buckets in the second step
PATIENCE_S = 5  # for callbacks of the last step's all-reduces, which may run a little later than DDP goes on


class record:  # noqa: N801  (used as a function: `with record(model):`)
    """Looks on while a DDP model trains, whatever the backend, and writes down where the time of a step goes.

        with talweg.torch.record(model, steps=10, job="job.yaml", trace="trace.json") as recording:
            for x, y in batches:
                ...

    Every rank does this around its loop, which stays as it is. A step is a forward pass, or several without
    synchronisation and the one with it, up to the end of the optimiser. After `warm_up` steps (at least 2), hooks are set for
    `steps` more, and taken away again; the loop may go on, or ask `recording.done`. At the end of the block the ranks
    put together what they have seen, and rank 0 writes

    job: a Job (see `talweg predict`): each layer's forward and backward pass and gradient, what DDP really sent, in the
        order in which it did and how long it took, the optimiser, the rest (reading the input, too, as far as nothing hides it); means
        over the ranks and over the half of the steps that are neither the quickest nor the slowest
    trace: all ranks on one clock, for ui.perfetto.dev, with an arrow from the rank that an all-reduce waited for to each
        other one. Where TALWEG_TRACE is on, each rank adds its rows to those traces, too, so that `talweg doctor --trace` shows
        them above the chunks on the network
    name: of the job (default: the model's class); batch: samples of a step on one rank, in all of its forward passes (default: the sum over
        these of the first dimension of the first tensor that the model is given)
    probe: at the end of the block the ranks call the backend with a few other sizes, for seconds at most, since what buckets of a plan would
        take cannot be told from those of a step; without, only the step's own are known

    The results of the training are the same bits with and without. On rank 0, `recording.job` is the Job as a dict.
    `recording.notes` says what could not be seen. Raises TypeError and ValueError for arguments that cannot be, a model that
    cannot be recorded, and at the beginning of the block, on every rank, for a file that cannot be written; at the
    end of the block, on every rank, RuntimeError in one line where no step was seen, steps or ranks did different things,
    or a file could not be written after all. An error in the block passes through; then nothing is written."""

    def __init__(
        self, model: torch.nn.Module, steps: int = 20, warm_up: int = 3, *, job: str | os.PathLike[str] | None = "job.yaml",
        trace: str | os.PathLike[str] | None = None, name: str | None = None, batch: int | None = None, probe: bool = True,
    ) -> None:  # fmt: skip
        _sending.refuse_what_hides_buckets(model, "record")
        if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
            raise ValueError("record: the model is compiled, which leaves no layers to be seen: record it before torch.compile")
        _check_types(steps=steps, warm_up=warm_up, job=job, trace=trace, name=name, batch=batch, probe=probe)
        if steps < 1 or warm_up < LEAST_WARM_UP:
            raise ValueError(f"record: expected at least 1 step and {LEAST_WARM_UP} of warm_up, got {steps} and {warm_up}")
        self.job: dict[str, Any] | None = None
        self.notes: list[str] = []
        self._model: DistributedDataParallel = model
        self._paths = job, trace
        self._name = name or type(model.module).__name__
        self._batch = batch
        self._probes = probe
        self._samples = 0  # since the window began
        self._wanted, self._warm_up = steps, warm_up
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._backend = backend_of(model.process_group, self._device)
        self._clock: Any = HostClock() if self._device.type == "cpu" else DeviceClock(self._device, self._backend)
        self._watching = Watching(model, self._clock.now)
        self._mine = {id(p) for p in model.parameters()}
        self._optimisers: dict[int, bool] = {}
        self._handles: list[Any] = []
        self._bytes: list[int] = []  # of each all-reduce in the window
        self._arrived: list[None] = []  # one for each of these that has; appended to on any thread
        self._seen = 0  # steps that have ended
        self._recording = False
        self._synchronised = False  # something was sent since the step began
        self._buckets: list[_job.Bucket] = []
        self._problem = ""

    @property
    def done(self) -> bool:
        """True when all steps that were asked for have been seen."""
        return self._seen >= self._warm_up + self._wanted

    def __enter__(self) -> record:
        if _sending.is_watched(self._model):
            raise ValueError("record: the model is being recorded already")
        _sending.refuse_while_tried(self._model, "record")
        if self._handles:
            raise ValueError("record: this recording was used before: make a new one for each block")
        self._agree_on_files()
        self._offsets = [offset_to_first(self._model.process_group, self._device)]
        self._handles = [
            self._model.register_forward_pre_hook(self._forward_begins),
            self._model.register_forward_hook(self._forward_ends),
            register_optimizer_step_pre_hook(self._update(Kind.UPDATE)),
            register_optimizer_step_post_hook(self._update(Kind.UPDATE_END)),
        ]
        _sending.sender_of(self._model).watch = self
        return self

    def _agree_on_files(self):
        """Rank 0 writes them: what it cannot write all ranks are told, so that none of them trains to no purpose."""
        group, verdict = self._model.process_group, [""]
        if group.rank() == 0:
            try:
                for argument, path in zip(("job", "trace"), self._paths):
                    _files.check(argument, path)
                _files.check_apart("job", self._paths[0], "trace", self._paths[1])
            except OSError as error:
                verdict = [str(error)]
        dist.broadcast_object_list(verdict, group=group, group_src=0)
        if verdict[0]:
            raise ValueError(f"record: {verdict[0]}")

    def __exit__(self, kind, error, trace) -> None:
        if error is None and self._recording and self._synchronised:
            self._step_ends()  # which the next forward pass would tell
        self._stop()
        for handle in self._handles:
            handle.remove()
        if error is None:
            self._finish()  # else the other ranks may be gone

    def sending(self, tensor: torch.Tensor) -> Any:
        """See _sending.Watch."""
        self._synchronised = True
        if not self._recording:
            return _nothing
        number = len(self._bytes)
        self._bytes.append(tensor.nbytes)
        note = self._watching.log.note
        note(Kind.SENT, number)

        def done(future):
            with self._clock.where_calls_end():
                note(Kind.ARRIVED, number)
            self._arrived.append(None)

        return done

    def _forward_begins(self, model, arguments):
        if not torch.is_grad_enabled():
            return
        if self._synchronised:
            self._synchronised = False
            self._step_ends()
        if self._recording:
            self._samples += next((one.shape[0] for one in arguments if isinstance(one, torch.Tensor) and one.dim()), 0)
            self._watching.log.pass_begins()

    def _forward_ends(self, model, arguments, output):
        if self._recording:
            self._watching.log.pass_ends()

    def _update(self, kind):
        def hook(optimiser, arguments, named):
            if not self._recording:
                return
            ours = self._optimisers.get(id(optimiser))
            if ours is None:
                ours = any(id(p) in self._mine for group in optimiser.param_groups for p in group["params"])
                self._optimisers[id(optimiser)] = ours
            if ours:
                self._watching.log.note(kind, -1)

        return hook

    def _step_ends(self):
        self._seen += 1
        if self._recording:
            self._batch = self._batch or self._samples or None
            self._watching.log.note(Kind.STEP, -1)
            self._watching.log.look_for_sources = False
            self._clock.step()
            if self.done:
                self._stop()
        elif self._seen == self._warm_up - 1:
            # One step more than is used: its end is where the first one begins, and hooks that run first run slowly.
            if isinstance(self._clock, DeviceClock):
                self._clock.begin()
            self._watching.begin()
            self._recording = True

    def _stop(self):
        """Takes away all hooks but those of the whole model."""
        self._watching.end()
        if self._recording:
            self._recording = False
            try:
                self._buckets = _job.buckets_of(self._model, self._watching)
            except RuntimeError as error:
                self._problem = f"DDP does not tell its buckets: {error}"
        sender = _sending.sender_of(self._model)
        sender.watch = None
        _sending.let_go(self._model)

    def _finish(self):
        group = self._model.process_group
        deadline = time.monotonic() + PATIENCE_S
        while len(self._arrived) < len(self._bytes) and time.monotonic() < deadline:
            time.sleep(0.001)
        self._offsets.append(offset_to_first(group, self._device))
        seen = _steps.Seen.of(self._watching, self._bytes, self._clock, self._offsets, self._buckets, self._batch,
                              socket.gethostname(), self._problem)  # fmt: skip
        seen.backend = self._backend
        seen.probes = self._probe(seen)
        seen.buffers = sum(b.nbytes for b in self._model.modules_buffers) if self._model.broadcast_buffers else 0
        everybody: list[Any] | None = [None] * group.size() if group.rank() == 0 else None
        dist.gather_object(seen, everybody, group=group, group_dst=0)
        verdict: list[Any] = ["", []]
        if everybody is not None:
            try:
                self._write(everybody)
            except (_steps.NotRecorded, OSError) as error:
                verdict = [f"record: {error}", []]
            except Exception as error:  # a mistake of ours: the other ranks wait to hear of that, too
                verdict = [f"record: {error!r}", []]
            else:
                verdict = ["", self.notes]
        dist.broadcast_object_list(verdict, group=group, group_src=0)
        if verdict[0]:
            raise RuntimeError(verdict[0])
        self.notes = verdict[1]
        _timeline.add_to_talwegs(self._model.process_group, seen)
        if group.rank() == 0:  # last, as a warning may be an error
            for note in self.notes:
                warnings.warn(f"record: {note}", stacklevel=3)

    def _probe(self, seen):
        """Of the sizes that rank 0 says: all ranks must ask for the same."""
        group, box = self._model.process_group, [[]]
        if group.rank() == 0 and seen.buckets and self._probes:
            box = [_probing.sizes_of(sum(bucket.bytes for bucket in seen.buckets), _steps.usual_exchange(seen) * 1e-9)]
        dist.broadcast_object_list(box, group=group, group_src=0)
        return _probing.probe(group, self._device, box[0])

    def _write(self, everybody):
        rank_steps = [_steps.split(seen, rank) for rank, seen in enumerate(everybody)]
        self.job, self.notes = _job.make(self._name, everybody, rank_steps)
        fewest = min(len(steps) for steps in rank_steps)
        if fewest < self._wanted:
            self.notes.insert(0, f"{fewest} steps were seen of the {self._wanted} asked for")
        job_path, trace_path = self._paths
        if job_path is not None:
            _job.write(self.job, job_path)
        if trace_path is not None:
            _timeline.write(everybody, rank_steps, trace_path)


def _check_types(**arguments: Any) -> None:
    """Raises TypeError in one line."""
    whole, path, text = ((int,), "an int"), ((str, os.PathLike, type(None)), "a path or None"), ((str, type(None)), "a str or None")
    expected = {"steps": whole, "warm_up": whole, "job": path, "trace": path, "name": text, "batch": ((int, type(None)), "an int or None"), "probe": ((bool,), "True or False")}
    for argument, value in arguments.items():
        types, words = expected[argument]
        if not isinstance(value, types) or isinstance(value, bool) != (argument == "probe"):
            raise TypeError(f"record: {argument}: expected {words}, got {value!r}")
    if arguments["batch"] is not None and arguments["batch"] < 1:
        raise ValueError(f"record: batch: expected at least 1 sample, got {arguments['batch']}")


def _nothing(future):
    pass


def backend_of(group: dist.ProcessGroup, device: torch.device) -> str:
    """Which of the group's backends has tensors on this device."""
    pairs = (pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return next((backend for kind, backend in pairs if kind == device.type), dist.get_backend(group))
