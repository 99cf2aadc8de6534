"""Out of what all ranks saw: the Job as `talweg predict` reads it (src/train/job.h has its file form)."""

from __future__ import annotations

import collections
import json
import os
import statistics
from typing import Any, NamedTuple

from talweg import _files
from talweg._steps import NotRecorded, Seen, Step


NOTABLE = 0.02  # of a step


class Bucket(NamedTuple):
    bytes: int
    layers: list[int]


def buckets_of(model, watching) -> list[Bucket]:
    """Which layers' gradients each bucket of DDP carries, in the order in which it sends them."""
    owner = {id(watching.parameters[i]): k for k, layer in enumerate(watching.layers) for i in layer.own}
    # The only way to learn what is in them; between steps there is room for the zeros that come with it.
    return [Bucket(bucket.buffer().nbytes, list(dict.fromkeys(owner[id(p)] for p in bucket.parameters())))
            for bucket in model.reducer._get_zeros_like_grad_buckets()]


def make(name: str, ranks: list[Seen], rank_steps: list[list[Step]]) -> tuple[dict[str, Any], list[str]]:
    """(the job in its file form with times in ns and sizes in bytes, what was not seen). Throws NotRecorded where the ranks
    did different things."""
    first, steps = ranks[0], rank_steps[0]
    for rank, (seen, own) in enumerate(zip(ranks, rank_steps)):
        if seen.layers != first.layers or own[0].order != steps[0].order:
            raise NotRecorded(f"rank {rank} ran other layers than rank 0, or in another order")
        if [e.bytes for e in own[0].exchanges] != [e.bytes for e in steps[0].exchanges]:
            raise NotRecorded(f"rank {rank} sent other all-reduces than rank 0")
    notes = []
    order = steps[0].order
    silent = [i for i, (_, gradient, _) in enumerate(first.layers) if gradient and i not in order]
    if silent:
        notes.append(f"{_some([first.layers[i][0] for i in silent])} did not run as a module, but its gradients are sent: its "
                     "times count as gaps of other layers, or there are none")
    order = order + silent
    if steps[0].passes > 1:
        notes.append(f"a step has {steps[0].passes} forward passes: layers' forward times are those of all passes, with the backward "
                     "times of all but the last, in which gradients are sent")
    if not steps[0].updates:
        notes.append("no torch.optim optimiser updated the model: its update counts as overhead or input")
    if first.buffers:
        notes.append(f"DDP broadcasts {first.buffers} bytes of buffers before a forward pass: that is not seen, and its time "
                     "counts as overhead (broadcast_buffers=False does without)")
    rank_steps = _usual(rank_steps)
    parts = [[_Parts(step) for step in own] for own in rank_steps]

    def mean(value):
        """Over ranks and steps."""
        return round(statistics.fmean(value(p) for own in parts for p in own))

    job: dict[str, Any] = {"name": name, "origin": "measured", "ranks": len(ranks)}
    if first.batch:
        job["batch"] = first.batch
    job |= {key: mean(lambda p, key=key: p.whole[key]) for key in ("update", "overhead", "step")}
    reading = mean(lambda p: p.reading)
    if reading > NOTABLE * job["step"]:
        notes.append(f"{reading / 1e6:.3g} ms of a step passed between the optimiser and the forward pass: it is in overhead, as "
                     "nothing hides it")
    place = {layer: k for k, layer in enumerate(order)}
    if first.backend:
        job["backend"] = first.backend
    together = in_flight([[step.exchanges for step in own] for own in rank_steps], first.backend)
    if together > 1:
        job["in_flight"] = together
    job["layers"] = []
    for k, layer in enumerate(order):
        row: dict[str, Any] = {"name": first.layers[layer][0]}
        for key in ("forward", "backward", "forward_gap", "backward_gap"):
            row[key] = mean(lambda p, key=key, layer=layer: p.layers[key][layer])
        row["gradient"] = first.layers[layer][1]
        sources = sorted(place[s] for s in first.after[layer] if place.get(s, k) < k)
        if sources and sources != [k - 1]:
            row["after"] = [first.layers[order[s]][0] for s in sources]
        job["layers"].append(row)
    job["exchanges"] = _exchanges(first, order, rank_steps, notes)
    # All ranks are in a call, but only the last to arrive waits for nobody.
    job["probes"] = [{"op": "all_reduce", "bytes": probes[0].bytes, "time": min(one.ns for one in probes)}
                     for probes in zip(*(seen.probes for seen in ranks))]
    return job, notes


def _usual(rank_steps: list[list[Step]]) -> list[list[Step]]:
    """Of the steps that all ranks have, the middle half by length: neither the slow ones nor the quick ones. Means of their
    parts add up to the mean of the whole, which medians of parts do not: what few steps have much of is in none of them."""
    count = min(len(own) for own in rank_steps)
    by_length = sorted(range(count), key=lambda s: sum(own[s].end - own[s].begin for own in rank_steps))
    out = (count + 1) // 4
    return [[own[s] for s in sorted(by_length[out:count - out])] for own in rank_steps]


class _Parts:
    """How long each part of one step took on one rank, in ns."""

    def __init__(self, step: Step) -> None:
        self.layers: dict[str, collections.Counter[int]] = {
            key: collections.Counter() for key in ("forward", "backward", "forward_gap", "backward_gap")}
        for key, spans in (("forward", step.forward), ("backward", step.backward)):
            for span in spans:
                self.layers[key][span.layer] += span.end - span.begin
        for forward, layer, length in step.gaps:
            self.layers["forward_gap" if forward else "backward_gap"][layer] += length
        # Nothing is sent before the backward pass of the last of several passes: all that goes before it is forward.
        for one in step.earlier:
            for span in one.forward + one.backward:
                self.layers["forward"][span.layer] += span.end - span.begin
            for _, layer, length in one.gaps:
                self.layers["forward_gap"][layer] += length
        whole = step.end - step.begin
        self.reading = (step.earlier or [step])[0].forward_begin - step.begin
        update = sum(end - begin for begin, end in step.updates)
        exposed = max(0, max((e.end for e in step.exchanges), default=0) - step.backward_end)
        layers = sum(sum(times.values()) for times in self.layers.values())
        # A Job's `input` is read ahead while devices compute. What the loop spends before its forward pass is what that
        # did not hide, so nothing overlaps it: it is overhead.
        self.whole = {"update": update, "step": whole, "overhead": max(0, whole - update - exposed - layers)}


# PyTorch's process groups queue what is called: NCCL's runs on one stream, gloo's in two threads.
IN_FLIGHT = {"nccl": 1, "gloo": 2}


def in_flight(ranks, backend: str) -> int:
    """The most exchanges of a step that were under way at once: the median over steps and ranks."""
    seen = [max((sum(other.begin <= one.begin < other.end for other in step) for one in step), default=1)
            for own in ranks for step in own]
    return max(1, min(round(statistics.median_low(seen)), IN_FLIGHT.get(backend, max(seen))))


def service(exchanges) -> list[int]:
    """How long each exchange had the network: from when it was sent, but not before the one that arrived before it did."""
    times, free = [0] * len(exchanges), 0
    for index in sorted(range(len(exchanges)), key=lambda i: exchanges[i].end):
        one = exchanges[index]
        times[index] = max(0, one.end - max(one.begin, free))
        free = max(free, one.end)
    return times


def _exchanges(first, order, rank_steps, notes):
    rows: list[dict[str, Any]] = []
    times = [[service(step.exchanges) for step in own] for own in rank_steps]  # [rank][step][exchange]
    buckets = iter(first.buckets)
    for k, exchange in enumerate(rank_steps[0][0].exchanges):
        per_step = [[step[k] for step in ranks] for ranks in zip(*times)]
        row: dict[str, Any] = {"op": "all_reduce", "bytes": exchange.bytes}
        bucket = next(buckets, None)
        if bucket is not None and bucket.bytes == exchange.bytes:
            row["layers"] = [first.layers[i][0] for i in bucket.layers]
        elif bucket is not None:
            raise NotRecorded(f"DDP sent {exchange.bytes} bytes as all-reduce {k} of a step, where its bucket has {bucket.bytes}")
        else:
            notes.append(f"all-reduce {k} of a step, of {exchange.bytes} bytes, carries no gradients")
        row["time"] = round(statistics.fmean(min(ranks) for ranks in per_step))
        row["wait"] = round(statistics.fmean(statistics.fmean(ranks) - min(ranks) for ranks in per_step))
        rows.append(row)
    if not rows:
        raise NotRecorded("nothing was sent")
    return rows


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


SIZES = ("gradient", "bytes")
WORDS = ("origin", "op")


def _quoted(text: str) -> str:
    """As YAML has it: characters beyond U+FFFF as they are, since it knows no surrogates, of which a lone one is no character."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _value(key: str, value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(one) for one in value) + "]"
    if isinstance(value, str):
        return value if key in WORDS else _quoted(value)
    return f"{value}B" if key in SIZES else f"{value}" if key in ("ranks", "batch", "in_flight") else f"{value}ns"


def to_yaml(job: dict[str, Any]) -> str:
    """The file form; what is zero or empty is left out, as a reader takes it for that."""
    lines = [f"{key}: {_value(key, value)}" for key, value in job.items() if not isinstance(value, list)]
    for key in ("layers", "exchanges", "probes"):
        if not job[key]:
            continue
        lines.append(f"{key}:")
        lines += ["  - {" + ", ".join(f"{k}: {_value(k, v)}" for k, v in row.items() if v not in (0, [])) + "}"
                  for row in job[key]]
    return "\n".join(lines) + "\n"


def write(job: dict[str, Any], path: str | os.PathLike[str]) -> None:
    _files.write("job", path, to_yaml(job))
