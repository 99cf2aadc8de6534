"""What stands between a DDP model's reducer and its process group while somebody looks on or a plan holds.

DDP hands every bucket to its group's allreduce, in the order of its buckets. A Sender takes the group's place in the
reducer (not in the model), passes each all-reduce on to the group behind it, and returns that group's own work: the
arithmetic stays DDP's, and no communication hook is taken, of which DDP allows one for ever."""

from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Watch(Protocol):
    def sending(self, tensor: torch.Tensor) -> Callable[[Any], None]:
        """A bucket is about to be sent; what is returned is called when its future is done, on any thread."""


class Way(NamedTuple):
    """How one bucket is to be sent."""

    elements: int
    priority: int


class Sender(dist.ProcessGroup):
    """Any thread may call; `watch` and the plan change only between steps."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group.rank(), group.size())
        self.group = group
        self._backend = talweg_backend(group)
        self.watch: Watch | None = None
        self.plan: Any = None  # what _plan.follow() was last asked for; None: DDP's own buckets
        self.follow([], None, None)

    def follow(self, ways: list[Way], partition: int | None, credit: int | None) -> None:
        """From now on the i-th bucket of a backward pass goes the i-th way, in pieces of at most `partition` bytes, of
        which no further one starts while `credit` bytes or more are under way. No ways: as DDP asks."""
        self._ways = ways
        self._next = 0
        self._partition = partition
        self._pipe = _Pipe(self._start, credit)

    def allreduce(self, tensors, options=None):
        options = options or dist.AllreduceOptions()
        if self.watch is None:
            return self._send(tensors, options)
        done = self.watch.sending(tensors[0])
        work = self._send(tensors, options)
        work.get_future().add_done_callback(done)
        return work

    def broadcast(self, tensors, options):
        return self.group.broadcast(tensors, options)

    def is_idle(self) -> bool:
        return self.watch is None and self.plan is None

    def _way_of(self, tensor: torch.Tensor) -> Way | None:
        """None for what is no bucket, such as DDP's map of used parameters. Where a pass ended early, its next begins
        with the first bucket again."""
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        for index in (self._next, 0):
            if index < len(self._ways) and self._ways[index].elements == tensor.numel():
                self._next = (index + 1) % len(self._ways)
                return self._ways[index]
        return None

    def _send(self, tensors, options):
        way = self._way_of(tensors[0])
        if tensors[0].layout != torch.strided:
            return self.group.allreduce(tensors, options)
        if self._partition is None and self._pipe.credit is None:
            return self._start(tensors[0], options, way.priority if way else 0)
        if way is None:  # in the order of the pieces all the same: what overtakes them does so on some ranks only
            return self._pipe.send(tensors[0], [tensors[0]], options, 0)
        tensor = tensors[0].view(-1)
        size = max(1, (self._partition or tensor.nbytes) // tensor.element_size())
        return self._pipe.send(tensors[0], list(tensor.split(size)), options, way.priority)

    def _start(self, tensor, options, priority):
        if priority and self._backend is not None and tensor.device.type == "cpu":
            return self._backend.all_reduce_with_priority([tensor], options, priority)
        return self.group.allreduce([tensor], options)


class _Pipe:
    """Starts pieces in the order in which they come, which is the same on all ranks: only when the next one starts
    depends on what has arrived."""

    def __init__(self, start: Callable[..., Any], credit: int | None) -> None:
        self.credit = credit
        self._start = start
        self._lock = threading.Lock()
        self._waiting: collections.deque[tuple[torch.Tensor, Any, int, _Whole]] = collections.deque()
        self._under_way = 0
        self._advancing = False  # on one thread at a time: two must not swap two pieces

    def send(self, tensor, pieces, options, priority):
        whole = _Whole(tensor, len(pieces))
        with self._lock:
            self._waiting.extend((piece, options, priority, whole) for piece in pieces)
        self._advance()
        return torch._C._distributed_c10d._create_work_from_future(whole.future)

    def _advance(self):
        with self._lock:
            if self._advancing:
                return  # whoever is at it looks again: what ends at once must not nest, piece within piece
            self._advancing = True
        try:
            while self._start_next():
                pass
        except BaseException:  # such as ^C: the next one goes on
            self._advancing = False
            raise

    def _start_next(self) -> bool:
        with self._lock:
            if not self._waiting or (self.credit is not None and self._under_way >= self.credit):
                self._advancing = False
                return False
            piece, options, priority, whole = self._waiting.popleft()
            self._under_way += piece.nbytes
        try:
            work = self._start(piece, options, priority)
        except Exception as error:  # whoever waits for the bucket hears of it
            with self._lock:
                self._under_way -= piece.nbytes
            whole.failed(error)
        else:
            work.get_future().add_done_callback(lambda future: self._done(future, piece, whole))
        return True

    def _done(self, future, piece, whole):
        with self._lock:  # first: who waits for the bucket finds nothing of it under way
            self._under_way -= piece.nbytes
        try:
            future.value()
        except Exception as error:
            whole.failed(error)
        else:
            whole.arrived()
        self._advance()


class _Whole:
    """A bucket of which pieces are under way."""

    def __init__(self, tensor: torch.Tensor, pieces: int) -> None:
        self._tensor = tensor
        self._missing = pieces
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._on_device = tensor.device.type != "cpu"
        self._arrivals: list[torch.Event] = []  # on a device, pieces end on streams of their own, later than their futures
        self._ended: torch.futures.Future = torch.futures.Future(devices=[tensor.device] if self._on_device else [])
        # Not set_exception, which only Python would notice: DDP looks from C++.
        self.future = self._ended.then(self._outcome)

    def arrived(self) -> None:
        """On a device: called where the current stream waits for the piece, as in callbacks of its future."""
        if self._on_device:
            event = torch.Event(device=self._tensor.device)
            event.record()
            with self._lock:
                self._arrivals.append(event)
        self._end(1, None)

    def failed(self, error: Exception) -> None:
        self._end(self._missing, error)

    def _end(self, pieces, error):
        with self._lock:
            last = 0 < self._missing <= pieces
            self._missing -= pieces
            self._error = self._error or error
        if last:
            self._ended.set_result(None)

    def _outcome(self, _):
        if self._error is not None:
            raise self._error
        for event in self._arrivals:  # the stream that runs this is what whoever has the future waits for
            event.wait()
        return [self._tensor]


_senders: weakref.WeakKeyDictionary[DistributedDataParallel, Sender] = weakref.WeakKeyDictionary()


def sender_of(model: DistributedDataParallel) -> Sender:
    """The model's; made and put in place if it has none."""
    if model not in _senders:
        _senders[model] = Sender(model.process_group)
        put_in_place(model)
    return _senders[model]


def is_watched(model: DistributedDataParallel) -> bool:
    return model in _senders and _senders[model].watch is not None


def plan_of(model: DistributedDataParallel) -> Any:
    """What the model follows, for _plan.follow()."""
    return _senders[model].plan if model in _senders else None


def put_in_place(model: DistributedDataParallel) -> None:
    """Into the model's reducer, which may be a new one."""
    model.reducer._update_process_group(_senders.get(model, model.process_group))


def let_go(model: DistributedDataParallel) -> None:
    """Takes a sender out again that nobody needs any more."""
    if model in _senders and _senders[model].is_idle():
        del _senders[model]
        put_in_place(model)


@contextlib.contextmanager
def unfrozen(model: DistributedDataParallel) -> Iterator[None]:
    """Within it, what was frozen after DDP was made requires gradients again, so that it is among the parameters that DDP looks
    for when it makes a reducer. The reducer that DDP has goes on with it, which matters once it is unfrozen."""
    frozen: list[torch.Tensor] = []
    if not all(p.requires_grad for p in model.module.parameters()):  # else spares zeros as large as the gradients
        with contextlib.suppress(RuntimeError):  # with sparse gradients DDP does not tell what is in its buckets
            frozen = [p for bucket in model.reducer._get_zeros_like_grad_buckets() for p in bucket.parameters()
                      if not p.requires_grad]
    try:
        for p in frozen:
            p.requires_grad_(True)
        yield
    finally:
        for p in frozen:
            p.requires_grad_(False)


def refuse_what_hides_buckets(model: DistributedDataParallel, who: str) -> None:
    """Raises ValueError for models whose reducer does not send whole gradients through its group."""
    if not isinstance(model, DistributedDataParallel):
        raise ValueError(f"{who}: expected a model in DistributedDataParallel, got {type(model).__name__}")
    if model._comm_hooks:
        raise ValueError(f"{who}: the model has a communication hook ({_name(model._comm_hooks[0][0])}), and what it sends "
                         "cannot be seen")
    if model._use_python_reducer or model.mixed_precision is not None or model._delay_all_reduce_params:
        raise ValueError(f"{who}: works with DDP's own reducer, without mixed_precision, delayed parameters and the "
                         "Python reducer of compiled autograd")


tried: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()  # the models on which try_plan() is trying one


def refuse_while_tried(model: DistributedDataParallel, who: str) -> None:
    """Raises ValueError for a model whose sending somebody else is about to change, which would mix up what is measured."""
    if model in tried:
        raise ValueError(f"{who}: a plan is being tried on the model")


def device_of(model: DistributedDataParallel) -> torch.device:
    """Of the gradients, or of one where there are several: that of the first parameter that has any."""
    return next(p.device for p in model.parameters() if p.requires_grad)


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


def talweg_backend(group: dist.ProcessGroup) -> Any:
    """Of a group over Talweg on CPU tensors, which may have another for a device's, else None; torch's debug wrapper hides it."""
    backend = group._get_backend(torch.device("cpu")) if "cpu" in {d.type for d in group._device_types} else None
    return backend if hasattr(backend, "all_reduce_with_priority") else None
