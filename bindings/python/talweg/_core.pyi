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
    """What Talweg reports, as one line; `code` says in one word what kind it is.

    invalid_argument: a call or an option that can never work; nothing was changed
    bad_file: an input file says something wrong; the text has file, line and what was expected
    unsupported: well-formed, but this build or this machine cannot do it
    system: the operating system refused; the text has its reason
    timeout: a deadline passed; the text names who was waited for
    peer_failed: another rank died or left
    aborted: this rank or another one called abort
    version: the two sides speak different versions
    mismatch: ranks disagree about what they call; no array was written
    corrupted: a checksum did not match
    """

    code: Literal[
        "invalid_argument", "bad_file", "unsupported", "system", "timeout",
        "peer_failed", "aborted", "version", "mismatch", "corrupted",
    ]

class ReduceOp(Enum):
    """How the ranks' elements become one: SUM, PRODUCT, MIN, MAX, the bits of integers by BIT_AND, BIT_OR, BIT_XOR, and
    AVG, the sum divided by the number of ranks (of integers: truncated toward zero). Of bools SUM and MAX are "or",
    PRODUCT and MIN are "and"."""

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
    """A call in flight, from async_op=True. Any thread may ask it. Dropping it does not cancel it; its arrays must stay
    untouched until it is done."""

    def wait(self, timeout: Timeout = None) -> bool:
        """True when done; False when `timeout` (seconds or a timedelta) passed first, and the call goes on. Without one,
        the call's own deadline bounds the wait. Raises Error if the call failed; Ctrl-C leaves it in flight."""
    def is_completed(self) -> bool:
        """Whether it has ended, well or badly. Does not wait."""
    def exception(self) -> Error | None:
        """What went wrong; None while in flight and after success."""
    @property
    def sequence(self) -> int:
        """The call's number in its group, as errors and flight records name it."""
    @property
    def source_rank(self) -> int:
        """recv: who sent, once it is done; otherwise -1."""

class Group:
    """Ranks that call collectives together, all the same ones in the same order. Any thread may call.

    Arrays are C-contiguous objects with the buffer protocol, without masks, of integers of 8 to 64 bits, float16 to
    float64, complex64, complex128 or bool. A call returns None when done, or a Work at once with async_op=True.
    `timeout` is in seconds, or a timedelta (default: the group's). `priority` is 0 to 7: what
    this rank sends of a call with a higher one overtakes; other ranks may give another, which changes no result.

    Input and output are two arrays, or one array in all_reduce, reduce and broadcast. Arrays that overlap otherwise are
    refused, but for a rank's own part of the whole (in its place) in all_gather, reduce_scatter, gather and scatter.
    `counts` are elements for each rank; without them, all ranks have the same number.

    What does not fit raises TypeError or Error ("invalid_argument", "unsupported") at once. Arguments that differ between
    ranks raise Error with code "mismatch" on every rank; no array has been written and the group stays usable. A call
    also ends in Error with "timeout", "peer_failed" or "aborted".
    """

    @property
    def rank(self) -> int:
        """This process's number in the group: 0 to size - 1."""
    @property
    def size(self) -> int:
        """How many ranks the group has."""
    def all_reduce(
        self, array: Buffer, op: ReduceOp = SUM, out: Buffer | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Every rank gets all ranks' arrays reduced element by element, with the same bits everywhere: in `out`, or in
        place without it. Both have the same number of elements and the same type.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def reduce(
        self, array: Buffer, root: int = 0, op: ReduceOp = SUM, out: Buffer | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """As all_reduce, but the result goes to rank `root` only: to its `out`, or into its `array` without one. `array`
        has the same number of elements on every rank; other ranks' is only read, and their `out` is ignored.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def broadcast(
        self, array: Buffer, root: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Rank `root`'s array overwrites the others', which have the same number of elements of the same type.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def reduce_scatter(
        self, array: Buffer, out: Buffer, op: ReduceOp = SUM, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """The ranks' arrays are reduced element by element, and rank r gets the r-th part of the result. `array`:
        sum(counts) elements; `out`: counts[rank].

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def all_gather(
        self, array: Buffer, out: Buffer, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Every rank gets all ranks' arrays, one behind the other in the order of ranks. `array`: counts[rank] elements;
        `out`: sum(counts).

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def all_to_all(
        self, array: Buffer, out: Buffer,
        in_counts: Sequence[int] | None = None, out_counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Every rank sends each rank a part of its array. `array`: in_counts[d] elements for rank d, one behind the other;
        `out`: out_counts[s] from rank s. Two arrays that do not overlap.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def gather(
        self, array: Buffer, out: Buffer | None = None, root: int = 0, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Rank `root` gets all ranks' arrays, one behind the other. `array`: counts[rank] elements; `out`: sum(counts).
        `out` and `counts` matter on the root only.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def scatter(
        self, array: Buffer | None, out: Buffer, root: int = 0, counts: Sequence[int] | None = None,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Rank `root` deals its array out: rank r gets the r-th part. `array`: sum(counts) elements; `out`: counts[rank].
        `array` and `counts` matter on the root only; elsewhere `array` may be None.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def send(
        self, array: Buffer, destination: int, tag: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """To rank `destination`, which calls recv with the same number of elements, type and tag (0 to 2**32 - 1). Messages
        between two ranks with one tag come in order; they are not ordered against collectives.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def recv(
        self, array: Buffer, source: int = ANY_RANK, tag: int = 0,
        async_op: bool = False, timeout: Timeout = None, priority: int = 0,
    ) -> Work | None:
        """Fills `array` with what rank `source` sends with this tag, by default from anybody (then Work.source_rank says
        who). The sender's array has the same number of elements and the same type.

        Arrays, async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def barrier(self, async_op: bool = False, timeout: Timeout = None, priority: int = 0) -> Work | None:
        """Done when every rank has called it and everything that this rank started before has ended.

        async_op, timeout (seconds), priority and errors are as help(talweg.Group) says."""
    def split(self, ranks: Sequence[int]) -> Group | None:
        """A group of some of this group's ranks, numbered in the order given; every rank of this group calls it, in the same
        order. None on ranks that are not in the list. It shares this group's connections and begins with its timeout. Raises
        Error: "invalid_argument" for a number that is no rank or comes twice, "mismatch" on every rank where a rank in one
        rank's list has another list, "timeout" where a rank does not call it."""
    def bounded_sums(
        self, p: float = 0.01, policy: str = "zero", packet_bytes: int = 0, droppable: float = 0.0,
        droppable_back: float | None = None, keep_important: bool = False, queues: int = 1, back_first: bool = False,
        servers: Sequence[int] | None = None, p_sender: float | None = None, p_call: float | None = None,
    ) -> BoundedSums:
        """Sums of which a bounded part may be lost on the way: every rank calls it, in the same order as collectives, with
        the same arguments. The sums share this group's connections, and may outlive it. Where UDP does not pass between two
        ranks' hosts they go over these connections and lose nothing, which is logged.

        p: 0 to 0.5, the part of a rank's data that may be missing; with 0 everything arrives
        policy: "zero" counts what is missing as zero; "rescale" takes the mean of those ranks whose part has come
        packet_bytes: what is lost is lost in packets of at most so many bytes; 0: 8 KiB, or what the network takes
        droppable: 0 to 1, the part of a rank's packets, those of the smallest values, that leave without ECN, so that
            switches with RED and ECN drop them before others
        droppable_back: the same in the model's last layers; in between in proportion (default: as droppable)
        keep_important: of all other packets none may be missing
        queues: 1 to 7, so many priorities (DSCP), by the depth that a call names; 1: all packets are best effort
        back_first: the model's last layers have the most urgent one, not its first
        servers: ranks that sum, an equal part of each array each (default: all)
        p_sender: 0 to p, the part that may be missing of a rank's data on average over calls of one size: what is not missing
            in one may be in the next 15 (default: p)
        p_call: 0 to p, the part that may be missing of what all others together send a rank in a call (default: p)

        The five from droppable to back_first may differ by rank. Raises Error: "invalid_argument", "mismatch" on every rank where arguments differ, "system" (no socket)."""
    def abort(self, why: str) -> None:
        """Fails everything in flight and every later call, here and on all other ranks, with Error "aborted", which has `why`
        in its text; also calls of bounded_sums() of this group."""
    def set_timeout(self, timeout: float | timedelta) -> None:
        """The deadline of later calls that have none of their own: more than 0 and up to 1e9 seconds, or a timedelta. Raises
        Error "invalid_argument" for other values."""
    def describe(self) -> str:
        """How the group is connected and what was chosen and why, a "key: value (origin)" a line."""
    def flight_record(self) -> str:
        """The last calls of this rank as JSON, those in flight with the ranks that they wait for; `talweg doctor` reads the
        files of all ranks. Any thread may ask at any time."""
    def explain(self, operation: str, count: int, type: str) -> str:
        """Which algorithm would carry a call in the end, and how long it is expected to take. `operation` is such as "all_reduce",
        `type` such as "f32" or "float32", `count` in elements. Where that is not planned yet it may take minutes; calls go on
        meanwhile. Raises Error "invalid_argument" for names it does not know."""
    def statistics(self) -> dict[str, int]:
        """What has gone through the group's connections, which groups from split() share, in bytes: bytes_sent and
        bytes_received (frames with their headers), peak_buffer_bytes (chunk buffers held at once, beyond the callers'
        arrays) and shared_memory_bytes (mapped for this rank). Of sums from bounded_sums(), which are not in the former:
        bounded_calls, bounded_sent_bytes, bounded_lost_bytes (never arrived) and bounded_packets_again (packets sent again)."""
    def host_of(self, rank: int) -> str:
        """ "hostname pid" of a rank. Raises Error "invalid_argument" for a number that is no rank."""
    def close(self) -> None:
        """Leaves the group: at once, without the other ranks. What is in flight fails, and later calls raise Error
        "invalid_argument". `with talweg.init() as group:` does it at the end."""
    def __enter__(self) -> Group:
        """The group itself, which is closed at the end of the block."""
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        """close()"""

class LossReport:
    """What became of one call of BoundedSums.all_reduce or push."""

    @property
    def sent_bytes(self) -> int:
        """This rank's data for the others."""
    @property
    def lost_bytes(self) -> int:
        """Of sent_bytes, what never arrived; it is in the residual, where there is one."""
    @property
    def lost_important_bytes(self) -> int:
        """Of lost_bytes, what was in packets that are not droppable."""
    @property
    def exact(self) -> bool:
        """Whether nothing could be lost: one of the first calls of its size, or p is 0."""
    @property
    def by_switch(self) -> bool:
        """Whether the group's switches have made the sum: what is missing of a rank's is missing on all ranks then, and
        sent_bytes are what they were sent."""
    @property
    def lost_of_layer(self) -> list[int]:
        """Bytes of lost_bytes, by layer; one number without layers."""
    @property
    def lost_of_sender(self) -> list[int]:
        """Bytes of each rank's data that this rank has summed without."""
    @property
    def packets_again(self) -> int:
        """How many were sent again."""
    @property
    def seconds(self) -> float:
        """From the agreement of the ranks to the end."""

class BoundedSums:
    """Sums of gradients of which a bounded part may be lost on the way, from Group.bounded_sums(). All ranks end with the
    same bits, whatever was lost. The first 20 calls of each size lose nothing and show how long a transfer takes."""

    def all_reduce(
        self, array: Buffer, op: ReduceOp = SUM, out: Buffer | None = None, residual: Buffer | None = None,
        layers: Sequence[int] | None = None, depth: float = 0.0, timeout: Timeout = None, priority: int = 0,
    ) -> LossReport:
        """Every rank gets the SUM or the AVG of all ranks' arrays of float16, float32 or float64, in `out` or in place.

        residual: zeros at first, of array's type and number of elements, one for each tensor, and kept: it is added to the
            array, and afterwards holds what was lost of this rank's. Without one, that is gone. Not with "rescale"
        layers: elements of each layer, together those of array: the report says what was lost of each
        depth: where in the model it is: 0, next to its input, to 1, next to its output
        timeout: seconds, or a timedelta (default: the group's when these sums were made)
        priority: 0 to 7, as help(talweg.Group) says, of what goes over the group's connections: what ranks tell each other
            of a call, and the sums. Datagrams have none

        Every rank calls it, in the same order; blocks, and Ctrl-C is heard at its end. A second call while one goes on
        raises Error "invalid_argument" at once. Raises Error "invalid_argument" (a call that can never work; the other ranks
        get a "mismatch", but hear nothing of a TypeError) and "mismatch" on every rank (other numbers, types or reductions),
        before any array is written: the next call may be right. After "timeout", "peer_failed" and "aborted" these sums are
        of no use any more on any rank, but the group is; the residual then holds the whole array with what it held before."""
    def push(
        self, array: Buffer, out: Buffer | None = None, op: ReduceOp = SUM, residual: Buffer | None = None,
        layers: Sequence[int] | None = None, depth: float = 0.0, timeout: Timeout = None, priority: int = 0,
    ) -> LossReport:
        """The first half of an all_reduce: each rank's array goes to the servers. `out` gets this rank's part of the SUM or
        the AVG, array[part_of(rank, n)] of its n elements; None where the rank has none. It may be that part of array.
        The others, and all errors, are as those of all_reduce. Pushes may follow one another with no pull between them."""
    def pull(
        self, array: Buffer, part: Buffer | None = None, timeout: Timeout = None, priority: int = 0,
    ) -> None:
        """The other half: every rank's array gets the parts of all servers, whatever these are by now, and of any type.
        Nothing is lost. `part` is this rank's own; None: it is in its place in array already. No push need come before it.
        Every rank calls it; errors are as those of all_reduce."""
    def part_of(self, rank: int, count: int) -> slice:
        """Of an array of `count` elements the part that `rank` sums; an empty one where it is no server. Raises Error
        "invalid_argument" for a rank that there is not."""
    def explain(self, count: int, type: str = "f32") -> str:
        """How an all_reduce of `count` elements would go: a line as that of Group.explain(), and what it rests on, a "key:
        value" a line: who sums which part, what carries it and why, how much may be missing and what becomes of it, classes of
        packets, the deadline, and the predicted time. Any thread may ask at any time. Raises Error "invalid_argument" for
        what no all_reduce takes."""
    def flight_record(self) -> str:
        """The last calls of these sums as JSON, as Group.flight_record() has those of a group, which these are not in. Any
        thread may ask at any time."""

def init(
    rank: int = -1, size: int = -1, store: str = "", prefix: str = "", timeout: Timeout = None,
    interface: str = "", cluster: str = "", algorithm: str = "", switch: str = "", switch_key_file: str = "",
) -> Group:
    """Joins the group that the environment describes (talweg run, torchrun, mpirun, srun) and blocks until all ranks are
    connected to each other.

    rank, size: this process's number, 0 to size - 1, and how many there are; both or neither
    store: "file:/path", a file that all ranks see; without it, rank 0 serves at MASTER_ADDR and MASTER_PORT
    prefix: of the names in the store, which several groups can share
    timeout: for joining, and of calls that have none of their own: seconds or a timedelta (default: TALWEG_TIMEOUT, 30 s)
    interface: such as "eth0" (default: TALWEG_SOCKET_IFNAME, or automatic)
    cluster: the file of the network, rank i = worker i (default: TALWEG_CLUSTER, or equal hosts)
    algorithm: such as "ring", "switch" or "all_reduce:ring;broadcast:chain" (default: TALWEG_ALGO, or by cost)
    switch: "address:port" of a `talweg switch` that all_reduces may go through, or several with commas, the same on all
        ranks, or "none" (default: TALWEG_SWITCH, or those that the cluster file names); groups from split() have the same
    switch_key_file: a file of mode 600 with its key (default: TALWEG_SWITCH_KEY_FILE, or none)

    Raises Error: "invalid_argument" (arguments, an interface that does not exist), "bad_file" (the cluster's), "timeout"
    (names the ranks that never came), "system", "version"."""

def plan(cluster: str | PathLike[str] = ..., **arguments: Any) -> dict[str, Any]:
    """How fast a collective can be on a network, and what each planner takes: what `talweg plan --json` writes. `cluster`
    is the file of the network, in any format that `talweg convert` reads; `format` says which (the command's --from) where
    it cannot be recognised. Sizes are bytes of the whole vector ("4K..1G", "64K,1M", a number or a list), times
    microseconds, rates GB/s. Works in processes of its own for up to `patience`. Raises Error ("bad_file",
    "invalid_argument") with one line that names the file or the argument."""

def predict(job: str | PathLike[str] | list[str | PathLike[str]] = ..., **arguments: Any) -> dict[str, Any]:
    """What a training step takes on a network by each strategy, what limits it, and the best plan: what `talweg predict
    --json` writes. `job` is the file of a job, or a list of traces of one step, a file for each rank; `model` takes its
    place. Times of the result are microseconds, sizes bytes; its "plan" is what talweg.torch.apply_plan() takes.
    Raises Error ("bad_file", "invalid_argument") with one line that names the file or the argument."""

def simulate(network: str | PathLike[str] = ..., **arguments: Any) -> dict[str, Any]:
    """Collectives, flows and workloads on a network, packet by packet: what `talweg simulate --json` writes. `network` is
    the file of the network, or `topology` describes one. The result depends on the arguments and the seed alone. Sizes
    are as in plan(), times of the result microseconds of virtual time. Raises Error ("bad_file", "invalid_argument")
    with one line that names the file or the argument."""
