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

def create(options: object, parent: Backend | None = None) -> Backend:
    """Joins a group, as torch's registry asks for it (`options` is c10d's DistributedBackendOptions), and shares the
    connections of `parent`. Blocks until all ranks are there; raises torch's DistBackendError."""
