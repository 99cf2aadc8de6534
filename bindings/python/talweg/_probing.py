"""What calls of each size take when they follow each other: a step has exchanges of few sizes, from which no other plan's
can be told."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

LEAST = 4  # bytes
STEP = 4  # times the size before
MOST_AT_ONCE = 32  # calls
ROUNDS = 3
PATIENCE_S = 3.0  # for all sizes together, as far as the steps tell beforehand


class Probe(NamedTuple):
    bytes: int
    ns: int  # each call, in turn


def sizes_of(gradients: int, exchanged_s: float) -> list[tuple[int, int]]:
    """(bytes, how many calls) of each probe for steps that exchange `gradients` bytes, which takes `exchanged_s`: from four bytes to all
    of them. Of each size as much is sent as a step has, or less, or nothing, where that would try a user's patience."""
    sizes = [LEAST]
    size = 4096
    while size < gradients:
        sizes.append(size)
        size *= STEP
    if gradients > LEAST:
        sizes.append(gradients // LEAST * LEAST)
    most = gradients
    if exchanged_s > 0:
        most = int(min(most, gradients * PATIENCE_S / (len(sizes) * (ROUNDS + 1) * exchanged_s)))
    return [(LEAST, MOST_AT_ONCE)] + [(size, min(MOST_AT_ONCE, most // size)) for size in sizes[1:] if size <= most]


def probe(group: dist.ProcessGroup, device: torch.device, sizes: list[tuple[int, int]]) -> list[Probe]:
    """All ranks call it with the same sizes. What a call takes is this rank's median over some rounds. Nothing where a rank has no
    room for it."""
    box, most = None, max((size * count for size, count in sizes), default=0)
    try:
        box = torch.zeros(most // LEAST, dtype=torch.float32, device=device)
    except RuntimeError:  # out of memory: the job goes without
        pass
    room: list[bool] = [False] * group.size()
    dist.all_gather_object(room, box is not None, group=group)
    if box is None or not all(room):
        return []
    return [Probe(size, _in_turn(group, device, list(box[:size // LEAST * count].split(size // LEAST)))) for size, count in sizes]


def _in_turn(group, device, tensors) -> int:
    times = []
    for _ in range(ROUNDS + 1):
        dist.all_reduce(tensors[0], group=group)  # all ranks are here
        _settle(device)
        begun = time.monotonic_ns()
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
            work.wait()
        _settle(device)
        times.append((time.monotonic_ns() - begun) // len(tensors))
    return max(1, round(statistics.median(times[1:])))


def _settle(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
