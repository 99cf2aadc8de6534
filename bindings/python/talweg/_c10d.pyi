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
        shared_memory_bytes (mapped for this rank)."""
    def flight_record(self) -> str:
        """The last calls of this rank as JSON, those in flight with the ranks that they wait for; `talweg doctor` reads the
        files of all ranks."""
    def all_reduce_with_priority(
        self, tensors: list[_Tensor], options: _AllreduceOptions, priority: int,
    ) -> _Work:
        """What torch.distributed.all_reduce(..., async_op=True) does to the one tensor of the list; what this rank sends of it
        overtakes, chunk by chunk, what it sends of calls with a lower priority (0 to 7). Ranks need not agree on it."""

class StepLog:
    """What happens when in a model's training steps: see _watching.py, whose part in C++ it is."""

    look_for_sources: bool

    def __init__(self, layers: int, now: Callable[[], Any] | None) -> None: ...
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
