"""Groups within groups, groups one after the other, and what is built from collectives: objects, functions, pipelines."""

import os
import tempfile
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from ranks import on_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from training import assert_near

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER if RELEASE >= (2, 14) else None  # what split_group gives to who is in no part


def total(group=None):
    """The sum of the world ranks in a group."""
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor, group=group)
    return int(tensor.item())


@on_ranks(2, 4)
def test_groups_are_made_of_groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    assert total(dist.new_group(pair, use_local_synchronization=True)) == sum(pair)
    assert total(dist.new_subgroups(2)[0]) == sum(pair)
    pairs = [[first, first + 1] for first in range(0, size, 2)]
    mine = dist.split_group(split_ranks=pairs)
    assert dist.get_backend(mine) == "talweg" and total(mine) == sum(pair)
    # Ranks of the parent, which is not the world; and none for those who are left out.
    alone = dist.split_group(mine, [[1]], timeout=timedelta(seconds=10))
    assert (alone == OUTSIDE) if rank % 2 == 0 else total(alone) == rank
    # Torch's own way to it, below torch.distributed.
    assert mine.split_group([0, 1], group_name="again").size() == 2
    dist.monitored_barrier(mine)
    with pytest.raises(ValueError):
        dist.split_group(split_ranks=[])
    # Gloo connects when it is made: nobody leaves before all have.
    gloo = dist.new_group(backend="gloo")
    dist.barrier()
    if RELEASE < (2, 15):
        with pytest.raises(RuntimeError, match="No device"):
            dist.split_group(gloo, pairs)
    else:
        assert total(dist.split_group(gloo, pairs)) == sum(pair)
    dist.barrier()


@on_ranks(2, 4)
def test_many_groups_share_the_connections_of_the_first():
    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    dist.barrier()
    before = held()
    size = dist.get_world_size()
    groups = [dist.new_group(list(range(i % 2, size))) for i in range(20)]
    assert held() == before
    for i, group in enumerate(groups):
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            assert total(group) == sum(range(i % 2, size))
    # One that has been left by a rank is not waited for.
    last = groups[-2]
    dist.barrier()
    if dist.get_rank() == 0:
        dist.destroy_process_group(last)
    else:
        with pytest.raises(dist.DistBackendError, match="rank 0 .* has left the group"):
            total(last)
    dist.barrier()


@on_ranks(4)
def test_a_mesh_has_a_group_in_every_dimension():
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    assert total(mesh.get_group("rows")) == 2 * (rank % 2) + 2
    assert total(mesh.get_group("columns")) == (1 if rank < 2 else 5)
    assert total(mesh["rows", "columns"]._flatten("all").get_group()) == 6
    world = torch.full((1,), 1.0)
    dist.all_reduce(world)
    assert world.item() == 4


@on_ranks(2, 4)
def test_objects_travel():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "text": "x" * (1000 * rank)}
    everyone = [{"rank": peer, "text": "x" * (1000 * peer)} for peer in range(size)]
    got = [None] * size
    dist.all_gather_object(got, mine)
    assert got == everyone
    got = [None] * size if rank == 1 else None
    dist.gather_object(mine, got, dst=1)
    assert got == (everyone if rank == 1 else None)
    got = ["a", rank]
    dist.broadcast_object_list(got, src=1)
    assert got == ["a", 1]
    got = [None]
    dist.scatter_object_list(got, everyone if rank == 0 else None, src=0)
    assert got == [mine]
    if rank == 0:
        dist.send_object_list([everyone, "end"], dst=size - 1)
    elif rank == size - 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == [everyone, "end"]


@on_ranks(2, 4)
def test_collectives_are_functions():
    rank, size = dist.get_rank(), dist.get_world_size()
    world, tensor = dist.group.WORLD, torch.arange(2.0 * size) + rank
    everyone = [torch.arange(2.0 * size) + peer for peer in range(size)]
    mine = slice(2 * rank, 2 * rank + 2)
    assert torch.equal(functional.all_reduce(tensor, "sum", world), sum(everyone))
    assert torch.equal(functional.all_gather_tensor(tensor, 0, world), torch.cat(everyone))
    assert torch.equal(functional.reduce_scatter_tensor(tensor, "avg", 0, world), (sum(everyone) / size)[mine])
    assert torch.equal(functional.broadcast(tensor, 1, world), everyone[1])
    swapped = functional.all_to_all_single(tensor, None, None, world)
    assert torch.equal(swapped, torch.cat([each[mine] for each in everyone]))
    sums = functional.all_reduce_coalesced([tensor, tensor * 2], "max", world)
    assert torch.equal(sums[1], 2 * everyone[-1])
    right = [(peer + 1) % size for peer in range(size)]
    assert torch.equal(functional.permute_tensor(tensor, right, world), everyone[(rank - 1) % size])
    assert torch.equal(tensor, everyone[rank])

    # Their derivatives: an all-reduce's is an all-reduce, an all-gather's a reduce-scatter, an all-to-all's its inverse.
    for function, factor in (
        (lambda x: differentiable.all_reduce(x), size),
        (lambda x: functional.all_gather_tensor_autograd(x, 0, world), size),
        (lambda x: functional.all_to_all_single_autograd(x, [2] * size, [2] * size, world), 1),
    ):
        x = tensor.clone().requires_grad_()
        (3 * function(x)).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 3.0 * factor))


def _layers(count):
    torch.manual_seed(2)
    return [torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(count)]


def _serial_gradients(parts, x, y):
    model = torch.nn.Sequential(*_layers(parts))
    torch.nn.functional.mse_loss(model(x), y).backward()
    return [[p.grad for p in layer.parameters()] for layer in model]


@on_ranks(2, 4)
def test_a_pipeline_of_batched_sends_has_the_gradients_of_one_process():
    rank, size = dist.get_rank(), dist.get_world_size()
    layer = _layers(size)[rank]
    inputs, targets = torch.randn(4, 3, 6), torch.randn(4, 3, 6)
    held, received = [], torch.zeros(3, 6)

    def exchange(tensor_in, source, tensor_out, destination):
        operations = [dist.P2POp(dist.irecv, tensor_in, source)] if source in range(size) else []
        operations += [dist.P2POp(dist.isend, tensor_out, destination)] if destination in range(size) else []
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()

    # Each step sends what the step before made while it receives what this one needs.
    ready = None
    for x in inputs:
        exchange(received, rank - 1, ready, rank + 1 if ready is not None else -1)
        x = (x if rank == 0 else received).clone().requires_grad_()
        ready = layer(x)
        held.append((x, ready))
        ready = ready.detach()
    exchange(None, -1, ready, rank + 1)
    ready = None
    for (x, out), y in zip(held, targets):
        exchange(received, rank + 1, ready, rank - 1 if ready is not None else -1)
        if rank == size - 1:
            (torch.nn.functional.mse_loss(out, y) / len(inputs)).backward()
        else:
            out.backward(received)
        ready = x.grad
    exchange(None, -1, ready, rank - 1)
    expected = _serial_gradients(size, inputs.view(12, 6), targets.view(12, 6))[rank]
    for got, gradient in zip(layer.parameters(), expected):
        assert_near(got.grad, gradient)


@on_ranks(2, 4)
def test_torchs_pipelines_have_the_gradients_of_one_process():
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    x, y = torch.randn(16, 6), torch.randn(16, 6)
    expected = _serial_gradients(size, x, y)[rank]
    for schedule in (ScheduleGPipe, Schedule1F1B):
        layer = _layers(size)[rank]
        stage = PipelineStage(layer, rank, size, torch.device("cpu"))
        pipeline = schedule(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        pipeline.step(*([x] if rank == 0 else []), **({"target": y} if rank == size - 1 else {}))
        for got, gradient in zip(layer.parameters(), expected):
            assert_near(got.grad, gradient)


@on_ranks(2, 4)
def test_groups_follow_each_other_and_may_be_watched_by_torchs_debugger():
    rank, size = dist.get_rank(), dist.get_world_size()
    # Nobody removes it here: a FileStore whose folder goes while another rank drops it waits five minutes for the file.
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    for turn, level in enumerate(("OFF", "DETAIL", "OFF")):
        dist.destroy_process_group()
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
        dist.set_debug_level_from_env()
        store = dist.FileStore(os.path.join(folder[0], str(turn)), size)
        dist.init_process_group("talweg", store=store, rank=rank, world_size=size)
        assert total() == size * (size - 1) // 2
        out = [torch.zeros(2) for _ in range(size)]
        dist.all_gather(out, torch.full((2,), float(rank)))
        assert [int(each[0]) for each in out] == list(range(size))
        dist.monitored_barrier(timeout=timedelta(seconds=20))
        if level == "DETAIL":
            with pytest.raises(RuntimeError, match="(?s)Detected mismatch.*ALLREDUCE"):
                dist.all_reduce(torch.ones(3 + rank))
        dist.barrier()


@on_ranks(2)
def test_a_group_counts_its_calls():
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    assert group._get_sequence_number_for_group() == before + 3
    if RELEASE < (2, 14):
        assert group._set_sequence_number_for_group() is None
    assert group._get_sequence_number_for_group() == before + 3  # gloo's does nothing, too
    part = dist.new_group([0, 1])
    assert part._get_sequence_number_for_group() == 0
    gloo = dist.new_group([0, 1], backend="gloo")
    assert gloo._get_sequence_number_for_group() == 0  # torch's own still serves what is torch's
    if RELEASE < (2, 14):
        assert gloo._set_sequence_number_for_group() is None
    dist.barrier()  # who leaves while the other still connects to it makes gloo fail there
