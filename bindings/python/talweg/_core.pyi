from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from types import TracebackType
from os import PathLike
from typing import Any, Literal

from typing_extensions import Buffer

__version__: str
ANY_RANK: int

Timeout = float | timedelta | None

class Error(RuntimeError):
    """Everything that Talweg reports; the text is one line."""

    code: Literal[
        "invalid_argument", "bad_file", "unsupported", "system", "timeout",
        "peer_failed", "aborted", "version", "mismatch", "corrupted",
    ]

class ReduceOp(Enum):
    SUM = ...
    PRODUCT = ...
    MIN = ...
    MAX = ...
    BIT_AND = ...
    BIT_OR = ...
    BIT_XOR = ...
    AVG = ...

SUM = ReduceOp.SUM
PRODUCT = ReduceOp.PRODUCT
MIN = ReduceOp.MIN
MAX = ReduceOp.MAX
BIT_AND = ReduceOp.BIT_AND
BIT_OR = ReduceOp.BIT_OR
BIT_XOR = ReduceOp.BIT_XOR
AVG = ReduceOp.AVG

class Work:
    """A collective in flight. Dropping it does not cancel it; its arrays must stay untouched until it is done."""

    def wait(self, timeout: Timeout = None) -> bool:
        """True when done; False when `timeout` seconds passed first. Raises Error if the collective failed."""
    def is_completed(self) -> bool: ...
    def exception(self) -> Error | None:
        """What went wrong; None while in flight and after success."""
    @property
    def sequence(self) -> int: ...
    @property
    def source_rank(self) -> int:
        """recv: who sent; otherwise -1."""

class Group:
    """Ranks that call collectives together, all the same ones in the same order.

    Arrays are C-contiguous objects with the buffer protocol, without masks. A call returns None when done, or a Work at once with
    async_op=True. `timeout` is in seconds (default: the group's); `priority` is 0 to 7, the same on every rank.
    Input and output are two arrays, or one array in all_reduce, reduce and broadcast. Arrays that overlap otherwise are
    refused, but for a rank's own part of the whole (in its place) in all_gather, reduce_scatter, gather and scatter.
    `counts` are elements for each rank, where they are not all equal. Arguments that differ between ranks raise
    Error with code "mismatch" on every rank, and no array has been written.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(
        self, array: Buffer, op: ReduceOp = ..., out: Buffer | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Without `out`, in place."""
    def reduce(
        self, array: Buffer, root: int = 0, op: ReduceOp = ..., out: Buffer | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """The result goes to `out` on the root, or into its array."""
    def broadcast(
        self, array: Buffer, root: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None: ...
    def reduce_scatter(
        self, array: Buffer, out: Buffer, op: ReduceOp = ..., counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """`array`: sum(counts) elements; `out`: counts[rank]."""
    def all_gather(
        self, array: Buffer, out: Buffer, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """`array`: counts[rank] elements; `out`: sum(counts)."""
    def all_to_all(
        self, array: Buffer, out: Buffer,
        in_counts: Sequence[int] | None = None, out_counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """`array`: in_counts[d] elements for rank d, one behind the other; `out`: out_counts[s] from rank s."""
    def gather(
        self, array: Buffer, out: Buffer | None = None, root: int = 0, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """`out` and `counts` matter on the root only."""
    def scatter(
        self, array: Buffer | None, out: Buffer, root: int = 0, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """`array` and `counts` matter on the root only."""
    def send(
        self, array: Buffer, destination: int, tag: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None: ...
    def recv(
        self, array: Buffer, source: int = ..., tag: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """From `source`, by default from anybody (then Work.source_rank says who)."""
    def barrier(self, async_op: bool = False, timeout: Timeout = None, priority: int = 0) -> Work | None: ...
    def split(self, ranks: Sequence[int]) -> Group | None:
        """A group of some ranks, numbered in the order given; every rank of this group calls it."""
    def abort(self, why: str) -> None:
        """Fails everything in flight and every later call, on all ranks."""
    def set_timeout(self, timeout: float | timedelta) -> None: ...
    def describe(self) -> str:
        """How the group is connected and what was chosen and why, a "key: value (origin)" a line."""
    def flight_record(self) -> str:
        """The last calls of this rank as JSON; `talweg doctor` reads the files of all ranks."""
    def explain(self, operation: str, count: int, type: str) -> str:
        """Which algorithm would carry a call, and how long it is expected to take."""
    def statistics(self) -> dict[str, int]: ...
    def host_of(self, rank: int) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Group: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None: ...

def init(
    rank: int = -1, size: int = -1, store: str = "", prefix: str = "", timeout: Timeout = None,
    interface: str = "", cluster: str = "", algorithm: str = "",
) -> Group:
    """Joins the group that the environment describes (talweg run, torchrun, mpirun, srun) and blocks until all ranks
    are connected. `store` is "file:/path", a file that all ranks see; without it, rank 0 serves at MASTER_ADDR and
    MASTER_PORT."""

def plan(cluster: str | PathLike[str] = ..., **arguments: Any) -> dict[str, Any]:
    """What `talweg plan --json` writes; help(talweg.plan) lists the arguments."""

def simulate(network: str | PathLike[str] = ..., **arguments: Any) -> dict[str, Any]:
    """What `talweg simulate --json` writes; help(talweg.simulate) lists the arguments."""
