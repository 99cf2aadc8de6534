"""Points in time on the device that computes, which hooks note without waiting for it, and what one rank's clock is
to another's."""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

QUESTIONS = 16  # to rank 0's clock; the quickest answer counts


class HostClock:
    """For models on the CPU: a stamp is this machine's monotonic time in nanoseconds, which Talweg's own traces have, too."""

    now = None  # StepLog reads it by itself

    def step(self) -> None:
        """A step ends here."""

    def where_calls_end(self) -> AbstractContextManager[Any]:
        """In which callbacks of a collective's future take their stamps."""
        return contextlib.nullcontext()

    def nanoseconds(self, stamps: list[Any]) -> list[int]:
        """The monotonic time of each stamp, in the order in which they were taken, None standing for a step's end."""
        return [stamp for stamp in stamps if stamp is not None]


class DeviceClock:
    """For models on an accelerator: a stamp is an event on the stream that is current where it is taken."""

    def __init__(self, device: torch.device, backend: str) -> None:
        self._device = device
        self._calls_end_on_the_host = backend == "gloo"
        self._bases: list[Any] = []

    def now(self) -> Any:
        event = torch.Event(device=self._device, enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Waits for the device once, to learn which time of the host an event stands for."""
        torch.accelerator.synchronize(self._device)
        before = time.monotonic_ns()
        self._bases = [self.now()]
        torch.accelerator.synchronize(self._device)
        self._base_ns = (before + time.monotonic_ns()) // 2

    def step(self) -> None:
        # Differences between events are floats of 32 bits in milliseconds: only short ones are exact.
        self._bases.append(self.now())

    def where_calls_end(self) -> AbstractContextManager[Any]:
        """A callback runs on a stream that waits for the collective. gloo's, which ends on the host, has the model's stream do that:
        an event there would wait for all layers that are queued by then, too."""
        # A new one each time: several callbacks may run at once, and a stream is entered by one thread only.
        return torch.Stream(device=self._device) if self._calls_end_on_the_host else contextlib.nullcontext()

    def nanoseconds(self, stamps: list[Any]) -> list[int]:
        torch.accelerator.synchronize(self._device)
        base_ns, number, out = self._base_ns, 0, []
        for stamp in stamps:
            if stamp is None:
                number += 1
                base_ns += _between(self._bases[number - 1], self._bases[number])
            else:
                out.append(base_ns + _between(self._bases[number], stamp))
        return out


def _between(first: Any, second: Any) -> int:
    return round(1e6 * first.elapsed_time(second))


def machine() -> str:
    """Processes for which this is the same read the same monotonic clock."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    try:
        return f"{boot} {os.stat('/proc/self/ns/time').st_ino}"
    except OSError:  # a kernel without namespaces of time
        return boot


def offset_to_first(group: dist.ProcessGroup, device: torch.device) -> tuple[int, int]:
    """(ns to add to this rank's monotonic clock to have that of the group's rank 0, by how much that may be wrong). All ranks
    of the group call it. Ranks on rank 0's machine have the same clock; the others ask it over the group, one after the other,
    and take its answer to have been given half way between question and arrival."""
    machines: list[Any] = [None] * group.size()
    dist.all_gather_object(machines, machine(), group=group)
    if torch.device("cpu") in group._device_types:  # nearer to the clock; and gloo sends no other tensors
        device = torch.device("cpu")
    box = torch.zeros(1, dtype=torch.int64, device=device)
    best = (0, 0)
    for rank, where in enumerate(machines):
        if where == machines[0] or group.rank() not in (0, rank):
            continue
        trips = [_answer(group, rank, box) if group.rank() == 0 else _ask(group, box) for _ in range(QUESTIONS)]
        if group.rank() == rank:
            best = min(trips, key=lambda trip: trip[1])
    return best


def _answer(group, rank, box):
    dist.recv(box, group=group, group_src=rank)
    box.cpu()  # on a device: waits until it is there
    box.fill_(time.monotonic_ns())
    dist.send(box, group=group, group_dst=rank)
    return 0, 0


def _ask(group, box):
    asked = time.monotonic_ns()
    dist.send(box, group=group, group_dst=0)
    dist.recv(box, group=group, group_src=0)
    theirs = int(box.cpu())  # on a device: when it is really there
    now = time.monotonic_ns()
    return theirs - (asked + now) // 2, (now - asked) // 2
