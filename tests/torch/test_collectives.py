"""Every collective gives what gloo gives, or what arithmetic says where gloo refuses."""

import functools
import inspect

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
ONLY_TALWEG = [torch.int16, torch.uint16, torch.uint32, torch.uint64]
SIZES = [2, 4]


def sample(dtype, count, seed):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_complex or dtype.is_floating_point:
        # Small whole numbers: every order of summation is exact, so results can be compared bit for bit.
        whole = torch.randint(-4, 5, (count,), generator=generator).to(torch.float64)
        return (whole + 1j * whole.flip(0)).to(dtype) if dtype.is_complex else whole.to(dtype)
    return torch.randint(0, 6, (count,), generator=generator).to(dtype)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), f"{a} is not {b}"


def pairs():
    """Which types meet which reductions in gloo."""
    for dtype in INTEGERS:
        for op in ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]:
            yield dtype, op
    for dtype in FLOATS:
        for op in ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]:
            yield dtype, op
    for dtype in COMPLEX:
        yield dtype, "SUM"


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_is_gloos(size):
    @on_ranks(size)
    def body():
        gloo = dist.new_group(backend="gloo")
        for dtype, op in pairs():
            for count in (1, 7, 1000):
                ours = sample(dtype, count, dist.get_rank())
                theirs = ours.clone()
                dist.all_reduce(ours, getattr(dist.ReduceOp, op))
                dist.all_reduce(theirs, getattr(dist.ReduceOp, op), group=gloo)
                same(ours, theirs)

    body()


@on_ranks(2, 4)
def test_reductions_take_the_types_that_gloo_refuses():
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    for dtype in ONLY_TALWEG:
        for op in ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]:
            ours = sample(dtype, 1000, rank)
            wide = ours.to(torch.int64)
            dist.all_reduce(ours, getattr(dist.ReduceOp, op))
            dist.all_reduce(wide, getattr(dist.ReduceOp, op), group=gloo)
            same(ours, wide.to(dtype))
        part = torch.zeros(3).to(dtype)
        dist.reduce_scatter_tensor(part, torch.arange(3 * size).to(dtype))
        same(part, size * torch.arange(3 * rank, 3 * rank + 3).to(dtype))
    flags = torch.tensor([rank == 1, False, True])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, False, True]
    dist.all_reduce(flags, dist.ReduceOp.MIN)
    assert flags.tolist() == [True, False, True]


@on_ranks(2, 4)
def test_premultiplied_sum_multiplies_before_it_sums():
    size = dist.get_world_size()
    tensor = torch.tensor([1.0, 2.0])
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [0.5 * size, 1.0 * size]
    out = torch.zeros(1)
    dist.reduce_scatter_tensor(out, torch.ones(size), dist._make_nccl_premul_sum(torch.tensor([0.25])))
    assert out.item() == 0.25 * size


@on_ranks(2, 3)
def test_a_nan_on_any_rank_is_what_a_maximum_or_minimum_comes_to():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in FLOATS:
        for op, torchs in ((dist.ReduceOp.MAX, torch.maximum), (dist.ReduceOp.MIN, torch.minimum)):
            parts = [sample(dtype, 100 * size, peer) for peer in range(size)]
            for peer, part in enumerate(parts):
                part[7 + peer :: 50] = torch.nan  # of one rank, and of no other
            expected = functools.reduce(torchs, parts)
            assert 0 < expected.isnan().sum() < expected.numel()
            everywhere, mine = parts[rank].clone(), torch.zeros(100, dtype=dtype)
            dist.all_reduce(everywhere, op)
            dist.reduce_scatter_tensor(mine, parts[rank], op)
            torch.testing.assert_close(everywhere, expected, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(mine, expected[100 * rank :][:100], rtol=0, atol=0, equal_nan=True)


@on_ranks(2, 4)
def test_averages_of_integers_are_cut_toward_zero():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in [*INTEGERS, torch.int16]:
        values = torch.arange(20) if dtype == torch.uint8 else torch.arange(-10, 10)
        everywhere, mine = values.to(dtype) + (rank == 0), torch.zeros(5, dtype=dtype)
        expected = torch.div(size * values + 1, size, rounding_mode="trunc").to(dtype)
        dist.all_reduce(everywhere, dist.ReduceOp.AVG)
        same(everywhere, expected)
        part = torch.cat([values[:5]] * size)
        dist.reduce_scatter_tensor(mine, part.to(dtype) + (rank == 0), dist.ReduceOp.AVG)
        same(mine, expected[:5])


@on_ranks(3)
def test_shapes_may_differ_where_elements_are_as_many():
    rank = dist.get_rank()
    mine, everyone = torch.arange(4.0) + 10 * rank, [torch.arange(4.0) + 10 * peer for peer in range(3)]
    out = [torch.zeros(2, 2), torch.zeros(4), torch.zeros(1, 4, 1)]
    dist.all_gather(out, mine)
    assert [each.flatten().tolist() for each in out] == [each.tolist() for each in everyone]
    stacked = torch.zeros(3, 2, 2)
    dist.all_gather_into_tensor(stacked, mine.view(2, 2))
    same(stacked, torch.stack(everyone).view(3, 2, 2))
    part = torch.zeros(2, 2)
    dist.reduce_scatter_tensor(part, stacked)
    same(part, 3 * everyone[rank].view(2, 2))
    one = torch.zeros(3)
    dist.all_gather_into_tensor(one, torch.tensor(float(rank)))
    assert one.tolist() == [0, 1, 2]
    back = torch.zeros(2, 2)
    dist.scatter(back, everyone if rank == 0 else None, src=0)
    same(back, mine.view(2, 2))


@on_ranks(3)
def test_parts_of_an_all_to_all_may_be_empty():
    rank = dist.get_rank()
    for give in (lambda source, to: (source + to) % 3, lambda source, to: int(source > 0), lambda source, to: 0):
        sent, got = [give(rank, peer) for peer in range(3)], [give(peer, rank) for peer in range(3)]
        out = torch.full((sum(got), 2), -1.0)
        dist.all_to_all_single(out, torch.arange(2.0 * sum(sent)).view(-1, 2) + 100 * rank, got, sent)
        first = [2 * sum(give(peer, before) for before in range(rank)) + 100.0 * peer for peer in range(3)]
        same(out, torch.cat([torch.arange(2.0 * n).view(-1, 2) + at for n, at in zip(got, first)]))


@on_ranks(2, 4)
def test_eight_bit_floats_go_where_nothing_is_computed():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        mine = torch.full((3,), float(rank + 1)).to(dtype)
        everyone = torch.arange(1.0, size + 1).repeat_interleave(3).to(dtype)
        out = torch.zeros(3 * size).to(dtype)
        dist.all_gather_into_tensor(out, mine)
        same(out, everyone)
        swapped = torch.zeros(3 * size).to(dtype)
        dist.all_to_all_single(swapped, mine.repeat(size))
        same(swapped, everyone)
        got = torch.zeros(3).to(dtype)
        work = dist.isend(mine, (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        work.wait()
        same(got, everyone[3 * ((rank - 1) % size) :][:3])


@on_ranks(4)
def test_reduce_leaves_the_result_on_the_root_only():
    for root in range(4):
        tensor = torch.full((9,), float(dist.get_rank() + 1))
        dist.reduce(tensor, dst=root)
        expected = 10.0 if dist.get_rank() == root else float(dist.get_rank() + 1)
        assert torch.all(tensor == expected)


@on_ranks(4)
def test_broadcast_moves_every_type():
    for dtype in [*INTEGERS, *FLOATS, *COMPLEX, *ONLY_TALWEG, torch.bool, torch.float8_e4m3fn]:
        for root in (0, 3):
            tensor = sample(torch.int32, 100, dist.get_rank()).to(dtype)
            dist.broadcast(tensor, src=root)
            same(tensor, sample(torch.int32, 100, root).to(dtype))


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_takes_lists_of_any_sizes(size):
    @on_ranks(size)
    def body():
        rank = dist.get_rank()
        for dtype in (torch.float32, torch.int16, torch.complex64):
            for counts in ([5] * size, list(range(size)), [0] * (size - 1) + [3]):
                out = [torch.zeros(n, dtype=dtype) for n in counts]
                dist.all_gather(out, sample(dtype, counts[rank], rank))
                for peer, count in enumerate(counts):
                    same(out[peer], sample(dtype, count, peer))

    body()


@on_ranks(4)
def test_all_gather_into_tensor_concatenates():
    rank = dist.get_rank()
    out = torch.zeros(4 * 6)
    dist.all_gather_into_tensor(out, sample(torch.float32, 6, rank))
    same(out, torch.cat([sample(torch.float32, 6, peer) for peer in range(4)]))
    views = list(torch.zeros(4, 6).unbind())
    dist.all_gather(views, sample(torch.float32, 6, rank))
    same(torch.stack(views).flatten(), out)


@on_ranks(4)
def test_reduce_scatter_takes_lists_of_any_sizes():
    rank = dist.get_rank()
    for counts in ([4, 4, 4, 4], [1, 0, 5, 2]):
        out = torch.zeros(counts[rank])
        dist.reduce_scatter(out, [torch.full((n,), float(rank + peer)) for peer, n in enumerate(counts)])
        assert torch.all(out == 6.0 + 4 * rank)
    out = torch.zeros(3)
    dist.reduce_scatter_tensor(out, torch.arange(12.0), dist.ReduceOp.AVG)
    same(out, torch.arange(12.0)[3 * rank : 3 * rank + 3])


@on_ranks(4)
def test_all_to_all_takes_lists_and_splits_of_any_sizes():
    rank = dist.get_rank()

    def block(source, destination):
        return torch.full((source + 2 * destination, 2), float(10 * source + destination))

    out = [torch.zeros(peer + 2 * rank, 2) for peer in range(4)]
    dist.all_to_all(out, [block(rank, peer) for peer in range(4)])
    for peer in range(4):
        same(out[peer], block(peer, rank))
    flat = torch.zeros(sum(peer + 2 * rank for peer in range(4)), 2)
    dist.all_to_all_single(
        flat,
        torch.cat([block(rank, peer) for peer in range(4)]),
        [peer + 2 * rank for peer in range(4)],
        [rank + 2 * peer for peer in range(4)],
    )
    same(flat, torch.cat(out))
    even = torch.zeros(8)
    dist.all_to_all_single(even, torch.arange(8.0) + 100 * rank)
    same(even, torch.cat([torch.arange(2.0) + 2 * rank + 100 * peer for peer in range(4)]))


@on_ranks(4)
def test_gather_and_scatter_are_each_others_inverse():
    rank = dist.get_rank()
    for root in (0, 2):
        out = [torch.zeros(5) for _ in range(4)] if rank == root else None
        dist.gather(sample(torch.float32, 5, rank), out, dst=root)
        if rank == root:
            for peer in range(4):
                same(out[peer], sample(torch.float32, 5, peer))
        back = torch.zeros(5)
        dist.scatter(back, out, src=root)
        same(back, sample(torch.float32, 5, rank))


@on_ranks(4)
def test_sends_meet_receives_by_peer_and_tag():
    rank = dist.get_rank()
    right, left = (rank + 1) % 4, (rank - 1) % 4
    first, second = torch.full((3,), float(rank)), torch.full((4,), float(rank + 10))
    sends = [dist.isend(first, right, tag=1), dist.isend(second, right, tag=2)]
    got = torch.zeros(4)
    dist.recv(got, left, tag=2)
    assert torch.all(got == left + 10)
    got = torch.zeros(3)
    dist.recv(got, left, tag=1)
    assert torch.all(got == left)
    for work in sends:
        work.wait()
    if rank == 0:
        seen = set()
        for _ in range(3):
            got = torch.zeros(2)
            seen.add((dist.recv(got), got[0].item()))
        assert seen == {(1, 1.0), (2, 2.0), (3, 3.0)}
    else:
        dist.send(torch.full((2,), float(rank)), 0)
    dist.barrier()  # who receives from anybody would take what comes next as well
    operations = [
        dist.P2POp(dist.isend, torch.full((5,), float(rank)), right),
        dist.P2POp(dist.irecv, got := torch.zeros(5), left),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.all(got == left)


@on_ranks(2)
def test_tensors_that_are_not_contiguous_are_copied_in_and_out():
    rank = dist.get_rank()
    base = torch.arange(12.0).view(3, 4) + rank
    tensor = base.t()
    dist.all_reduce(tensor)
    same(base, 2 * torch.arange(12.0).view(3, 4) + 1)
    strided = torch.zeros(10)
    strided[::2] = float(rank + 1)
    dist.broadcast(strided[::2], src=1)
    assert strided.tolist() == [2.0, 0.0] * 5
    out = [torch.zeros(4, 3).t() for _ in range(2)]
    dist.all_gather(out, torch.arange(12.0).view(4, 3).t() * (rank + 1))
    for peer in range(2):
        same(out[peer].contiguous(), (torch.arange(12.0).view(4, 3).t() * (peer + 1)).contiguous())
    if rank == 0:
        dist.send(torch.arange(6.0).view(2, 3).t(), 1)
    else:
        got = torch.zeros(2, 3).t()
        dist.recv(got, 0)
        same(got.contiguous(), torch.arange(6.0).view(2, 3).t().contiguous())


@on_ranks(3)
def test_coalesced_calls_treat_every_tensor():
    rank = dist.get_rank()
    tensors = [torch.full((n,), float(rank + n)) for n in (1, 5, 2)]
    dist.all_reduce_coalesced(tensors)
    for n, tensor in zip((1, 5, 2), tensors):
        assert torch.all(tensor == 3 + 3 * n)
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
    outputs = [torch.zeros(3), torch.zeros(6)]
    inputs = [torch.full((1,), float(rank)), torch.full((2,), float(rank))]
    with dist._coalescing_manager():
        for out, value in zip(outputs, inputs):
            dist.all_gather_into_tensor(out, value)
    assert outputs[0].tolist() == [0, 1, 2] and outputs[1].tolist() == [0, 0, 1, 1, 2, 2]
    sums = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager():
        for out, value in zip(sums, outputs):
            dist.reduce_scatter_tensor(out, value)
    assert sums[0].tolist() == [3.0 * rank] and sums[1].tolist() == [3.0 * rank] * 2


@on_ranks(3)
def test_sparse_tensors_are_summed_over_all_ranks():
    rank = dist.get_rank()
    dense = torch.zeros(6, 2)
    dense[rank] = rank + 1.0
    dense[5] = 1.0
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor)
    expected = torch.tensor([[1.0, 1], [2, 2], [3, 3], [0, 0], [0, 0], [3, 3]])
    same(tensor.to_dense(), expected)


@on_ranks(2, 4)
def test_sparse_tensors_of_any_shape_and_type_are_summed_in_rank_order():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for sizes, sparse_dimensions in (((7,), 1), ((5, 4, 3), 3), ((5, 4, 3), 2), ((3, 2, 4, 2), 1), ((0, 3), 1)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
            parts = []
            for other in range(ranks):
                generator = torch.Generator().manual_seed(other)
                keep = torch.rand(sizes[:sparse_dimensions], generator=generator) < 0.2 * other  # none on rank 0
                values = (100 * torch.randn(sizes, generator=generator)).to(dtype)
                parts.append(values * keep.view(*sizes[:sparse_dimensions], *[1] * (len(sizes) - sparse_dimensions)))
            tensor = parts[rank].to_sparse(sparse_dimensions)
            dist.all_reduce(tensor)
            total = parts[0].clone()
            for part in parts[1:]:
                total += part
            assert tensor.is_coalesced() and torch.equal(tensor.to_dense(), total), (sizes, sparse_dimensions, dtype)


@on_ranks(3)
def test_objects_travel():
    rank = dist.get_rank()
    got = [None] * 3
    dist.all_gather_object(got, {"rank": rank, "text": "x" * (100 * rank)})
    assert [g["rank"] for g in got] == [0, 1, 2] and len(got[2]["text"]) == 200
    things = [["a", rank], None]
    dist.broadcast_object_list(things, src=1)
    assert things == [["a", 1], None]


@on_ranks(1)
def test_a_group_of_one_is_a_group():
    tensor = torch.arange(5.0)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, torch.arange(5.0))
    out = [torch.zeros(5)]
    dist.all_gather(out, tensor)
    same(out[0], tensor)
    dist.barrier()


@on_ranks(4)
def test_sub_groups_work_beside_the_world():
    rank = dist.get_rank()
    sorts_always = "sort_ranks" not in inspect.signature(dist.new_group).parameters  # torch 2.11
    even, odd = dist.new_group([0, 2]), dist.new_group([3, 1], **({} if sorts_always else {"sort_ranks": False}))
    mine = even if rank % 2 == 0 else odd
    tensor = torch.full((1000,), float(rank))
    world = torch.full((1000,), float(rank))
    works = [dist.all_reduce(tensor, group=mine, async_op=True), dist.all_reduce(world, async_op=True)]
    for work in works:
        work.wait()
    assert torch.all(tensor == (2.0 if rank % 2 == 0 else 4.0)) and torch.all(world == 6.0)
    value = torch.tensor([rank])
    dist.broadcast(value, src=3 if rank % 2 else 2, group=mine)
    assert value.item() == (3 if rank % 2 else 2)


@on_ranks(2)
def test_expanded_tensors_are_reduced_and_broadcast_like_any_other():
    rank = dist.get_rank()
    one = torch.full((3, 1), rank + 1.0)
    dist.all_reduce(one.expand(3, 4))
    assert torch.all(one == 3)
    one = torch.full((1,), rank + 1.0)
    dist.broadcast(one.expand(4), 1)
    assert one.item() == 2
    mixed = torch.full((2, 4), rank + 1.0)
    dist.all_reduce(mixed[0].expand(2, 4) if rank == 0 else mixed)  # what one has expanded the other has whole
    assert torch.all(mixed[0] == 3)
    # Four numbers have no place in one element.
    target = torch.zeros(1).expand(4) if rank == 0 else torch.arange(4.0)
    if rank == 0:
        with pytest.raises(RuntimeError, match="expanded"):
            dist.broadcast(target, 1)
    else:
        dist.broadcast(target, 1)
