from torch import Tensor as _Tensor
from torch.distributed import Backend as _Backend

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
