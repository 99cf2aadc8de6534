"""Steps as a trace in Chrome's format, one event a line as Talweg's own traces have them, for ui.perfetto.dev."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

from talweg import _files
from talweg._sending import talweg_backend
from talweg._steps import NotRecorded, Seen, Step, split

# Rows of a rank; Talweg's own traces have 1 to 3.
STEPS, FORWARD, BACKWARD, SENT = 11, 12, 13, 20


def write(ranks: list[Seen], rank_steps: list[list[Step]], path: str | os.PathLike[str]) -> None:
    """All ranks on rank 0's clock, with an arrow from the rank that was last to send a bucket to each other one's end of it."""
    zero = min(seen.common(steps[0].begin) for seen, steps in zip(ranks, rank_steps))

    def clock(seen):
        return lambda time_ns: (seen.common(time_ns) - zero) / 1e3

    events: list[dict[str, Any]] = []
    for rank, (seen, steps) in enumerate(zip(ranks, rank_steps)):
        events += _process(rank, seen)
        events += _events(rank, seen, steps, clock(seen))
    events += _arrows(ranks, rank_steps, [clock(seen) for seen in ranks])
    _save("trace", path, events)


def add_to_talwegs(group: Any, seen: Seen) -> None:
    """One rank's rows beside the trace that TALWEG_TRACE makes of its chunks; `talweg doctor --trace` lays both on one clock."""
    folder = os.environ.get("TALWEG_TRACE")
    backend = talweg_backend(group)
    if not folder or backend is None:
        return
    record = json.loads(backend.flight_record())
    rank = record["rank"]
    note = {"job": record["job"], "rank": rank, "size": record["size"], "host": seen.host,
            "monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}  # fmt: skip
    events = [{"ph": "M", "pid": rank, "name": "talweg_trace", "args": note}]
    events += [{"ph": "M", "pid": rank, "name": "talweg_clock",
                "args": {"at_us": at / 1e3, "offset_to_rank0_us": offset / 1e3, "round_trip_us": 2 * error / 1e3}}
               for offset, error, at in seen.clock]  # fmt: skip
    try:
        events += _events(rank, seen, split(seen, rank), lambda time_ns: time_ns / 1e3)
    except NotRecorded:  # rank 0 has said so
        return
    try:
        _save("TALWEG_TRACE", os.path.join(folder, f"trace-{record['job']}-rank{rank}-steps.json"), events + list(_rows(rank, seen)))
    except OSError as error:
        warnings.warn(f"record: {error}", stacklevel=4)


def _save(argument: str, path: str | os.PathLike[str], events: list[dict[str, Any]]) -> None:
    _files.write(argument, path, "[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")


def _process(rank: int, seen: Seen) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank} ({seen.host})"}}
    yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}}
    yield from _rows(rank, seen)


def _rows(rank: int, seen: Seen) -> Iterator[dict[str, Any]]:
    for row, name in ((STEPS, "step"), (FORWARD, "forward"), (BACKWARD, "backward"), (SENT, "all-reduce")):
        yield {"ph": "M", "pid": rank, "tid": row, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": rank, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}}


def _events(rank: int, seen: Seen, steps: list[Step], us: Any) -> Iterator[dict[str, Any]]:
    names = [name for name, _, _ in seen.layers]

    def bar(row, name, begin, end, **more):
        return {"ph": "X", "cat": "step", "pid": rank, "tid": row, "ts": us(begin), "dur": max(us(end) - us(begin), 0.001),
                "name": name, "args": more}  # fmt: skip

    for number, step in enumerate(steps):
        passes = [*step.earlier, step]
        yield bar(STEPS, "input", step.begin, passes[0].forward_begin, step=number)
        for one in passes:
            yield bar(STEPS, "forward and loss", one.forward_begin, one.backward[0].begin if one.backward else one.forward_end)
            if one.backward:
                yield bar(STEPS, "backward", one.backward[0].begin, one.backward_end)
        if step.sync_end > step.backward_end:
            yield bar(STEPS, "waiting for gradients", step.backward_end, step.sync_end)
        for begin, end in step.updates:
            yield bar(STEPS, "optimiser", begin, end)
        for span in (span for one in passes for span in one.forward):
            yield bar(FORWARD, names[span.layer], span.begin, span.end)
        for span in (span for one in passes for span in one.backward):
            yield bar(BACKWARD, names[span.layer], span.begin, span.end)
        for parameter, when in (ready for one in passes for ready in one.ready):
            yield {"ph": "i", "s": "t", "cat": "ready", "pid": rank, "tid": BACKWARD, "ts": us(when),
                   "name": f"{seen.parameters[parameter]} ready"}  # fmt: skip
        for (index, exchange), lane in zip(enumerate(step.exchanges), _lanes(step.exchanges)):
            bucket = seen.buckets[index] if index < len(seen.buckets) else None
            carried = ", ".join(names[layer] for layer in bucket.layers) if bucket else ""
            yield bar(SENT + lane, f"all-reduce {index}", exchange.begin, exchange.end, bytes=exchange.bytes, layers=carried)


def _lanes(exchanges) -> list[int]:
    """Bars in one row may not overlap."""
    lanes, free = [], []
    for one in exchanges:
        lane = next((k for k, end in enumerate(free) if end <= one.begin), len(free))
        free[lane:lane + 1] = [one.end]
        lanes.append(lane)
    return lanes


def _arrows(ranks, rank_steps, clocks) -> Iterator[dict[str, Any]]:
    """An all-reduce ends when its last rank's part has arrived, so that is whom the others were waiting for."""
    for number in range(min(len(steps) for steps in rank_steps)):
        steps = [own[number] for own in rank_steps]
        lanes = [_lanes(step.exchanges) for step in steps]
        for k in range(len(steps[0].exchanges)):
            begins = [us(step.exchanges[k].begin) for us, step in zip(clocks, steps)]
            last = begins.index(max(begins))
            for rank, (us, step) in enumerate(zip(clocks, steps)):
                if rank == last:
                    continue
                ends = (("s", last, begins[last], {}), ("f", rank, us(step.exchanges[k].end), {"bp": "e"}))
                for phase, pid, ts, more in ends:
                    yield {"ph": phase, "cat": "exchange", "id": f"{number}.{k}.{rank}", "pid": pid, "tid": SENT + lanes[pid][k],
                           "ts": ts, "name": "all-reduce", **more}  # fmt: skip
