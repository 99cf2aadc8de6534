"""The Python face: arrays in, arrays out, errors with codes."""

import array
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import threading
import time

import numpy as np
import pytest
from forked import LIMIT_S, on_ranks, run_ranks

import talweg

TYPES = "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8 c16".split()


@on_ranks(3)
def test_all_reduce_takes_every_numpy_type(group):
    for kind in TYPES:
        x = np.array([group.rank + 1, 7], dtype=kind)
        assert group.all_reduce(x) is None
        assert x.tolist() == [6, 21]
        out = np.zeros(2, dtype=kind)
        group.all_reduce(np.array([group.rank + 1, 2], dtype=kind), talweg.PRODUCT, out=out)
        assert out.tolist() == [6, 8]
    flags = np.array([group.rank == 1, False])
    group.all_reduce(flags, talweg.MAX)
    assert flags.tolist() == [True, False]


@on_ranks(3)
def test_every_collective_moves_what_it_says(group):
    rank = group.rank
    x = np.full(4, rank, dtype=np.float32)
    group.broadcast(x, root=2)
    assert np.all(x == 2)
    out = np.zeros(3, dtype=np.int64)
    group.all_gather(np.array([rank]), out)
    assert out.tolist() == [0, 1, 2]
    uneven = np.zeros(6, dtype=np.int64)
    group.all_gather(np.full(rank + 1, rank), uneven, counts=[1, 2, 3])
    assert uneven.tolist() == [0, 1, 1, 2, 2, 2]
    part = np.zeros(rank + 1, dtype=np.int64)
    group.reduce_scatter(uneven, part, counts=[1, 2, 3])
    assert part.tolist() == [3 * rank] * (rank + 1)
    swapped = np.zeros(3, dtype=np.int64)
    group.all_to_all(np.arange(3) + 10 * rank, swapped)
    assert swapped.tolist() == [rank, 10 + rank, 20 + rank]
    total = np.zeros(2) if rank == 1 else None
    group.reduce(np.ones(2), root=1, out=total)
    assert rank != 1 or total.tolist() == [3, 3]
    rows = np.zeros((3, 2)) if rank == 0 else None
    group.gather(np.full(2, float(rank)), rows)
    assert rank != 0 or rows.tolist() == [[0, 0], [1, 1], [2, 2]]
    row = np.zeros(2)
    group.scatter(rows, row)
    assert row.tolist() == [rank, rank]
    got = np.zeros(1, dtype=np.int64)
    work = group.recv(got, (rank - 1) % 3, tag=5, async_op=True)
    group.send(np.array([rank]), (rank + 1) % 3, tag=5)
    work.wait()
    assert got[0] == (rank - 1) % 3 and work.source_rank == (rank - 1) % 3
    group.barrier()


@on_ranks(2)
def test_a_barrier_ends_after_what_its_rank_started_before(group):
    one, got = np.ones(1), np.zeros(1, dtype=np.int64)
    receiving = group.recv(got, 1, tag=7, async_op=True) if group.rank == 0 else None
    barrier = group.barrier(async_op=True)
    if group.rank == 1:
        barrier.wait()
    group.all_reduce(one)  # the barrier's frames have come
    assert barrier.is_completed() == (group.rank == 1)
    group.all_reduce(one)  # rank 0 has looked
    if group.rank == 1:
        group.send(np.array([42]), 0, tag=7)
    barrier.wait()
    assert receiving is None or (receiving.is_completed() and got[0] == 42)


@on_ranks(2)
def test_anything_with_the_buffer_protocol_will_do(group):
    plain = array.array("d", [1.0, 2.0])
    group.all_reduce(plain)
    assert plain.tolist() == [2.0, 4.0]
    octets = bytearray([1, 2, 3])
    group.all_reduce(octets, talweg.BIT_OR)
    assert octets == bytearray([1, 2, 3])


@on_ranks(2)
def test_works_are_waited_for_polled_or_dropped(group):
    x = np.ones(1000)
    work = group.all_reduce(x, async_op=True)
    assert work.wait(timeout=10) is True
    assert work.is_completed() and work.exception() is None and np.all(x == 2)
    for n in range(1, 20):
        group.all_reduce(np.ones(100 * n), async_op=True)
    group.all_reduce(x)
    assert np.all(x == 4)


@on_ranks(2)
def test_errors_have_a_code_and_leave_the_array_alone(group):
    x = np.ones(3 + group.rank, dtype=np.float32)
    with pytest.raises(talweg.Error) as caught:
        group.all_reduce(x)
    assert caught.value.code == "mismatch" and isinstance(caught.value, RuntimeError)
    assert np.all(x == 1)
    work = group.all_reduce(x, async_op=True)
    with pytest.raises(talweg.Error):
        work.wait()
    assert work.exception().code == "mismatch"
    both = np.ones(8)
    for bad, code in [
        (lambda: group.all_reduce([1, 2]), "invalid_argument"),
        (lambda: group.all_reduce(np.ones((4, 4))[:, ::2]), "invalid_argument"),
        (lambda: group.all_reduce(b"constant"), "invalid_argument"),
        (lambda: group.all_reduce(np.array(["text"])), "unsupported"),
        (lambda: group.all_reduce(np.ones(2, dtype=">f4")), "unsupported"),
        (lambda: group.all_gather(np.ones(2), np.ones(5)), "invalid_argument"),
        (lambda: group.all_reduce(both[:-1], out=both[1:]), "invalid_argument"),
        (lambda: group.all_to_all(both, both), "invalid_argument"),
        (lambda: group.barrier(timeout=-1), "invalid_argument"),
        (lambda: group.explain("all_reduce", 1, "quaternion"), "invalid_argument"),
    ]:
        with pytest.raises(talweg.Error) as caught:
            bad()
        assert caught.value.code == code, caught.value
    group.barrier()


@on_ranks(1)
def test_wrong_arguments_are_a_type_error_of_one_line(group):
    x = np.ones(1000)
    y = np.ones(1000)
    for call, text in [
        (lambda: group.all_reduce(x, "sum"), "op: expected a talweg.ReduceOp such as talweg.SUM, got 'sum' (str)"),
        (lambda: group.all_reduce(x, y), "op: expected a talweg.ReduceOp such as talweg.SUM, got a numpy.ndarray"),
        (lambda: group.all_reduce(x, op=None), "op: expected a talweg.ReduceOp such as talweg.SUM, got None"),
        (lambda: group.all_reduce(x, 1), "op: expected a talweg.ReduceOp such as talweg.SUM, got 1 (int)"),
        (lambda: group.broadcast(x, root="0"), "root: expected an int, got '0' (str)"),
        (lambda: group.broadcast(x, root=None), "root: expected an int, got None"),
        (lambda: group.broadcast(x, root=np.ones(3)), "root: expected an int, got array([1., 1., 1.]) (numpy.ndarray)"),
        (lambda: group.broadcast(x, priority=0.5), "priority: expected an int, got 0.5 (float)"),
        (lambda: group.send(x, 0, tag=-1), "tag: expected an int of at least 0, got -1 (int)"),
        (lambda: group.all_gather(x, y, counts=["1000"]), "counts: expected a list of ints of at least 0, got ['1000'] (list)"),
        (lambda: group.all_gather(x, y, counts=[-1]), "counts: expected a list of ints of at least 0, got [-1] (list)"),
        (lambda: group.split(0), "ranks: expected a list of ints, got 0 (int)"),
        (lambda: group.barrier(timeout="soon"),
         "timeout: expected seconds (int or float) or a timedelta, got 'soon' (str)"),
        (lambda: group.set_timeout(None), "timeout: expected seconds (int or float) or a timedelta, got None"),
        (lambda: group.abort(3), "why: expected a str, got 3 (int)"),
        (lambda: talweg.init(rank="0", size=1), "rank: expected an int, got '0' (str)"),
        (lambda: group.broadcast(), "broadcast(array, root, async_op, timeout, priority): array is missing"),
        (lambda: group.broadcast(x, rot=0),
         "broadcast(array, root, async_op, timeout, priority): no argument is called rot"),
        (lambda: group.barrier(False, array=x), "barrier(async_op, timeout, priority): no argument is called array"),
        (lambda: group.barrier(1, 2, 3, 4), "barrier(async_op, timeout, priority): at most 3 arguments are taken, "
                                            "4 were given"),
        (lambda: group.split([0], ranks=[0]), "split(ranks): ranks is given twice"),
        (lambda: talweg.init(0, 1, world=3), "init(rank, size, store, prefix, timeout, interface, cluster, algorithm, "
                                             "switch, switch_key_file): no argument is called world"),
    ]:
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == text
    # What fits still does.
    group.all_reduce(x, talweg.MAX, priority=np.int64(1), timeout=np.float32(5))
    group.all_gather(x, y, counts=(1000,))
    group.broadcast(root=np.int32(0), array=x)


@on_ranks(1)
def test_values_out_of_range_are_named_with_their_argument(group):
    x = np.ones(2)
    seconds = "timeout: expected more than 0 and up to 1e9 seconds, got "
    for call, text in [
        (lambda: group.broadcast(x, root=1 << 40), "root: out of range, got 1099511627776 (int)"),
        (lambda: group.broadcast(x, root=-1 << 200), "root: out of range, got an int"),
        (lambda: group.broadcast(x, root=np.int64(1 << 40)), f"root: out of range, got {np.int64(1 << 40)!r} (numpy.int64)"),
        (lambda: group.send(x, 0, tag=1 << 32), "tag: out of range, got 4294967296 (int)"),
        (lambda: group.broadcast(x, root=1), "broadcast: root 1: expected 0 .. 0"),
        (lambda: group.barrier(priority=8), "priority 8: expected 0 .. 7"),
        (lambda: group.all_reduce(x, priority=-1), "priority -1: expected 0 .. 7"),
        (lambda: group.barrier(timeout=1e30), seconds + "1e+30 (float)"),
        (lambda: group.barrier(timeout=float("nan")), seconds + "nan (float)"),
        (lambda: group.barrier(timeout=0), seconds + "0 (int)"),
        (lambda: group.barrier(timeout=-1.5), seconds + "-1.5 (float)"),
        (lambda: group.barrier(timeout=1 << 2000), seconds + "an int"),
    ]:
        with pytest.raises(talweg.Error) as caught:
            call()
        assert (str(caught.value), caught.value.code) == (text, "invalid_argument")
    group.barrier(timeout=None)  # the group's own


@on_ranks(1)
def test_an_array_that_will_not_do_is_told_which_of_its_properties_it_is(group):
    fixed = np.ones(3)
    fixed.flags.writeable = False
    elements = ": expected integers of 8 to 64 bits, float16 to float64, complex64, complex128 or bool"
    for value, code, text in [
        ([1, 2], "invalid_argument", "array: expected an array (anything with the buffer protocol), got [1, 2] (list)"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "invalid_argument",
         "array is a masked array, and its mask would be ignored: expected a plain one, such as its data or filled()"),
        (fixed, "invalid_argument", "array is read-only: expected memory that can be written"),
        (b"constant", "invalid_argument", "array is read-only: expected memory that can be written"),
        (np.ones((4, 4))[:, ::2], "invalid_argument", "array is not C-contiguous: expected elements that lie one after "
                                                      "the other, the last index the fastest"),
        (np.asfortranarray(np.ones((4, 4))), "invalid_argument", "array is not C-contiguous: expected elements that "
                                                                 "lie one after the other, the last index the fastest"),
        (np.ones(2, dtype=">f4"), "unsupported",
         "array has elements in big-endian byte order ('>f'): expected this machine's own"),
        (np.array([object()]), "unsupported", "array has elements of format 'O'" + elements),
        (np.zeros(3, dtype="M8[s]"), "unsupported",
         "array has no memory to share (cannot include dtype 'M' in a buffer)" + elements),
    ]:
        with pytest.raises(talweg.Error) as caught:
            group.all_reduce(value)
        assert (str(caught.value), caught.value.code) == (text, code)
    out = np.zeros(3)
    group.all_reduce(fixed, out=out)  # is only read
    assert out.tolist() == [1, 1, 1]
    group.all_reduce(np.ma.array([1.0], mask=[True]).data)


@on_ranks(4)
def test_a_split_group_numbers_its_ranks_as_told(group):
    pair = group.split([3, 1])
    assert (pair is None) == (group.rank not in (1, 3))
    if pair:
        assert pair.rank == (0 if group.rank == 3 else 1) and pair.size == 2
        x = np.array([float(group.rank)])
        pair.all_reduce(x)
        assert x[0] == 4
        pair.close()
    group.barrier()


@on_ranks(2)
def test_a_closed_group_says_so(group):
    assert ":" in group.describe() and group.statistics()["bytes_sent"] >= 0
    group.barrier()
    assert [call["operation"] for call in json.loads(group.flight_record())["operations"]][-1] == "barrier"
    group.close()
    with pytest.raises(talweg.Error, match="closed"):
        group.barrier()


def _in_threads(count, body):
    """Runs `body` in so many threads and raises what the first of them raised."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(body) for _ in range(count)]:
            done.result()


@on_ranks(3)
def test_threads_share_a_group(group):
    def work():
        for turn in range(1000):
            x = np.ones(1000, np.float32)
            pending = group.all_reduce(x, async_op=turn % 3 == 0)
            if pending:
                pending.wait()
            assert (x == 3).all()

    for _ in range(5):  # threads made anew, too
        _in_threads(4, work)
    group.barrier()


@on_ranks(2)
def test_a_thread_may_close_what_others_are_using(group):
    def work():
        while True:
            try:
                group.all_reduce(np.ones(1000, np.float32))
            except talweg.Error as e:
                assert e.code in ("aborted", "peer_failed") or "this group is closed" in str(e), e
                return

    closer = threading.Timer(0.2, group.close)
    closer.start()
    _in_threads(4, work)
    closer.join()


@contextlib.contextmanager
def a_switch(*arguments):
    """A `talweg switch` on loopback while it lasts; its address."""
    with subprocess.Popen([os.environ["TALWEG_PROGRAM"], "switch", "--listen", "127.0.0.1:0", *arguments],
                          stdout=subprocess.PIPE, text=True) as process:  # fmt: skip
        try:
            yield re.match(r"switch at (\S+),", process.stdout.readline())[1]
        finally:
            process.kill()


@pytest.mark.parametrize("keyed", [False, True])
def test_all_reduces_go_through_a_switch(keyed, tmp_path):
    key = tmp_path / "key"
    key.write_text("a secret of the switch and of its workers")
    key.chmod(0o600)

    def body(group):
        deadline = time.monotonic() + LIMIT_S
        while True:  # by trees, until all ranks have joined the switch
            x = (np.arange(100_000) % 7 + group.rank).astype(np.float32)
            group.all_reduce(x)
            assert (x == 3 * (np.arange(100_000) % 7) + 3).all()
            sums = int(re.search(r"^switch: \S+ \(flag\), (\d+) sum", group.describe(), re.MULTILINE)[1])
            through = np.array([sums >= 3])
            group.all_reduce(through, talweg.MIN)
            if through[0]:
                return
            assert time.monotonic() < deadline, group.describe()

    with a_switch(*(["--key-file", str(key)] if keyed else [])) as address:
        run_ranks(3, body, algorithm="switch", switch=address, **({"switch_key_file": str(key)} if keyed else {}))


def test_a_report_says_whether_a_switch_made_the_sum():
    def body(group):
        deadline = time.monotonic() + LIMIT_S
        sums = group.bounded_sums(0.1)
        while True:
            x = np.full(100_000, 1 + group.rank, np.float32)
            report = sums.all_reduce(x)  # by datagrams, of which some may be lost after the first 20, until all ranks have joined
            assert (x == 3).all() or report.exact is report.by_switch is False
            assert f"by_switch={report.by_switch}," in repr(report)
            if report.by_switch:
                return
            assert time.monotonic() < deadline, group.describe()

    with a_switch() as address:
        run_ranks(2, body, algorithm="switch", switch=address)


@pytest.mark.parametrize("arguments, text", [
    ({"switch": "nowhere"},
     'TALWEG_SWITCH: expected an address and a port, such as 10.0.0.9:4711, got "nowhere"'),
    ({"switch": "192.0.2.1:4711"},
     "TALWEG_SWITCH: a switch that is not on loopback has a key: name its file in TALWEG_SWITCH_KEY_FILE"),
    ({"algorithm": "switch"}, "TALWEG_ALGO: switch needs TALWEG_SWITCH, the switch's address and port"),
])  # fmt: skip
def test_a_switch_that_can_never_serve_is_refused(arguments, text):
    with pytest.raises(talweg.Error) as caught:
        talweg.init(0, 1, **arguments)
    assert caught.value.code == "invalid_argument" and str(caught.value) == text
