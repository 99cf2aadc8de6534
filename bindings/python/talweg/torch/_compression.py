"""The states of talweg.torch.hooks: what each form of compression sends for a bucket, and what becomes of what comes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist

import talweg.torch
from talweg import _c10d, _known_by_name
from talweg.torch._in_order import InOrder, Promise
from talweg.torch._residuals import Key, Residuals

# The least number that is not zero: what is of this magnitude or more is not zero.
_NOT_ZERO = 2.0**-149

_Future = torch.futures.Future


class Compression:
    """A compression with its residuals, made by int8() and its like: the state of a communication hook."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, two_steps: bool) -> None:
        if not dist.is_initialized():
            raise ValueError(f"{description}: call torch.distributed.init_process_group first")
        self._description = description
        self.registered = False  # by register()
        self._group = process_group or dist.group.WORLD
        config = dist.get_backend_config(self._group)
        if "cpu:" not in config:
            raise ValueError(f"{description} needs a process group with a backend for CPU tensors; this one has {config}")
        self._rank, self._size = self._group.rank(), self._group.size()
        # Calls made when others are done come in an order of their own: they have a group of their own.
        self._second_group = self._group_beside(config) if two_steps else None
        self._order = InOrder()
        self._numbers: dict[torch.Tensor, int] = {}
        self._names: dict[int, str] = {}
        self._residuals = Residuals()
        self._step = 0
        self._step_ended = False
        self._finite = True  # all that has come in this step
        self._lock = threading.Lock()
        self._counted = {"buckets": 0, "gradient_bytes": 0, "dense_bytes": 0, "sent_bytes": 0}

    def _group_beside(self, config: str) -> dist.ProcessGroup:
        options = getattr(self._group._get_backend(torch.device("cpu")), "options", None)
        return dist.new_group(dist.get_process_group_ranks(self._group), timeout=getattr(options, "_timeout", None),
                              backend=config, use_local_synchronization=True, group_desc="talweg.torch.hooks")

    def __repr__(self) -> str:
        return f"talweg.torch.hooks.{self._description}"

    # What is kept.

    def name_parameters(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        """Residuals are saved under these names. Without them: by the order in which DDP first brought the parameters.
        Before the first backward pass; register() does it."""
        if self._numbers:
            raise ValueError(f"{self._description}: parameters are named before the first backward pass")
        for number, (name, parameter) in enumerate(named):
            self._numbers[parameter] = number
            self._names[number] = name

    def _kept(self) -> dict[str, Residuals]:
        return {"residuals": self._residuals}

    def state_dict(self) -> dict:
        """For this rank's part of a checkpoint, between two steps: load_state_dict() goes on from it bit for bit."""
        self._settle()
        kept = {what: {self._names.get(number, str(number)): part for number, part in residuals.saved().items()}
                for what, residuals in self._kept().items()}
        return {"compression": self._description, "rank": self._rank, "ranks": self._size, "step": self._step} | kept

    def load_state_dict(self, state: dict) -> None:
        """Raises TypeError for what is no state, and ValueError for one of another compression, rank or number of ranks, or
        of other parameters."""
        if not isinstance(state, Mapping):
            raise TypeError(f"load_state_dict() takes what state_dict() has made, not {type(state).__name__}")
        kept = self._kept()
        missing = {"compression", "rank", "ranks", "step", *kept} - set(state)
        if missing:
            raise ValueError(f"this is not a state of {self}: it has no {', '.join(sorted(missing))}")
        if state["compression"] != self._description:
            raise ValueError(f"this state is of {state['compression']}, not of {self._description}")
        if (state["rank"], state["ranks"]) != (self._rank, self._size):
            raise ValueError(f"this state was saved by rank {state['rank']} of {state['ranks']}, and this is rank {self._rank} "
                             f"of {self._size}: every rank keeps its own")
        for what in kept:
            parts = state[what].values() if isinstance(state[what], Mapping) else [None]
            if not all(isinstance(part, torch.Tensor) for part in parts):
                raise ValueError(f"this is not a state of {self}: its {what} are no tensors by parameter")
        numbers = {name: number for number, name in self._names.items()}
        if not numbers:
            try:
                numbers = {name: int(name) for what in kept for name in state[what]}
            except ValueError:
                raise ValueError("this state has parameters by name: use register(), or name_parameters()") from None
        for what in kept:
            unknown = [name for name in state[what] if name not in numbers]
            if unknown:
                raise ValueError(f"this state has a parameter {unknown[0]}, which the model does not have")
        for what, residuals in kept.items():
            residuals.restore({numbers[name]: part for name, part in state[what].items()})
        self._step = state["step"]
        self._finite = True

    def statistics(self) -> dict[str, float]:
        """Since the state was made: buckets, gradient_bytes (of their buffers), dense_bytes (what a ring would have sent for
        them, from this rank), sent_bytes (what this rank gave to others instead, without headers; by_switch: by the way that
        each bucket took: of pairs 8 bytes each, of blocks all of those that are not zero, by trees what a ring sends), and the
        ratio of the two. Datagrams to a switch have headers that are more than a few pairs."""
        with self._lock:
            counted: dict[str, float] = dict(self._counted)
        return counted | {"ratio": counted["dense_bytes"] / counted["sent_bytes"] if counted["sent_bytes"] else 1.0}

    # One bucket.

    def run(self, bucket: dist.GradBucket) -> _Future:
        """What the hook does."""
        buffer = bucket.buffer()
        if self._step_ended:
            self._step_ended = False
            self._begin_step()
        if buffer.is_sparse:
            future = self._sum_sparse(buffer)
        else:
            self._check(buffer)
            self._count("buckets", 1)
            self._count("gradient_bytes", buffer.nbytes)
            self._count("dense_bytes", self._ring_bytes(buffer.nbytes))
            future = self._average(buffer, self._key(bucket))
        if bucket.is_last():
            self._step += 1
            self._step_ended = True
        return future

    def _begin_step(self) -> None:
        """All ranks call it at the same place of their steps: before the first bucket of each but the first one."""
        self._settle()

    def _settle(self) -> None:
        """Between two steps, when DDP has waited for all that the last one sent. GradScaler throws away a step with any
        gradient that is not finite, with all that was sent in it: residuals are then what they were before it. All ranks
        see the same averages, and decide the same."""
        for residuals in self._kept().values():
            residuals.settle(undo=not self._finite)
        self._finite = True

    def _look(self, averaged: torch.Tensor) -> torch.Tensor:
        """Notes whether what has come is finite."""
        if not is_finite(averaged):
            self._finite = False
        return averaged

    def _result(self, buffer: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return self._look(_store(buffer, values))

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        raise NotImplementedError

    def _check(self, buffer: torch.Tensor) -> None:
        if buffer.device.type != "cpu":
            raise TypeError(f"{self._description} takes gradients on the CPU; these are on {buffer.device}")
        if buffer.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"{self._description} takes gradients of float32, float16 or bfloat16, not {buffer.dtype}")

    def _key(self, bucket: dist.GradBucket) -> Key:
        key = tuple((self._numbers.setdefault(p, len(self._numbers)), p.numel()) for p in bucket.parameters())
        if sum(count for _, count in key) != bucket.buffer().numel():
            raise ValueError(f"{self._description}: a bucket of {bucket.buffer().numel()} elements came with parameters of "
                             f"{sum(count for _, count in key)}")
        return key

    def _contribution(self, buffer: torch.Tensor) -> torch.Tensor:
        """This rank's part of the average, in float32; the buffer itself if it is."""
        return (buffer if buffer.dtype == torch.float32 else buffer.float()).div_(self._size)

    def _sum_sparse(self, buffer: torch.Tensor) -> _Future:
        """Sparse gradients are small as they are: their sum is exact."""
        work = dist.all_reduce(buffer / self._size, group=self._group, async_op=True)

        def summed(future: _Future) -> torch.Tensor:
            total = future.value()[0]
            self._look(total._values())
            return total

        return work.get_future().then(summed)

    # Collectives, and what follows them.

    def _ring_bytes(self, nbytes: int) -> int:
        return 2 * (self._size - 1) * nbytes // self._size

    def _count(self, what: str, amount: int) -> None:
        with self._lock:
            self._counted[what] += amount

    def _reduce(self, group: dist.ProcessGroup, values: torch.Tensor) -> _Future:
        self._count("sent_bytes", self._ring_bytes(values.nbytes))
        return dist.all_reduce(values, group=group, async_op=True).get_future()

    def _gather(self, group: dist.ProcessGroup, mine: torch.Tensor,
                sizes: list[int]) -> tuple[_Future, Callable[[], list[torch.Tensor]]]:
        """Everybody's tensors of these sizes: when they are here, and where."""
        self._count("sent_bytes", mine.nbytes * (self._size - 1))
        if _known_by_name.is_over_talweg(group) or len(set(sizes)) == 1:
            parts = list(mine.new_empty(sum(sizes)).split(sizes))
            given = parts
        else:  # gloo takes even sizes only
            given = list(mine.new_empty(self._size, max(sizes)).unbind())
            parts = [padded[:size] for padded, size in zip(given, sizes)]
            mine = torch.nn.functional.pad(mine, (0, max(sizes) - mine.numel()))
        return dist.all_gather(given, mine, group=group, async_op=True).get_future(), lambda: parts

    @staticmethod
    def _then(first: _Future, finish: Callable[[], torch.Tensor]) -> _Future:
        promise = Promise()

        def done(future: _Future) -> None:
            def result() -> torch.Tensor:
                future.value()  # raises what went wrong
                return finish()

            promise.finish(result)

        first.add_done_callback(done)
        return promise.future

    def _then_again(self, first: _Future, second: Callable[[], Callable[[], tuple[_Future, Callable[[], torch.Tensor]]]]
                    ) -> _Future:
        """When the first collective is done, second() computes, and what it returns begins the second one: of all buckets
        in the order of the first ones."""
        promise = Promise()
        ticket = self._order.ticket()

        def begin(make: Callable[[], tuple[_Future, Callable[[], torch.Tensor]]]) -> None:
            try:
                future, finish = make()
            except Exception as error:
                promise.fail(error)
                return
            future.add_done_callback(lambda f: promise.finish(lambda: (f.value(), finish())[1]))

        def done(future: _Future) -> None:
            try:
                future.value()
                make = second()
            except Exception as error:
                failed = error
                self._order.run(ticket, lambda: promise.fail(failed))
                return
            self._order.run(ticket, lambda: begin(make))

        first.add_done_callback(done)
        return promise.future


def is_finite(values: torch.Tensor) -> bool:
    """Whether all of them are. Only sums that overflow need a closer look."""
    return bool(values.sum(dtype=torch.float32).isfinite()) or bool(values.isfinite().all())


def _store(buffer: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return buffer if values is buffer else buffer.copy_(values)


def _added(rows: _c10d.Rows, payloads: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    values.zero_()
    for payload in payloads:
        rows.add(payload, values)
    return values


def _counts(key: Key) -> list[int]:
    return [count for _, count in key]


class Sharded(Compression):
    """Every rank averages a shard in float32: an all-to-all of encoded gradients, an all-gather of encoded averages."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, code: str, block: int, feedback: bool,
                 seed: int | None) -> None:
        super().__init__(description, process_group, two_steps=True)
        self._code, self._block, self._feedback, self._seed = code, block, feedback, seed
        self._of_shards = Residuals()
        self._shards: dict[Key, _c10d.Shards] = {}

    def _kept(self) -> dict[str, Residuals]:
        return {"residuals": self._residuals, "shard_residuals": self._of_shards}

    def _shards_of(self, key: Key) -> _c10d.Shards:
        if key not in self._shards:
            self._shards[key] = _c10d.Shards(_counts(key), [number for number, _ in key], self._size, self._code, self._block)
        return self._shards[key]

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        values = self._contribution(buffer)
        shards, step = self._shards_of(key), self._step
        residual = own_residual = None
        if self._feedback:
            residual = self._residuals.row(key)
            own_counts = shards.shard_counts(self._rank)
            own_residual = self._of_shards.row(tuple((n, count) for (n, _), count in zip(key, own_counts)))
        sizes = shards.bytes()
        mine = sizes[self._rank]
        sent = shards.encode(self._rank, values, residual, self._seed, step)
        received = torch.empty(mine * self._size, dtype=torch.uint8)
        self._count("sent_bytes", sent.numel() - mine)
        first = dist.all_to_all_single(received, sent, [mine] * self._size, sizes, group=self._group, async_op=True)

        def second() -> Callable[[], tuple[_Future, Callable[[], torch.Tensor]]]:
            averaged = shards.sum(self._rank, received, own_residual, self._seed, step)
            return lambda: begin(averaged)

        def begin(averaged: torch.Tensor) -> tuple[_Future, Callable[[], torch.Tensor]]:
            future, parts = self._gather(self._second_group, averaged, sizes)

            def finish() -> torch.Tensor:
                shards.decode(torch.cat(parts()), values)
                return self._result(buffer, values)

            return future, finish

        return self._then_again(first.get_future(), second)


class ByRows(Compression):
    """Some rows of each rank's gradients go to all others, who add them up in rank order; the rest waits. Or a switch adds
    them up, as vectors that are zero elsewhere."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, width: int, two_steps: bool,
                 by_switch: bool = False) -> None:
        super().__init__(description, process_group, two_steps)
        self._width = width
        self._rows: dict[Key, _c10d.Rows] = {}
        self._by_switch = by_switch
        if by_switch:
            self._check_switch()

    def __repr__(self) -> str:
        # What a checkpoint has is the same by either way.
        return super().__repr__()[:-1] + ", by_switch=True)" if self._by_switch else super().__repr__()

    def _check_switch(self) -> None:
        """By what all ranks know alike: all of them take it, or none."""
        try:
            terms = talweg.torch.backend(self._group).switch_terms()
        except ValueError as error:
            raise ValueError(f"{self._description}: by_switch: {error}") from None
        if self._size == 1:
            return
        if terms is None:
            raise ValueError(f"{self._description}: by_switch needs a process group for which a switch sums: set TALWEG_SWITCH, and "
                             "TALWEG_ALGO to switch")
        if terms["sparse"] == "none":
            raise ValueError(f"{self._description}: by_switch: what is zero would travel to the switch: set TALWEG_SWITCH_SPARSE "
                             "to pairs, 1 or auto")
        if not terms["always"] and terms["sparse"] != "chosen":
            raise ValueError(f"{self._description}: by_switch: buckets would go whole, by trees, where the switch is not quicker for "
                             "whole ones: set TALWEG_ALGO to switch, or TALWEG_SWITCH_SPARSE to auto")
        if self._width == 1 and terms["sparse"] == "blocks":
            warnings.warn(f"{self._description}: by_switch: with TALWEG_SWITCH_SPARSE=1 all of a block travels of which one element is "
                          "chosen: with pairs or auto less does", stacklevel=5)

    def _rows_of(self, key: Key) -> _c10d.Rows:
        if key not in self._rows:
            self._rows[key] = _c10d.Rows(_counts(key), self._width)
        return self._rows[key]

    def _with_residual(self, buffer: torch.Tensor, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
        residual = self._residuals.row(key)
        return self._contribution(buffer).add_(residual), residual

    def _reduce_sparse(self, rows: _c10d.Rows, payload: torch.Tensor, values: torch.Tensor, buffer: torch.Tensor) -> _Future:
        """Everybody's rows, by the switch: none of the zeros between them travels."""
        sent = self._bytes_by_way(_added(rows, [payload], values))
        work = dist.all_reduce(values, group=self._group, async_op=True)

        def finish() -> torch.Tensor:
            self._count("sent_bytes", sent.get(_c10d.way_of(work), self._ring_bytes(values.nbytes)))
            return self._result(buffer, values)

        return self._then(work.get_future(), finish)

    def _bytes_by_way(self, values: torch.Tensor) -> dict[str, int]:
        """What of these a switch is sent, in each form that they may take; in any other way they go whole."""
        terms = talweg.torch.backend(self._group).switch_terms()
        if terms is None:
            return {}
        forms, block, element = ("pairs", "blocks"), terms["block"], terms["float_bytes"]
        if terms["sparse"] in forms:
            forms = (terms["sparse"],)
        sent = {"dense": int(values.numel() * element)}
        if "pairs" in forms:
            sent["pairs"] = 8 * int(values.count_nonzero())
        if "blocks" in forms and block and values.numel():
            short = -values.numel() % block  # of the last one
            travels = torch.nn.functional.pad(values, (0, short)).view(-1, block).any(1)
            sent["blocks"] = int((int(travels.sum()) * block - short * int(travels[-1])) * element)
        return sent

    def _sum(self, rows: _c10d.Rows, payloads: list[torch.Tensor], values: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        return self._result(buffer, _added(rows, payloads, values))


class Top(ByRows):
    """A part of the rows, of largest norm."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, ratio: float, width: int,
                 by_switch: bool) -> None:
        super().__init__(description, process_group, width, two_steps=False, by_switch=by_switch)
        self._ratio = ratio

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        values, residual = self._with_residual(buffer, key)
        rows = self._rows_of(key)
        payload = rows.pack(values, rows.top(values, self._ratio), residual)
        if self._by_switch:
            return self._reduce_sparse(rows, payload, values, buffer)
        # How many rows of which width follows from the bucket: all ranks' payloads are equally long.
        future, parts = self._gather(self._group, payload, [payload.numel()] * self._size)
        return self._then(future, lambda: self._sum(rows, parts(), values, buffer))


class Randomly(ByRows):
    """Any elements, the same on all ranks: their values add up as they are sent."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, ratio: float, seed: int) -> None:
        super().__init__(description, process_group, 1, two_steps=False)
        self._ratio, self._seed = ratio, seed

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        values, residual = self._with_residual(buffer, key)
        rows = self._rows_of(key)
        seed = (self._seed + self._step * 0x9E3779B97F4A7C15) % 2**64
        payload = rows.pack(values, rows.random(self._ratio, seed, [number for number, _ in key]), residual)
        chosen, taken = payload[1:].split([int(payload[0])] * 2)
        taken = taken.view(torch.float32)
        if not bool(torch.isfinite(values.sum())):
            self._mark(values, key, chosen, taken)
        return self._then(self._reduce(self._group, taken), lambda: self._sum(rows, [payload], values, buffer))


    @staticmethod
    def _mark(values: torch.Tensor, key: Key, chosen: torch.Tensor, taken: torch.Tensor) -> None:
        """What is not finite and was not drawn would not be heard of: what was drawn of its parameter says so."""
        begin = 0
        for part in values.split(_counts(key)):
            if not bool(part.isfinite().all()):
                taken[int(torch.searchsorted(chosen, begin))] = torch.nan
            begin += part.numel()


class AboveThreshold(ByRows):
    """All elements of a magnitude: how many, the ranks tell each other first, or the switch need not know."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, least: float, by_switch: bool) -> None:
        super().__init__(description, process_group, 1, two_steps=not by_switch, by_switch=by_switch)
        self._least = least

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        values, residual = self._with_residual(buffer, key)
        rows = self._rows_of(key)
        payload = rows.pack(values, rows.at_least(values, self._least / self._size), residual)
        if self._by_switch:
            return self._reduce_sparse(rows, payload, values, buffer)
        first, sizes = self._gather(self._group, torch.tensor([payload.numel()]), [1] * self._size)

        def begin() -> tuple[_Future, Callable[[], torch.Tensor]]:
            future, parts = self._gather(self._second_group, payload, [int(size) for size in sizes()])
            return future, lambda: self._sum(rows, parts(), values, buffer)

        return self._then_again(first, lambda: begin)


class Automatic(Compression):
    """Nothing is lost: a bucket goes whole, by its elements or by its blocks that are not zero, as is cheapest."""

    def __init__(self, description: str, process_group: dist.ProcessGroup | None, block: int) -> None:
        super().__init__(description, process_group, two_steps=True)
        self._block = block
        self._forms: dict[Key, tuple[_c10d.SendingChooser, dict[str, _c10d.Rows]]] = {}
        self._counted |= {"dense": 0, "elements": 0, "blocks": 0}

    def _average(self, buffer: torch.Tensor, key: Key) -> _Future:
        if key not in self._forms:
            self._forms[key] = (_c10d.SendingChooser(buffer.numel(), self._size, self._block),
                                {"elements": _c10d.Rows(_counts(key), 1), "blocks": _c10d.Rows(_counts(key), self._block)})
        chooser, rows = self._forms[key]
        form = chooser.now()
        values = self._contribution(buffer)
        if form == "dense":
            return self._then(self._reduce(self._group, values), lambda: self._seen(key, "dense", values, buffer))
        chosen = {name: of.at_least(values, _NOT_ZERO) for name, of in rows.items()}
        payload = rows[form].pack(values, chosen[form])
        told = torch.tensor([payload.numel(), chosen["elements"].numel(), chosen["blocks"].numel()])
        first, all_told = self._gather(self._group, told, [3] * self._size)

        def begin() -> tuple[_Future, Callable[[], torch.Tensor]]:
            told = torch.stack(all_told())
            own = told[:, 1:].double().mean(0).tolist()
            sizes = told[:, 0].tolist()
            if chooser.is_dear(sum(sizes)):
                return (self._reduce(self._second_group, values), lambda: self._seen(key, "dense", values, buffer, *own))
            future, parts = self._gather(self._second_group, payload, sizes)

            def finish() -> torch.Tensor:
                _added(rows[form], parts(), values)
                return self._seen(key, form, values, buffer, *own)

            return future, finish

        return self._then_again(first, lambda: begin)

    def _seen(self, key: Key, form: str, values: torch.Tensor, buffer: torch.Tensor, *own: float) -> torch.Tensor:
        chooser, rows = self._forms[key]
        self._count(form, 1)
        chooser.observe(*(rows[name].at_least(values, _NOT_ZERO).numel() for name in ("elements", "blocks")), *own)
        return _store(buffer, values)
