"""Sums of which a part may be lost, as Python sees them: over a network that loses datagrams when it is told to."""

import ctypes
import json
import threading

import numpy as np
import pytest
from forked import on_ranks

import talweg

EXACT_CALLS = 20  # of each size, before anything may be lost


def lose(part, seed):
    """What this process sends from now on is lost to this part (lossy_network.c, which is preloaded)."""
    ctypes.CDLL(None).lose(ctypes.c_double(part), ctypes.c_uint(seed))


def whole_numbers(count, rank, call, kind="f4"):
    """That floats add without rounding."""
    return ((np.arange(count) * 37 + rank * 11 + call * 5) % 201 - 100).astype(kind)


def summed(group, array):
    out = np.zeros_like(array)
    group.all_reduce(array, out=out)
    return out


def same_on_all(group, array):
    least, most = np.zeros_like(array), np.zeros_like(array)
    group.all_reduce(array, talweg.MIN, out=least)
    group.all_reduce(array, talweg.MAX, out=most)
    return np.array_equal(least, most)


@on_ranks(3)
def test_the_smallest_are_lost_where_switches_drop_selectively(group):
    lose(0.2, group.rank)
    ctypes.CDLL(None).lose_selectively(1)
    sums = group.bounded_sums(p=0.3, packet_bytes=400, droppable=0.5, droppable_back=0, keep_important=True, queues=4)
    array = np.where(np.arange(36_000) // 100 % 2 == 0, 1, 100).astype("f4")
    lost = 0
    for call in range(EXACT_CALLS + 10):
        out, residual = np.zeros_like(array), np.zeros_like(array)
        report = sums.all_reduce(array, out=out, residual=residual, depth=0)
        lost += report.lost_bytes
        assert report.lost_important_bytes == 0 and set(np.unique(residual)) <= {0, 1}
        assert (out[array == 100] == 300).all()
    everyone = np.array([lost])
    group.all_reduce(everyone)
    assert everyone[0] > 0
    exact = [sums.all_reduce(array.copy(), depth=1.0).lost_bytes for _ in range(5)]
    assert exact == [0] * 5, "nothing of the last layers is droppable"
    ctypes.CDLL(None).lose_selectively(0)


@on_ranks(3)
def test_with_nothing_to_lose_they_are_the_groups_sums(group):
    lose(0.1, group.rank)
    sums = group.bounded_sums(p=0, packet_bytes=512)
    for kind in ("f2", "f4", "f8"):
        for count in (1, 5000):
            for op in (talweg.SUM, talweg.AVG):
                given = whole_numbers(count, group.rank, 0, kind)
                exact, out = np.zeros_like(given), np.zeros_like(given)
                group.all_reduce(given, op, out=exact)
                report = sums.all_reduce(given, op, out=out)
                sums.all_reduce(given, op)
                assert np.array_equal(out, exact) and np.array_equal(given, exact), (kind, count, op)
                assert report.exact and report.lost_bytes == 0


@on_ranks(3)
def test_what_is_lost_is_in_the_residuals_and_in_the_report(group):
    lose(0.04, 10 + group.rank)
    count, layers, p = 9000, [1, 4999, 0, 4000], 0.1
    sums = group.bounded_sums(p=p, packet_bytes=200)
    residual, got, wanted = np.zeros(count, "f4"), np.zeros(count, "f4"), np.zeros(count, "f4")
    lost, before = 0, group.statistics()
    for call in range(EXACT_CALLS + 12):
        given = whole_numbers(count, group.rank, call)
        wanted += summed(group, given)
        report = sums.all_reduce(given, residual=residual, layers=layers)
        got += given
        assert same_on_all(group, given), call
        assert report.exact == (call < EXACT_CALLS)
        assert report.sent_bytes == 4 * count // 3 * 2 and report.lost_bytes <= p * report.sent_bytes
        assert len(report.lost_of_layer) == 4 and sum(report.lost_of_layer) == report.lost_bytes
        assert len(report.lost_of_sender) == 3 and report.lost_of_sender[group.rank] == 0
        assert report.packets_again >= 0 and report.seconds > 0
        assert not report.exact or report.lost_bytes == 0
        lost += report.lost_bytes
    last = [o for o in json.loads(sums.flight_record())["operations"] if o["operation"] == "bounded_all_reduce"][-1]
    assert last["sequence"] == EXACT_CALLS + 12 and last["state"] == "completed" and last["lost_bytes"] == report.lost_bytes
    after = group.statistics()
    assert after["bounded_calls"] - before["bounded_calls"] == EXACT_CALLS + 12
    assert after["bounded_lost_bytes"] - before["bounded_lost_bytes"] == lost
    assert after["bounded_sent_bytes"] - before["bounded_sent_bytes"] == (EXACT_CALLS + 12) * report.sent_bytes
    assert after["bounded_packets_again"] - before["bounded_packets_again"] >= report.packets_again
    assert summed(group, np.array([lost]))[0] > 0
    assert np.array_equal(got + summed(group, residual), wanted)


@on_ranks(2)
def test_limits_hold_of_one_rank_on_average_and_of_a_call(group):
    lose(0.1, 50 + group.rank)
    for limit in ("p_sender", "p_call"):
        sums = group.bounded_sums(p=0.2, packet_bytes=200, **{limit: 0.02})
        reports = [sums.all_reduce(np.ones(20_000, "f4")) for _ in range(EXACT_CALLS + 20)][EXACT_CALLS:]
        missing = [report.lost_of_sender[1 - group.rank] for report in reports]
        assert 0 < sum(missing) <= 0.02 * 40_000 * (20 + 15 if limit == "p_sender" else 20)
        assert max(missing) <= 0.02 * 40_000 or limit == "p_sender"


@on_ranks(2)
def test_means_are_of_those_that_have_come(group):
    lose(0.05, 20 + group.rank)
    sums = group.bounded_sums(p=0.2, policy="rescale", packet_bytes=200)
    lost = 0
    for _ in range(EXACT_CALLS + 6):
        values = np.full(6000, 42, "f4")
        lost += sums.all_reduce(values, talweg.AVG).lost_bytes
        assert np.all(values == 42)
    assert summed(group, np.array([lost]))[0] > 0


@on_ranks(2)
def test_a_report_shows_what_it_has(group):
    values = np.ones(6, "f8")
    report = group.bounded_sums().all_reduce(values, layers=[2, 4])
    assert values.tolist() == [2] * 6
    assert repr(report) == (f"LossReport(sent_bytes=24, lost_bytes=0, lost_important_bytes=0, exact=True, by_switch=False, lost_of_layer=[0, 0], lost_of_sender=[0, 0], "
                            f"packets_again={report.packets_again}, seconds={report.seconds:.6f})")


@on_ranks(2)
def test_they_say_how_they_would_go(group):
    text = group.bounded_sums(p=0.1, packet_bytes=400, queues=2).explain(10_000)
    lines = dict(line.split(": ", 1) for line in text.splitlines()[1:])
    assert text.startswith("bounded, direct, up to 50 packets of 400 "), text
    assert lines["servers"] == "all ranks; each sums up to 5000 of 10000 elements"
    assert lines["together"] == "up to 5 of a rank's 50 packets in a call" and lines["classes"].endswith("AF41, AF31; control CS5")
    sums = group.bounded_sums(servers=[1], policy="rescale")
    assert "servers: rank 1; each sums up to 7 of 7 elements\n" in sums.explain(7, "float64")
    for arguments, words in [((7, "i4"), 'no element type is called "i4"'), ((7, "i32"), "of i32: expected f16, bf16, f32 or f64")]:
        with pytest.raises(talweg.Error, match=words) as caught:
            sums.explain(*arguments)
        assert caught.value.code == "invalid_argument"


@on_ranks(2)
def test_they_outlive_their_group(group):
    sums = group.bounded_sums()
    group.close()
    values = np.full(10, 2, "f4")
    sums.all_reduce(values)
    assert values.tolist() == [4] * 10


@on_ranks(2)
def test_one_call_at_a_time_and_python_runs_meanwhile(group):
    sums = group.bounded_sums()
    values = [np.ones(100, "f4") for _ in range(2)]
    if group.rank == 1:  # comes when a second call of rank 0 was refused
        group.recv(np.zeros(1), source=0)
        sums.all_reduce(values[0])
        return
    errors = [None, None]
    refused = threading.Event()

    def call(i):
        try:
            sums.all_reduce(values[i])
        except talweg.Error as error:
            errors[i] = error
            refused.set()

    threads = [threading.Thread(target=call, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    assert refused.wait(15)
    group.send(np.zeros(1), 1)
    for thread in threads:
        thread.join()
    first = 0 if errors[0] is None else 1
    assert errors[first] is None and values[first].tolist() == [2] * 100
    assert errors[1 - first].code == "invalid_argument" and "another thread is in a call of these sums" in str(errors[1 - first])
    assert values[1 - first].tolist() == [1] * 100


@on_ranks(2)
def test_what_ranks_disagree_about_is_one_error_on_both(group):
    with pytest.raises(talweg.Error, match="rank 0 has p = 0.01.*rank 1 has p = 0.02") as caught:
        group.bounded_sums(p=0.01 * (1 + group.rank))
    assert caught.value.code == "mismatch"
    sums = group.bounded_sums()
    with pytest.raises(talweg.Error, match="sum of 7 f32.*sum of 8 f32") as caught:
        sums.all_reduce(np.ones(7 + group.rank, "f4"))
    assert caught.value.code == "mismatch"
    values = np.ones(8, "f4")
    sums.all_reduce(values)
    assert values.tolist() == [2] * 8


@on_ranks(2)
def test_bad_arguments_get_one_clear_line(group):
    for arguments, words in [
        ({"p": 0.6}, "p = 0.6: expected 0 to 0.5"),
        ({"p": float("nan")}, "expected 0 to 0.5"),
        ({"p": 0.1, "p_sender": 0.2}, "p_sender = 0.2: expected 0 to 0.1"),
        ({"p": 0.1, "p_call": -1}, "p_call = -1: expected 0 to 0.1"),
        ({"policy": "none"}, 'policy: expected "zero" or "rescale", got "none"'),
        ({"packet_bytes": 8}, "packets of 8 bytes: expected 64 to"),
        ({"droppable": 2}, "a part of 2 of the packets that may be dropped first: expected 0 to 1"),
        ({"queues": 0}, "0 queues for layers: expected 1 to 7"),
        ({"keep_important": True}, "keep_important where no packet is droppable"),
    ]:
        with pytest.raises(talweg.Error, match=words) as caught:
            group.bounded_sums(**arguments)
        assert caught.value.code == "invalid_argument" and "\n" not in str(caught.value)
    for arguments, words in [({"p": "all"}, r"p: expected a number, got 'all' \(str\)"), ({"packet_bytes": -1}, "packet_bytes: expected"),
                             ({"many": 1}, "no argument is called many")]:
        with pytest.raises(TypeError, match=words):
            group.bounded_sums(**arguments)
    sums, means = group.bounded_sums(), group.bounded_sums(policy="rescale")
    a, b = np.ones(8, "f4"), np.zeros(8, "f4")
    for call, words in [
        (lambda: sums.all_reduce(np.ones(8, "i4")), "of i32: expected f16, bf16, f32 or f64"),
        (lambda: sums.all_reduce(a, talweg.MAX), "with max: expected sum or avg"),
        (lambda: sums.all_reduce(a, layers=[3, 4]), "layers of 7 elements together, of 8"),
        (lambda: sums.all_reduce(a, residual=a), "the residual overlaps"),
        (lambda: sums.all_reduce(a, residual=np.zeros(7, "f4")), "residual must have 8 elements of f32 like array, not 7 of f32"),
        (lambda: sums.all_reduce(a, residual=np.zeros(8)), "residual must have 8 elements of f32 like array, not 8 of f64"),
        (lambda: sums.all_reduce(a, out=np.zeros(7, "f4")), "out must have 8 elements like array, not 7"),
        (lambda: sums.all_reduce([1.0]), "array: expected an array"),
        (lambda: sums.all_reduce(a, priority=8), "bounded all_reduce: priority 8: expected 0 to 7"),
        (lambda: sums.push(a, b[:4], priority=-1), "bounded push: priority -1: expected 0 to 7"),
        (lambda: sums.pull(a, priority=8), "bounded pull: priority 8: expected 0 to 7"),
        (lambda: means.all_reduce(a), "policy rescale: expected avg"),
        (lambda: means.all_reduce(a, talweg.AVG, residual=b), "would count twice"),
    ]:
        with pytest.raises(talweg.Error, match=words) as caught:
            call()
        assert caught.value.code == "invalid_argument" and "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="layers: expected a list of ints of at least 0"):
        sums.all_reduce(a, layers=-1)
    with pytest.raises(TypeError, match="all_reduce.array, op, out, residual, layers, depth, timeout, priority.: no argument is called root"):
        sums.all_reduce(a, root=1)
    assert a.tolist() == [1] * 8


@on_ranks(3)
def test_servers_take_pushes_and_give_what_they_made_of_them(group):
    lose(0.03, group.rank)
    count, n = 20_000, group.size
    sums = group.bounded_sums(p=0.1, packet_bytes=400, servers=[2, 0])
    part = sums.part_of(group.rank, count)
    assert [sums.part_of(rank, count) for rank in range(n)] == [slice(0, 10_000, 1), slice(10_000, 10_000, 1), slice(10_000, 20_000, 1)]
    given, residual, wanted = np.zeros(count, "f4"), np.zeros(count, "f4"), np.zeros(count, "f4")
    lost = 0
    for call in range(EXACT_CALLS + 5):
        array = whole_numbers(count, group.rank, call)
        out = None if group.rank == 1 else np.zeros(10_000, "f4")
        lost += sums.push(array, out, residual=residual).lost_bytes
        wanted += summed(group, array)
        if out is not None:
            given[part] += out
    sums.pull(given)
    assert np.array_equal(given + summed(group, residual), wanted)
    everyone = np.array([lost])
    group.all_reduce(everyone)
    assert everyone[0] > 0
    steps = np.zeros(count, "i8")
    sums.pull(steps, None if group.rank == 1 else np.full(10_000, group.rank + 1))
    assert (steps[:10_000] == 1).all() and (steps[10_000:] == 3).all()
    with pytest.raises(talweg.Error, match="out must have|was refused there"):
        sums.push(np.zeros(8, "f4"), np.zeros(3, "f4"))


@on_ranks(2)
def test_a_server_that_gives_no_room_for_its_part_is_an_error_on_all_ranks(group):
    sums = group.bounded_sums(servers=[1])
    array = np.ones(8, "f4")
    with pytest.raises(talweg.Error, match="the output is null but 8" if group.rank == 1 else "was refused there"):
        sums.push(array, timeout=30)
    out = np.zeros(8, "f4") if group.rank == 1 else None
    sums.push(array, out, timeout=30)
    assert out is None or out.tolist() == [2] * 8


@on_ranks(2)
def test_what_one_rank_gives_wrong_is_an_error_on_all_ranks(group):
    sums, a = group.bounded_sums(), np.ones(8, "f4")
    read_only = np.zeros(8, "f4")
    read_only.flags.writeable = False
    for out, words in [
        (np.zeros(7, "f4"), "out must have 8 elements like array, not 7"),
        (np.zeros(8, "f8"), "must have one element type"),
        (read_only, "out is read-only"),
        (np.zeros(16, "f4")[::2], "out is not C-contiguous"),
        ([1.0], "out: expected an array"),
    ]:
        with pytest.raises(talweg.Error, match=words if group.rank == 1 else "the call of rank 1 .* was refused there") as caught:
            sums.all_reduce(a, out=out if group.rank == 1 else np.zeros(8, "f4"), timeout=30)
        assert caught.value.code == ("invalid_argument" if group.rank == 1 else "mismatch")
    pieces = {1: np.zeros(3, "f4")}.get(group.rank)
    for call, words in [
        (lambda: sums.push(a, pieces if group.rank == 1 else np.zeros(4, "f4"), timeout=30), "out must have 4 elements"),
        (lambda: sums.push(a, np.zeros(4, "f4"), residual=pieces, timeout=30), "residual must have 8 elements"),
        (lambda: sums.pull(a, pieces, timeout=30), "part must have 4 elements"),
        (lambda: sums.pull(read_only if group.rank == 1 else a, timeout=30), "array is read-only"),
        (lambda: sums.pull(a, timeout="soon" if group.rank == 1 else 30), "timeout: expected seconds"),
    ]:
        wrong = TypeError if group.rank == 1 and words.startswith("timeout") else talweg.Error
        with pytest.raises(wrong, match=words if group.rank == 1 else "the call of rank 1 .* was refused there"):
            call()
    sums.all_reduce(a, priority=7 * group.rank)
    assert a.tolist() == [2] * 8
    sums.push(np.ones(8, "f4"), a[:4], priority=group.rank)
    sums.pull(a, np.ones(4, "f4"), priority=3)
    assert a.tolist() == [1] * 8
