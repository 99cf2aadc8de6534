"""Importing this module makes "talweg" a backend of torch.distributed, for CPU tensors:

    import torch.distributed as dist
    import talweg.torch
    dist.init_process_group("talweg")

DistributedDataParallel, FSDP and everything else that speaks torch.distributed then runs over Talweg.

What torch offers only to backends that it knows by name (monitored_barrier, split_group, _set_pg_timeout, the all-to-all
of DTensor) serves groups over Talweg too; for every other group these functions do what they did before.

record() writes down where the time of a DDP model's step goes, apply_plan() makes DDP send its gradients as a plan says, and
try_plan() keeps that plan only where it is quicker; all work with any backend.
"""

from talweg import _torch_check  # noqa: F401  (first: it says what is wrong with torch here)

import torch
import torch.distributed as dist

if not dist.is_available():
    raise ImportError("talweg.torch needs a torch that was built with torch.distributed")

from talweg import _c10d, _known_by_name  # noqa: E402
from talweg._plan import apply_plan  # noqa: E402, F401
from talweg._record import record  # noqa: E402, F401
from talweg._trial import try_plan  # noqa: E402, F401


def _create(options, backend_options=None) -> _c10d.Backend:
    _known_by_name.serve_tensors()
    return _c10d.create(options, _world())


def _world() -> _c10d.Backend | None:
    """What further groups share their connections with: the first group, if it is Talweg's on CPU tensors."""
    world = dist.group.WORLD
    if world is None or not _known_by_name.is_over_talweg(world):
        return None
    found = world._get_backend(torch.device("cpu"))
    return found if isinstance(found, _c10d.Backend) else None  # torch's debug wrapper is not


dist.Backend.register_backend("talweg", _create, extended_api=True, devices=["cpu"])


def backend(group: dist.ProcessGroup | None = None) -> _c10d.Backend:
    """The Talweg backend of a process group (default: the world), for describe(), explain() and statistics()."""
    if not isinstance(group, (dist.ProcessGroup, type(None))):
        raise TypeError(f"backend: group: expected a ProcessGroup or None, got {group!r}")
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("call torch.distributed.init_process_group first")
    found = group._get_backend(torch.device("cpu"))
    if not isinstance(found, _c10d.Backend):
        raise ValueError(f"this process group runs over {dist.get_backend(group)}, not over talweg")
    return found


def compress_bfloat16(
    group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook for DDP that halves what is sent: gradients travel and are averaged as bfloat16.

    model.register_comm_hook(None, talweg.torch.compress_bfloat16)     # None: the world

    Torch's bf16_compress_hook does the same, but DDP refuses it where there is no NCCL.
    """
    gradient = bucket.buffer()

    def widen(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        return gradient.copy_(future.value()[0])

    half = gradient.to(torch.bfloat16)
    return dist.all_reduce(half, dist.ReduceOp.AVG, group, async_op=True).get_future().then(widen)


_known_by_name.serve()

from talweg.torch import hooks  # noqa: E402, F401  (needs what is above)
