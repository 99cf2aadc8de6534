"""What the hooks of one rank noted, taken apart into steps: how long each part of a step took."""

from __future__ import annotations

import array
import dataclasses
import statistics
from typing import Any, NamedTuple

from talweg._watching import Kind, Watching


class NotRecorded(Exception):
    """One line that says why there is nothing to write."""


@dataclasses.dataclass
class Seen:
    """All that one rank has to say; it travels to rank 0."""

    layers: list[tuple[str, int, int]]  # name, bytes of its gradient, the layer around it or -1
    parameters: list[str]
    owners: list[int]  # of each parameter the layer
    after: list[list[int]]
    kinds: array.array  # of each entry of the log
    indices: array.array
    times: array.array  # ns on this rank's clock; of a step's end: the time before it
    bytes: list[int]  # of each all-reduce
    buckets: list[Any]
    clock: list[tuple[int, int, int]]  # (ns to rank 0's clock, by how much that may be wrong, when)
    batch: int | None
    host: str
    problem: str
    backend: str = ""  # of the process group, as PyTorch calls it
    probes: list[Any] = dataclasses.field(default_factory=list)
    buffers: int = 0  # bytes that DDP broadcasts before a forward pass, such as BatchNorm's means

    @classmethod
    def of(cls, watching: Watching, sent, clock, offsets, buckets, batch, host, problem) -> Seen:
        log = watching.log.entries()
        times = iter(clock.nanoseconds([stamp for _, _, stamp in log]))
        resolved, last = array.array("q"), 0
        for kind, _, _ in log:
            last = last if kind == Kind.STEP else next(times)
            resolved.append(last)
        names = {id(p): name for name, p in watching.model.module.named_parameters()}
        owner = {i: k for k, layer in enumerate(watching.layers) for i in layer.own}
        first, end = (resolved[0], resolved[-1]) if log else (0, 0)
        return cls([(layer.name, layer.gradient, layer.parent) for layer in watching.layers],
                   [names.get(id(p), "") for p in watching.parameters],
                   [owner.get(i, -1) for i in range(len(watching.parameters))],
                   [sorted(sources) for sources in watching.log.sources()], array.array("b", [kind for kind, _, _ in log]),
                   array.array("i", [index for _, index, _ in log]), resolved, sent, buckets,
                   [(*offsets[0], first), (*offsets[-1], end)], batch, host, problem)  # fmt: skip

    def common(self, time_ns: int) -> int:
        """On rank 0's clock; between the two times at which it was asked, clocks drift apart evenly."""
        (a, _, begin), (b, _, end) = self.clock
        part = (time_ns - begin) / (end - begin) if end > begin else 0.0
        return time_ns + a + round((b - a) * part)


def usual_exchange(seen: Seen) -> float:
    """ns from when a step's first all-reduce was sent until its last one had arrived: the median over the steps."""
    begins: dict[int, int] = {}  # by all-reduce: when the first of its step was sent
    spans: dict[int, int] = {}  # by when that was
    begin = None
    for kind, index, when in zip(seen.kinds, seen.indices, seen.times):
        if kind == Kind.STEP:
            begin = None
        elif kind == Kind.SENT:
            begin = when if begin is None else begin
            begins[index] = begin
        elif kind == Kind.ARRIVED and index in begins:
            spans[begins[index]] = max(spans.get(begins[index], 0), when - begins[index])
    return statistics.median(spans.values()) if spans else 0.0


class Span(NamedTuple):
    """Of a layer, in ns on the rank's own clock."""

    layer: int
    begin: int
    end: int


class Exchange(NamedTuple):
    bytes: int
    begin: int
    end: int


@dataclasses.dataclass
class Step:
    begin: int
    end: int
    passes: int = 0
    forward_begin: int = 0
    forward_end: int = 0
    backward_end: int = 0
    sync_end: int = 0
    order: list[int] = dataclasses.field(default_factory=list)  # layers, each once: see _order
    forward: list[Span] = dataclasses.field(default_factory=list)
    backward: list[Span] = dataclasses.field(default_factory=list)
    gaps: list[tuple[bool, int, int]] = dataclasses.field(default_factory=list)  # (forward, after which layer, ns)
    ready: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (parameter, when)
    updates: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    exchanges: list[Exchange] = dataclasses.field(default_factory=list)
    earlier: list[Step] = dataclasses.field(default_factory=list)  # passes before the last one, which has the rest


def split(seen: Seen, rank: int) -> list[Step]:
    """The steps of one rank, without the first, which nobody saw begin. Throws NotRecorded."""
    if seen.problem:
        raise NotRecorded(f"rank {rank}: {seen.problem}")
    arrived = {i: t for kind, i, t in zip(seen.kinds, seen.indices, seen.times) if kind == Kind.ARRIVED}
    steps: list[Step] = []
    entries: list[tuple[int, int, int]] = []
    begin = None
    for entry in zip(seen.kinds, seen.indices, seen.times):
        if entry[0] != Kind.STEP:
            entries.append(entry)
            continue
        ends = [time for kind, _, time in entries if kind == Kind.UPDATE_END]
        ends = ends or [time for kind, _, time in entries if kind == Kind.SYNC_END]
        if not ends:
            raise NotRecorded(f"rank {rank}: gradients were sent in step {len(steps)} of the window, but no backward pass ended")
        if begin is not None:
            steps.append(_step(seen, entries, begin, max(ends), arrived, rank))
        begin, entries = max(ends), []
    if not steps:
        raise NotRecorded(f"rank {rank} saw no whole step after the warm-up: the loop must train with the model that was given, "
                          "for more steps than warm_up")
    _compare(seen, steps, rank)
    return steps


def _step(seen, entries, begin, end, arrived, rank) -> Step:
    step = Step(begin, end)
    starts = [k for k, (kind, _, _) in enumerate(entries) if kind == Kind.FORWARD]
    step.passes = len(starts)
    last_pass = entries[starts[-1]:] if starts else []
    step.order = _order(seen, last_pass)
    for k, start in enumerate(starts[:-1]):
        one = entries[start:starts[k + 1]]
        step.earlier.append(earlier := Step(one[0][2], one[-1][2], order=_order(seen, one)))
        _forward(seen, earlier, one)
        _backward(seen, earlier, one)
        step.order += [layer for layer in earlier.order if layer not in step.order]
    _forward(seen, step, last_pass)
    _backward(seen, step, last_pass)
    open_update = synchronised = None
    for kind, index, time in entries:
        if kind == Kind.SENT:
            if index not in arrived:
                raise NotRecorded(f"rank {rank}: all-reduce {index} of the window did not come to an end")
            step.exchanges.append(Exchange(seen.bytes[index], time, arrived[index]))
        elif kind == Kind.UPDATE:
            open_update = time
        elif kind == Kind.SYNC_END:
            synchronised = time
        elif kind == Kind.UPDATE_END and (open_update or synchronised) is not None:
            # step(closure) begins before the passes that it is given, and updates behind them.
            step.updates.append((max(open_update or 0, synchronised or 0), time))
            open_update = None
    return step


def _order(seen, entries) -> list[int]:
    """Layers as they began. But one around others stands where its own parameters are used, as the backward pass tells: before
    the first one that had its gradient earlier, or else last."""
    order = list(dict.fromkeys(index for kind, index, _ in entries if kind == Kind.LAYER_IN))
    containers = {parent for _, _, parent in seen.layers}
    # As numbers among the entries. The first run of a layer that runs several times is the last one here.
    when: dict[int, int] = {}
    for number, (kind, index, _) in enumerate(entries):
        if kind == Kind.GRAD and index not in containers:
            when[index] = number
        elif kind == Kind.READY and seen.owners[index] in containers:
            when[seen.owners[index]] = number
    for layer in [one for one in reversed(order) if one in containers and one in when]:
        order.remove(layer)
        order.insert(next((k for k, one in enumerate(order) if when.get(one, when[layer]) < when[layer]), len(order)), layer)
    return order


def _forward(seen, step, entries):
    parents = [parent for _, _, parent in seen.layers]
    place = {layer: k for k, layer in enumerate(step.order)}
    inside: list[int] = []  # layers that contain each other
    last, since = -1, 0  # layer that ended or runs, and since when
    for kind, index, time in entries:
        if kind == Kind.FORWARD:
            step.forward_begin = since = time
        elif kind == Kind.LAYER_IN:
            if inside:
                step.forward.append(Span(inside[-1], since, time))
            elif last >= 0:
                step.gaps.append((True, last, time - since))
            inside.append(index)
            since = time
        elif kind == Kind.LAYER_OUT and index in inside:
            while inside:  # those that an exception left go with it
                one = inside.pop()
                if one == index:
                    break
            step.forward.append(Span(index, since, time))
            # A gap after layers and the one around them is behind the one of them that stands last.
            last = max(last, index, key=place.__getitem__) if _contains(parents, index, last) else index
            since = time
        elif kind == Kind.FORWARD_END:
            step.forward_end = time
        elif kind == Kind.GRAD:  # until here: the loss and its own backward pass
            if last >= 0:
                step.gaps.append((True, last, time - since))
            return


def _backward(seen, step, entries):
    parents = [parent for _, _, parent in seen.layers]
    current = last = -1
    since = 0

    def close(time):
        if current >= 0:
            step.backward.append(Span(current, since, time))
        elif last >= 0:
            step.gaps.append((False, last, time - since))

    for kind, index, time in entries:
        if kind == Kind.GRAD:
            close(time)
            current, last, since = index, index, time
        elif kind == Kind.GRAD_END and _contains(parents, index, current):
            close(time)
            current, last, since = parents[index], index, time
        elif kind == Kind.READY:
            step.ready.append((index, time))
        elif kind == Kind.BACKWARD_END:
            close(time)
            step.backward_end = time
            current = last = -1
        elif kind == Kind.SYNC_END:
            step.sync_end = time


def _contains(parents, outer, layer):
    while layer >= 0 and layer != outer:
        layer = parents[layer]
    return layer == outer


def _compare(seen, steps, rank):
    def what(step):
        return step.order, [exchange.bytes for exchange in step.exchanges], step.passes

    first = what(steps[0])
    for number, step in enumerate(steps[1:], 1):
        order, sent, passes = what(step)
        if order != first[0]:
            differ = [seen.layers[i][0] for i in sorted(set(order) ^ set(first[0]))]
            which = f"ran {', '.join(differ[:3])} in one of them only" if differ else "ran the layers in another order"
        elif sent != first[1]:
            which = f"sent {len(first[1])} all-reduces of {sum(first[1])} bytes, then {len(sent)} of {sum(sent)}"
        elif passes != first[2]:
            which = f"had {first[2]} forward passes, then {passes}"
        else:
            continue
        raise NotRecorded(f"rank {rank}: the model changed between steps 0 and {number} of the window: it {which}")
