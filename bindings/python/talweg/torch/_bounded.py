"""The state of talweg.torch.hooks.bounded_loss: what of each bucket may be lost on the way, and what was."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

import talweg.torch
from talweg import _c10d
from talweg.torch._compression import Compression, is_finite
from talweg.torch._in_order import Promise
from talweg.torch._residuals import Key

_log = logging.getLogger("talweg.torch.hooks")


class Guard:
    """When nothing may be lost, by the norm of the averaged gradients: what DBLP (arXiv 2605.01989) calls critical phases."""

    STEPS = 10  # from one look to the next

    def __init__(self, change: float) -> None:
        self._change = change
        self._steps = 0
        self._square = 0.0  # of the norm of this step's gradients
        self._before: float | None = None
        self.tight = True

    def add(self, averaged: torch.Tensor) -> None:
        """One bucket of the step; one thread at a time."""
        self._square += float(torch.linalg.vector_norm(averaged, dtype=torch.float32)) ** 2

    def end_step(self, group: dist.ProcessGroup) -> None:
        """All ranks decide by the norm that rank 0 has seen: theirs may differ in a last bit."""
        self._steps += 1
        square, self._square = self._square, 0.0
        if self._steps % self.STEPS:
            return
        seen = torch.tensor([math.sqrt(square)], dtype=torch.float64)
        dist.broadcast(seen, group=group, group_src=0)
        norm, before = float(seen), self._before
        self._before = norm if math.isfinite(norm) else None
        self.tight = before is None or not abs(norm - before) < self._change * before


class Bounded(Compression):
    """A bucket's sum goes without a bounded part of what each rank sends; one thread makes the sums in the order of buckets."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, p: float, policy: str, packet_bytes: int,
                 guard: float | None, log_every: int, droppable: tuple[float, float], keep_important: bool, queues: int,
                 back_first: bool, servers: list[int], p_sender: float | None, p_call: float | None, priority: int) -> None:
        super().__init__(description, process_group, two_steps=False)
        try:
            backend = talweg.torch.backend(self._group)
        except ValueError as error:
            raise ValueError(f"{description}: {error}") from None
        self._rescale = policy == "rescale"
        self._sums = backend.bounded_sums(p, policy, packet_bytes, droppable, keep_important, queues, back_first, servers,
                                          p_sender, p_call)
        self._guard = None if guard is None else Guard(guard)
        self._exact_sums = self._sums if guard is None else backend.bounded_sums(0, policy, packet_bytes, queues=queues,
                                                                                 back_first=back_first, servers=servers)
        self._priority = priority
        self._last = 1  # the highest number of a parameter; DDP's first bucket has it
        self._log_every = log_every
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="bounded_loss")
        self._counted |= {"exact": 0, "by_switch": 0, "lost_bytes": 0, "lost_important_bytes": 0, "packets_again": 0}
        self._of_layers: dict[int, tuple[int, int]] = {}  # bytes of its gradients, and those that were lost, by number
        self._logged: dict[int, tuple[int, int]] = {}

    def report(self) -> dict[str, dict[str, int]]:
        """By parameter (its name after register(), else its number), since the state was made: gradient_bytes, and lost_bytes,
        what of them this rank has sent and another one has never had."""
        return {self._names.get(number, str(number)): {"gradient_bytes": of, "lost_bytes": lost}
                for number, (of, lost) in self._so_far().items()}

    def explain(self, count: int, type: str = "f32") -> str:
        """How the sum of a bucket of `count` elements goes, as help(talweg.BoundedSums.explain) says; with a guard, where it lets
        something be lost."""
        return self._sums.explain(count, type)

    def _so_far(self) -> dict[int, tuple[int, int]]:
        with self._lock:
            return dict(self._of_layers)

    def _average(self, buffer: torch.Tensor, key: Key) -> torch.futures.Future:
        if not self._rescale:
            buffer.mul_(1 / self._size)  # as DDP does without a hook
        row = None if self._rescale else self._residuals.row(key)
        sums = self._exact_sums if self._guard and self._guard.tight else self._sums
        promise = Promise()
        self._worker.submit(promise.finish, lambda: self._sum(sums, buffer, row, key))
        return promise.future

    def _sum(self, sums: _c10d.BoundedSums, buffer: torch.Tensor, row: torch.Tensor | None, key: Key) -> torch.Tensor:
        if not is_finite(buffer):
            buffer.fill_(torch.nan)  # half of it arrives in any case
        residual = row if row is None else row.to(buffer.dtype)  # itself, if it is of that type
        try:
            report = sums.all_reduce(buffer, residual, [count for _, count in key], average=self._rescale, depth=self._depth(key),
                                     priority=self._priority)
        except Exception:
            self._finite = False  # residuals are what they were before this step
            raise
        if row is not None and report["lost_bytes"]:
            if not is_finite(residual):
                residual.nan_to_num_(nan=0, posinf=0, neginf=0)
        if residual is not row:
            row.copy_(residual)
        self._note(report, key, buffer.element_size())
        if self._guard:
            self._guard.add(buffer)
        return self._look(buffer)

    def _depth(self, key: Key) -> float:
        """Where in the model a bucket is. Parameters are numbered from its input on."""
        self._last = max(self._last, *(number for number, _ in key))
        return sum(number for number, _ in key) / len(key) / self._last

    def _note(self, report: dict, key: Key, element_bytes: int) -> None:
        for what in ("exact", "by_switch", "lost_bytes", "lost_important_bytes", "packets_again"):
            self._count(what, int(report[what]))
        whole = sum(count for _, count in key) * element_bytes
        self._count("sent_bytes", whole if report["by_switch"] else self._ring_bytes(whole))
        with self._lock:
            for (number, count), lost in zip(key, report["lost_of_layer"]):
                of, lost_before = self._of_layers.get(number, (0, 0))
                self._of_layers[number] = (of + count * element_bytes, lost_before + lost)

    def _begin_step(self) -> None:
        super()._begin_step()
        if self._guard:
            self._guard.end_step(self._group)
        if self._log_every and self._step % self._log_every == 0:
            self._tell()

    def _tell(self) -> None:
        """What was lost of each layer since the last line; no line where that is nothing."""
        said = []
        for number, (of, lost) in self._so_far().items():
            of_before, lost_before = self._logged.get(number, (0, 0))
            if lost > lost_before:
                said.append(f"{self._names.get(number, number)} {100 * (lost - lost_before) / (of - of_before):.2f} %")
        self._logged = self._so_far()
        if said:
            _log.info("%s: rank %d, %d steps: lost of what this rank sent: %s", self._description, self._rank, self._step,
                      ", ".join(said))
