from collections.abc import Callable
from typing import Any

from torch import Tensor as _Tensor
from torch.distributed import AllreduceOptions as _AllreduceOptions, Backend as _Backend, Work as _Work

class CallValueError(ValueError, RuntimeError):
    """A call that can never work."""

class CallTypeError(TypeError, RuntimeError):
    """A call on types that can never work."""

class Backend(_Backend):
    """What `talweg.torch.backend` returns: torch's backend, and what a Talweg group can tell about itself."""

    def describe(self) -> str:
        """How the group is connected and what was chosen and why, a "key: value (origin)" a line."""
    def explain(self, operation: str, count: int, type: str) -> str:
        """Which algorithm would carry a call, and how long it is expected to take. `operation` is such as "all_reduce",
        `type` such as "f32" or "float32", `count` in elements. Raises ValueError for names it does not know."""
    def statistics(self) -> dict[str, int]:
        """What has gone through the connections, which all Talweg groups share, in bytes: bytes_sent and bytes_received
        (frames with their headers), peak_buffer_bytes (chunk buffers held at once, beyond the tensors) and
        shared_memory_bytes (mapped for this rank). Of sums that may lose a part, which are not in the former: bounded_calls,
        bounded_sent_bytes, bounded_lost_bytes (never arrived) and bounded_packets_again (packets sent again)."""
    def switch_terms(self) -> dict[str, Any] | None:
        """How all_reduces go by the group's switches; None: it has none that sum. For talweg.torch.hooks. The same on all ranks:
        always (all that can be summed goes by them), sparse ("none", "blocks", "pairs", "chosen": what is zero does not travel in
        that form, or in the quickest) and float_bytes (of a float32 as it travels); and block, the elements that travel together,
        or not, which is 0 before they have been joined."""
    def flight_record(self) -> str:
        """The last calls of this rank as JSON, those in flight with the ranks that they wait for; `talweg doctor` reads the
        files of all ranks."""
    def all_reduce_with_priority(
        self, tensors: list[_Tensor], options: _AllreduceOptions, priority: int,
    ) -> _Work:
        """What torch.distributed.all_reduce(..., async_op=True) does to the one tensor of the list; what this rank sends of it
        overtakes, chunk by chunk, what it sends of calls with a lower priority (0 to 7). Ranks need not agree on it."""
    def bounded_sums(self, p: float, policy: str = "zero", packet_bytes: int = 0, droppable: tuple[float, float] = ...,
                     keep_important: bool = False, queues: int = 1, back_first: bool = False,
                     servers: list[int] = ..., p_sender: float | None = None, p_call: float | None = None) -> BoundedSums:
        """Sums of which the part `p` of each rank's data may be lost on the way, as help(talweg.Group.bounded_sums) says.
        `droppable`: in the front and in the back layers; no `servers`: all ranks.
        Every rank calls it, with the same arguments. Raises ValueError for arguments that can never work, and torch's
        DistBackendError."""

class BoundedSums:
    """Sums of gradients of which a bounded part may be lost on the way, from Backend.bounded_sums(). For talweg.torch.hooks."""

    def all_reduce(self, values: _Tensor, residual: _Tensor | None = None, layers: list[int] = ...,
                   average: bool = False, depth: float = 0.0, priority: int = 0) -> dict[str, Any]:
        """In place: the sum or the average of all ranks' values, contiguous tensors on the CPU of halves, float32 or float64.
        Blocks; of one thread at a time. The residual, the layers and the priority are as in help(talweg.BoundedSums.all_reduce).
        Returns sent_bytes, lost_bytes, lost_important_bytes, exact, by_switch, lost_of_layer and packets_again, as help(talweg.LossReport) says."""
    def explain(self, count: int, type: str = "f32") -> str:
        """How an all_reduce of `count` elements would go, as help(talweg.BoundedSums.explain) says. Raises ValueError for
        what no all_reduce takes."""

def way_of(work: _Work) -> str:
    """By which way an all_reduce was made that a switch could have summed: "pairs", "blocks" or "dense", the form in which a
    switch has; "trees" or "fallback"; "" before it is done, and for what is no such call. For talweg.torch.hooks."""

class StepLog:
    """What happens when in a model's training steps: see _watching.py, whose part in C++ it is."""

    look_for_sources: bool

    def __init__(self, layers: int, now: Callable[[], Any] | None) -> None:
        """Of so many layers. `now` gives what stands for the time of an entry; None: this process's clock."""
    def note(self, kind: int, index: int) -> None:
        """Adds an entry; any thread may."""
    def pass_begins(self) -> None:
        """The forward pass of the whole model begins."""
    def pass_ends(self) -> None:
        """It ends."""
    def in_front_of(self, layer: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's forward() that notes when it is called and returns."""
    def watch_parameters(self, parameters: list[_Tensor]) -> None:
        """Notes from now on when the gradient of each is there."""
    def end(self) -> None:
        """Takes away what is on parameters; from now on nothing is noted but what note() is asked for."""
    def entries(self) -> list[tuple[int, int, Any]]:
        """(kind, index, stamp) of each, as they happened: nanoseconds of the monotonic clock, or what `now` returned."""
    def sources(self) -> list[set[int]]:
        """For each layer those whose outputs it reads, as far as look_for_sources was set."""

def create(options: object, parent: Backend | None = None) -> Backend:
    """Joins a group, as torch's registry asks for it (`options` is c10d's DistributedBackendOptions), and shares the
    connections of `parent`. Blocks until all ranks are there; raises torch's DistBackendError."""

class Shards:
    """A bucket of gradients in a form that cannot be added up as it is sent: every rank averages one shard of it. For
    talweg.torch.hooks. `counts` are the elements of each parameter, `numbers` their own, the same on all ranks; `code` is
    "f32", "f16", "bf16", "int8" or "int4"; `block` a multiple of 16 from 16 to 1024. Gradients, residuals and outputs are
    contiguous float32 tensors on the CPU, encoded ones are uint8."""

    def __init__(self, counts: list[int], numbers: list[int], ranks: int, code: str, block: int = 256) -> None:
        """Raises ValueError for a code or a block that is none."""
    def bytes(self) -> list[int]:
        """Of each rank's shard, encoded."""
    def shard_counts(self, rank: int) -> list[int]:
        """How many elements of each parameter are in a rank's shard."""
    def encode(self, rank: int, gradients: _Tensor, residual: _Tensor | None = None, seed: int | None = None,
               step: int = 0) -> _Tensor:
        """All shards of gradients + residual, one behind another; the residual becomes what was not sent. With a seed,
        rounding is stochastic."""
    def sum(self, rank: int, received: _Tensor, residual: _Tensor | None = None, seed: int | None = None,
            step: int = 0) -> _Tensor:
        """The sum of this rank's shard, as every rank sent it, encoded again; `residual` is the shard's own."""
    def decode(self, gathered: _Tensor, out: _Tensor) -> None:
        """Writes all shards' sums to `out`."""

class Rows:
    """Some rows of a bucket of gradients, as they are sent where most of it is not worth sending. For talweg.torch.hooks.
    `counts` are the elements of each parameter, `width` those of a row; chosen rows (their first elements) and payloads are
    int32 tensors."""

    def __init__(self, counts: list[int], width: int) -> None:
        """A parameter that is shorter than a row is one row of its own length."""
    def top(self, gradients: _Tensor, ratio: float) -> _Tensor:
        """Of every parameter the rows of largest L2 norm: `ratio` of them, at least one."""
    def at_least(self, gradients: _Tensor, least: float) -> _Tensor:
        """All rows with an element of this magnitude or more, or NaN."""
    def random(self, ratio: float, seed: int, numbers: list[int]) -> _Tensor:
        """Of every parameter any rows: `ratio` of them, at least one."""
    def packed_words(self, chosen: _Tensor) -> int:
        """Of the payload that pack() makes of them."""
    def pack(self, gradients: _Tensor, chosen: _Tensor, residual: _Tensor | None = None) -> _Tensor:
        """The chosen rows with their values; the residual becomes what was not chosen, where that is finite."""
    def add(self, payload: _Tensor, sums: _Tensor) -> None:
        """Adds a payload's rows. Raises DistBackendError for what is none, before anything is written."""

class SendingChooser:
    """In which form a bucket is sent where nothing is to be lost. For talweg.torch.hooks."""

    def __init__(self, elements: int, ranks: int, block: int) -> None:
        """Of one bucket, which goes densely at first."""
    def now(self) -> str:
        """"dense", "elements" or "blocks"."""
    def is_dear(self, words_of_all: int) -> bool:
        """Whether lists of so many words, of all ranks together, are far more than the dense bucket."""
    def observe(self, union_elements: int, union_blocks: int, own_elements: float | None = None,
                own_blocks: float | None = None) -> None:
        """What was not zero in a step: in the sum and, where ranks told each other, in a rank's own, on average."""
