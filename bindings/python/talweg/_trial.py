"""Tries a plan in a live DDP model's training, against how it sends its gradients now, and keeps what is quicker."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from talweg import _plan, _sending
from talweg._stamps import DeviceClock

WARM_UP = 3  # steps after each change: DDP settles its own buckets in the second, and a static graph is learnt in the first


class try_plan:  # noqa: N801  (used as a function: `with try_plan(model, plan):`)
    """Finds out while a DDP model trains whether a plan of `talweg predict` makes its steps quicker, and keeps it only then.

        with talweg.torch.try_plan(model, "plan.json") as trial:
            for x, y in batches:
                ...
        print(trial.kept, trial.gain)

    Every rank does this around its loop, which stays as it is. A step goes from one forward pass that synchronises, after one
    that did, to the next; passes that accumulate belong to the step before. Between steps the model changes from the buckets
    that it has (DDP's own, or those of a plan that was applied before) to those of the plan and back: `turns` times either,
    each time for 3 steps that do not count and `steps` that do. After these 2 * turns * (3 + steps) steps the ranks put together
    what they have seen. The plan is kept if it is quicker, by the median over the turns; else what the model had is put back.
    Then the loop may go on, or ask `trial.done`.

    plan: as for apply_plan(), read once, at the beginning of the block

    kept: whether the plan is in place; gain: how many times as long the model's own step takes as the planned one; step_ms,
    planned_ms: these two steps in milliseconds, medians over steps and turns and means over ranks. Until `done`: False and None.
    Sums are those of apply_plan(): on two ranks the training's results are the same bits with and without.

    A block that ends too early puts back what the model had, and says so in `trial.notes`; rank 0 warns. That, and that the plan's
    priorities do nothing, it does at the end of the block. An error in the block passes through, and leaves DDP's own buckets in
    place, also of a model that had a plan before: ranks that an error meets at another step may have gone on to the other
    buckets. Steps within join() do not count. Raises TypeError and ValueError in one line for arguments that cannot be, and at
    the beginning of the block, on every rank, for what apply_plan() refuses and for a model that is recorded or tried already."""

    def __init__(
        self, model: DistributedDataParallel, plan: str | os.PathLike[str] | Mapping[str, Any] | None, steps: int = 10,
        turns: int = 3,
    ) -> None:  # fmt: skip
        _sending.refuse_what_hides_buckets(model, "try_plan")
        for argument, value in (("steps", steps), ("turns", turns)):
            if type(value) is not int:
                raise TypeError(f"try_plan: {argument}: expected an int, got {value!r}")
            if value < 1:
                raise ValueError(f"try_plan: {argument}: expected at least 1, got {value}")
        self.kept = False
        self.gain: float | None = None
        self.step_ms: float | None = None
        self.planned_ms: float | None = None
        self.notes: list[str] = []
        self._model, self._given, self._steps, self._turns = model, plan, steps, turns
        self._device = _sending.device_of(model)
        # On a device: events on its stream, as the host runs ahead of it.
        self._now: Callable[[], Any] = time.perf_counter if self._device.type == "cpu" else DeviceClock(self._device, "").now
        self._used = False
        self._handles: list[Any] = []
        self._begun = 0  # steps
        self._synchronises = False  # the last forward pass was one whose gradients are sent
        self._synchronised = False  # so they were
        self._stamps: list[Any] = []  # of where the steps of this window begin
        self._windows: list[float] = []  # the median of each, in milliseconds

    @property
    def done(self) -> bool:
        """True when it is decided what is kept."""
        return self.gain is not None

    def __enter__(self) -> try_plan:
        if self._used:
            raise ValueError("try_plan: this trial was used before: make a new one for each block")
        _sending.refuse_what_hides_buckets(self._model, "try_plan")  # which may be since it was made
        _sending.refuse_while_tried(self._model, "try_plan")
        if _sending.is_watched(self._model):
            raise ValueError("try_plan: the model is being recorded")
        self._plan = _plan.agreed("try_plan", self._model, self._given)
        asked = self._of_all((self._steps, self._turns))
        if other := next((rank for rank, one in enumerate(asked) if one != asked[0]), 0):
            raise ValueError(f"try_plan: rank {other} has other steps or turns than rank 0")
        self._before = self._now_sent = _sending.plan_of(self._model)
        self._used = True
        _sending.tried.add(self._model)
        # Not a Sender, which would see every all-reduce: DDP's own buckets must not be charged for what only a plan needs.
        parameters = (p for p in self._model.parameters() if p.requires_grad)
        self._handles = [p.register_post_accumulate_grad_hook(self._gradient) for p in parameters]
        self._handles.append(self._model.register_forward_pre_hook(self._forward_begins))
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            if error is None and self._synchronised:
                self._between_steps()  # which the next forward pass would tell
            if error is None and not self.done:
                self._send(self._before)
        except BaseException:
            self._put_own_back()
            raise
        finally:
            self._stop()
        if error is not None:
            self._put_own_back()
            return
        if not self.done:
            needed = 2 * self._turns * (WARM_UP + self._steps)
            self.notes.append(f"{max(0, self._begun - 1)} steps were seen of the {needed} needed: the plan is not kept")
            if self._model.process_group.rank() == 0:
                warnings.warn(f"try_plan: {self.notes[-1]}", stacklevel=2)
        _plan.warn_of_priorities("try_plan", self._model, self._plan)

    def _put_own_back(self):
        """Without the other ranks, where the model sends by others than its own or a change to them failed half-way."""
        if not self.done and self._now_sent is not None:
            with contextlib.suppress(ValueError):  # a communication hook, which came meanwhile, stays with the plan
                self._send(None)

    def _forward_begins(self, model, arguments):
        if not torch.is_grad_enabled() or model._join_config.enable:
            return  # ranks that have joined take no steps, and could not change with the others
        # Where passes without synchronising come first, in the one behind them: a static graph takes no new reducer before.
        if model.require_backward_grad_sync and (self._synchronised or not self._begun):
            self._between_steps()
        self._synchronises = model.require_backward_grad_sync

    def _gradient(self, parameter):
        # Forward passes alone would not tell steps apart: a loss may be that of several.
        self._synchronised |= self._synchronises

    def _between_steps(self):
        """On all ranks between the same steps."""
        self._synchronised = False
        window, step = divmod(self._begun, WARM_UP + self._steps)
        self._begun += 1
        if step == 0 or step >= WARM_UP:
            self._stamps.append(self._now())
        if step > 0:
            return
        if window > 0:
            self._windows.append(self._median_ms())
        self._stamps.clear()
        if window == 2 * self._turns:
            self._stop()
            self._decide()
        else:
            self._send(self._plan if _is_planned(window) else self._before)

    def _median_ms(self):
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
            return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(self._stamps))
        return statistics.median(1e3 * (b - a) for a, b in itertools.pairwise(self._stamps))

    def _send(self, plan):
        _sending.refuse_what_hides_buckets(self._model, "try_plan")  # a hook would be lost with its reducer
        if plan is not self._now_sent:
            self._now_sent = self  # neither, should the change fail half-way
            _plan.follow(self._model, plan)
            self._now_sent = plan

    def _decide(self):
        """Alike on all ranks, which have the same numbers. They wait for one another in every step, so that their times differ by
        noise alone, of which a mean over them has less than the slowest."""
        means = [statistics.fmean(window) for window in zip(*self._of_all(self._windows))]
        own, planned = ([mean for window, mean in enumerate(means) if _is_planned(window) == which] for which in (False, True))
        gain = statistics.median(a / b for a, b in zip(own, planned))
        self._send(self._plan if gain > 1 else self._before)
        self.step_ms, self.planned_ms = statistics.median(own), statistics.median(planned)
        self.gain, self.kept = gain, gain > 1

    def _of_all(self, mine):
        """What each rank has, by rank."""
        group = self._model.process_group
        everybody: list[Any] = [None] * group.size()
        dist.all_gather_object(everybody, mine, group=group)
        return everybody

    def _stop(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        _sending.tried.discard(self._model)


def _is_planned(window: int) -> bool:
    """Each turn has one of either, and every other one the planned window first: a machine that is getting faster or slower is
    neither's gain."""
    return window % 4 in (1, 2)
