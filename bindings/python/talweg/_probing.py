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
SMALL = 4096  # bytes: smaller sizes take as long as the least
MOST_AT_ONCE = 32  # calls
ROUNDS = 3
PATIENCE_S = 3.0  # for all sizes together, as far as the steps tell beforehand;
PATIENCE_STEPS = 4  # or what so many steps exchange, without which the largest exchanges may be out of reach,
MOST_PATIENCE_S = 30.0  # if that is not more


class Probe(NamedTuple):
    bytes: int
    ns: int  # each call, in turn


def sizes_of(gradients: int, exchanged_s: float) -> list[tuple[int, int]]:
    """(bytes, how many calls) of each probe for steps that exchange `gradients` bytes, which takes `exchanged_s`: from four bytes to all
    of them. Of each size as much is sent as a step has, or less, so that a user's patience suffices; what would take most of it alone is
    left out."""
    size = gradients // LEAST * LEAST
    sizes = [size] if size > LEAST else []
    while (size := size // STEP // LEAST * LEAST) >= SMALL:
        sizes.insert(0, size)
    budget = float("inf")  # bytes
    if exchanged_s > 0:
        patience_s = min(max(PATIENCE_S, PATIENCE_STEPS * exchanged_s), MOST_PATIENCE_S)
        budget = gradients * patience_s / exchanged_s
    while sizes and _sent((size, 1) for size in sizes) > budget * 3 / 4:
        sizes.pop()
    most = gradients
    while True:
        counted = [(size, max(1, min(MOST_AT_ONCE, most // size))) for size in sizes]
        if most <= LEAST or _sent(counted) <= budget:
            return [(LEAST, MOST_AT_ONCE), *counted]
        most //= 2


def _sent(sizes) -> int:
    """Bytes: in each round one call goes before those that are timed."""
    return sum((ROUNDS + 1) * size * (1 + count) for size, count in sizes)


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
    probes = []
    for size, count in sizes:
        tensors = list(box[:size // LEAST * count].split(size // LEAST))
        taken = _taken(group, device, tensors)
        if size == LEAST and count > 1:  # without the way there and back, which on a distant network is most of it
            taken, count = taken - _taken(group, device, tensors[:1]), count - 1
        probes.append(Probe(size, max(1, round(taken / count))))
    return probes


def _taken(group, device, tensors) -> float:
    """Nanoseconds of all of them, started together."""
    times = []
    for _ in range(ROUNDS + 1):
        dist.all_reduce(tensors[0], group=group)  # all ranks are here
        _settle(device)
        begun = time.monotonic_ns()
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
            work.wait()
        _settle(device)
        times.append(time.monotonic_ns() - begun)
    return statistics.median(times[1:])


def _settle(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
