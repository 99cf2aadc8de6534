"""Importing this module makes "talweg" a backend of torch.distributed, for CPU tensors:

    import torch.distributed as dist
    import talweg.torch
    dist.init_process_group("talweg")

DistributedDataParallel, FSDP and everything else that speaks torch.distributed then runs over Talweg.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

if not dist.is_available():
    raise ImportError("talweg.torch needs a torch that was built with torch.distributed")
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) != (2, 13):
    raise ImportError(f"talweg.torch was compiled for torch 2.13, but this is torch {torch.__version__}")

from talweg import _c10d  # noqa: E402  (a wrong torch must be reported before its symbols are missed)

dist.Backend.register_backend("talweg", _c10d.create, extended_api=True, devices=["cpu"])


def backend(group: dist.ProcessGroup | None = None) -> _c10d.Backend:
    """The Talweg backend of a process group (default: the world), for describe(), explain() and statistics()."""
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("call torch.distributed.init_process_group first")
    found = group._get_backend(torch.device("cpu"))
    if not isinstance(found, _c10d.Backend):
        raise ValueError(f"this process group runs over {dist.get_backend(group)}, not over talweg")
    return found
