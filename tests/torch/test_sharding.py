"""Models whose parameters are spread over ranks (FSDP, DTensor, tensor parallelism, ZeRO) and their checkpoints."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from ranks import on_ranks, run
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from training import assert_near, batch, flat, network, serial, sgd, train


def whole(model):
    return torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])


@on_ranks(2, 4)
def test_both_generations_of_fsdp_and_the_sharded_optimizer_train_to_the_parameters_of_one_process():
    expected = serial()
    first = train(FullyShardedDataParallel(network(), device_id=torch.device("cpu")))
    with FullyShardedDataParallel.summon_full_params(first):
        assert_near(flat(first), expected)

    second = network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in second:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    assert_near(whole(train(fully_shard(second, mesh=mesh))), expected)

    third = DistributedDataParallel(network())
    assert_near(flat(train(third, ZeroRedundancyOptimizer(third.parameters(), torch.optim.SGD, lr=0.1))), expected)


@on_ranks(2, 4)
def test_a_tensor_changes_its_placement():
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    # 7 rows and 9 columns: no rank count divides them.
    full = torch.arange(63.0).view(7, 9)
    for before in (Replicate(), Shard(0), Shard(1)):
        for after in (Replicate(), Shard(0), Shard(1)):
            moved = distribute_tensor(full, mesh, [before]).redistribute(mesh, [after])
            assert torch.equal(moved.to_local(), distribute_tensor(full, mesh, [after]).to_local())
    with CommDebugMode() as sent:
        distribute_tensor(full, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
    assert sent.get_comm_counts()[torch.ops._dtensor.shard_dim_alltoall] == 1
    assert sent.get_comm_counts()[torch.ops.c10d_functional.all_gather_into_tensor] == 0
    parts = DTensor.from_local(full, mesh, [Partial()])
    for after in (Replicate(), Shard(0), Shard(1)):
        assert torch.equal(parts.redistribute(mesh, [after]).full_tensor(), size * full)


@on_ranks(2, 4)
def test_layers_are_split_over_ranks():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    reference = network()
    for step in range(3):
        x, y = batch(step, 1)
        for each in (model, reference):
            optimizer = sgd(each)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(each(x), y).backward()
            optimizer.step()
    got = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    assert_near(torch.cat([p.detach().flatten() for p in got]), flat(reference))


@on_ranks(4)
def test_shards_of_layers_that_are_split_over_ranks():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = network()
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    # Both ranks of a tensor-parallel pair see the same rows.
    reference = network()
    for step in range(3):
        x, y = batch(step, 2)
        rows = slice(8 * mesh.get_local_rank("data"), 8 * (mesh.get_local_rank("data") + 1))
        for each, mine in ((model, rows), (reference, slice(None))):
            optimizer = sgd(each)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(each(x[mine]), y[mine]).backward()
            optimizer.step()
    assert_near(whole(model), flat(reference))


def _sharded():
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def _save(folder):
    model, optimizer = _sharded()
    for step in range(3):
        _same_step(model, optimizer, step)
    weights, state = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=folder)


def _load_and_go_on(folder):
    model, optimizer = _sharded()
    weights, state = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    _same_step(model, optimizer, 3)

    reference = network()
    expected = torch.optim.Adam(reference.parameters(), lr=0.01)
    for step in range(4):
        _same_step(reference, expected, step)
    assert_near(whole(model), flat(reference), relative=1e-4, absolute=1e-5)


def _same_step(model, optimizer, step):
    """The same rows on every rank, so that the number of ranks makes no difference."""
    x, y = batch(step, 1)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_a_checkpoint_is_loaded_by_another_number_of_ranks():
    for before, after in ((4, 2), (2, 4)):
        with tempfile.TemporaryDirectory() as folder:
            run(before, _save, (folder,))
            run(after, _load_and_go_on, (folder,))
