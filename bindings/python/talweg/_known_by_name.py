"""Torch's functions that look at a backend's name and refuse what they do not know, made to serve Talweg's groups."""

from __future__ import annotations

import functools
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Since torch 2.14 ranks of a part stand as they are listed, and who is in none gets what is no member.
_SPLITS_IN_ORDER = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


def serve() -> None:
    """Puts the functions below in front of torch's; whatever is not for a group over Talweg still reaches torch's."""
    for name, ours, modules in (
        ("monitored_barrier", _monitored_barrier, (dist, dist.distributed_c10d)),
        ("split_group", _split_group, (dist, dist.distributed_c10d)),
        ("_set_pg_timeout", _set_pg_timeout, (dist.distributed_c10d,)),
    ):
        torchs = getattr(dist.distributed_c10d, name)
        for module in modules:
            setattr(module, name, functools.wraps(torchs)(functools.partial(ours, torchs)))
    for name in ("_get_sequence_number_for_group", "_set_sequence_number_for_group"):
        torchs = getattr(dist.ProcessGroup, name, None)
        if torchs is not None:  # there is no setting any more since torch 2.14
            setattr(dist.ProcessGroup, name, functools.wraps(torchs)(
                lambda self, torchs=torchs: _sequence_number(torchs, self)))
    log = DistributedDataParallel._get_ddp_logging_data
    DistributedDataParallel._get_ddp_logging_data = functools.wraps(log)(lambda self: _logging_data(log, self))


def serve_tensors() -> None:
    """The same for DTensor, if it has been imported by now: doing so here would cost everyone else half a second."""
    for module in ("torch.distributed.tensor._collective_utils", "torch.distributed.tensor.placement_types"):
        torchs = getattr(sys.modules.get(module), "shard_dim_alltoall", None)
        if torchs is not None and not isinstance(torchs, functools.partial):
            sys.modules[module].shard_dim_alltoall = functools.partial(_shard_dim_alltoall, torchs)


def is_over_talweg(group: dist.ProcessGroup | None) -> bool:
    """False on ranks that are not in the group, and before there is one."""
    try:
        return "cpu:talweg" in dist.get_backend_config(group).split(",")
    except ValueError:
        return False


def _monitored_barrier(torchs, group=None, timeout=None, wait_all_ranks=False):
    if not is_over_talweg(group):
        return torchs(group, timeout, wait_all_ranks)
    if isinstance(timeout, (int, float)):
        warnings.warn(f"timeout should be a timedelta; {timeout} is taken for seconds", stacklevel=2)
        timeout = timedelta(seconds=timeout)
    # Without a timeout: the group's own.
    (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks)


def _set_pg_timeout(torchs, timeout, group=None):
    if not is_over_talweg(group):
        return torchs(timeout, group)
    (group or dist.group.WORLD).set_timeout(timeout)  # of its backends for other devices, too


def _split_group(
    torchs, parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **others
):
    if not is_over_talweg(parent_pg):
        return torchs(parent_pg, split_ranks, timeout, pg_options, group_desc, **others)
    if not split_ranks or not all(split_ranks):
        raise ValueError("split_ranks must be lists of the parent's ranks, none of them empty")
    parent = parent_pg or dist.group.WORLD
    mine = next((ranks for ranks in split_ranks if parent.rank() in ranks), None)
    if mine is None and _SPLITS_IN_ORDER:
        # Names of later groups say how many were named before, which has to be the same on all ranks.
        dist.distributed_c10d._process_group_name(split_ranks[0], use_hashed_name=True)
        return dist.GroupMember.NON_GROUP_MEMBER
    if mine is None:
        return None
    world_ranks = [dist.get_global_rank(parent, rank) for rank in (mine if _SPLITS_IN_ORDER else sorted(mine))]
    order = {"sort_ranks": False} if _SPLITS_IN_ORDER else {}
    return dist.new_group(world_ranks, timeout, use_local_synchronization=True, group_desc=group_desc, **order)


def _sequence_number(torchs, group):
    if not is_over_talweg(group):
        return torchs(group)
    return getattr(group._get_backend(torch.device("cpu")), torchs.__name__)()


def _logging_data(torchs, model):
    data = torchs(model)
    # To torch's C++ every backend from elsewhere is "custom".
    return data | {"backend_name": "talweg"} if is_over_talweg(model.process_group) else data


def _shard_dim_alltoall(torchs, input, gather_dim, shard_dim, mesh, mesh_dim):
    group = mesh.get_group(mesh_dim)
    if not is_over_talweg(group):
        return torchs(input, gather_dim, shard_dim, mesh, mesh_dim)
    # Torch takes CPU tensors for gloo's: it would gather all and throw most of it away.
    return torch.ops._dtensor.shard_dim_alltoall(input, gather_dim, shard_dim, group.group_name)
