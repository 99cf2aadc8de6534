"""Makes a live DDP model send its gradients as a plan says: in which groups, in which order, with which priority."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from talweg import _files, _sending
from talweg._watching import find_layers

HIGHEST_PRIORITY = 7  # talweg/call.h
LARGEST_FILE = 16 << 20  # bytes; a plan for ten thousand layers has less than one million
LEAST_PARTITION = 1000  # bytes: smaller pieces cost more by their number than they can gain
MOST_BYTES = (1 << 63) - 1  # what torch takes for a size
NO_PLAN = "expected a plan, as talweg predict -o writes it"


class _Bucket(NamedTuple):
    layers: list[str]
    priority: int


class _Plan(NamedTuple):
    buckets: list[_Bucket]
    partition: int | None
    credit: int | None


def apply_plan(model: DistributedDataParallel, plan: str | os.PathLike[str] | Mapping[str, Any] | None) -> None:
    """Makes DDP send the model's gradients in the plan's buckets, in their order; call it on every rank, between steps:
    gradients of a forward pass before it whose backward pass is still to come would stay each rank's own, which DDP does not tell.

    `plan`: a JSON file, as `talweg predict` writes it, or what it holds; None: back to DDP's own buckets.

        {"buckets": [{"layers": ["fc", "conv2"], "priority": 1}, {"layers": ["conv1"]}],
         "partition": 1000000, "credit": 4000000}

    Layers are modules as model.module.named_modules() names them, the model itself by its class, or single parameters. A
    module stands for the parameters of its own but those that it shares with one before it. A bucket is sent when all its
    gradients are there and those before it have been sent. `priority` (0 to 7; needs the talweg backend and CPU tensors,
    without which rank 0 warns) lets it overtake, chunk by chunk, what was sent before it. `partition` (at least 1000) and
    `credit` (bytes; null: no limit) cut a bucket into several all-reduces, and hold back the next one while so much is under
    way.

    Everything else stays DDP's: averaging, no_sync, unused parameters, join, checkpoints. Parameters that were frozen after DDP
    was made are in its buckets, and so in the plan's: they are reduced again when they are unfrozen. Gradients that wait in
    .grad are kept. Raises TypeError for what is no plan, and ValueError in one line where the plan does not fit, or ranks have
    different ones."""
    _sending.refuse_what_hides_buckets(model, "apply_plan")
    _sending.refuse_while_tried(model, "apply_plan")
    follow(model, read := agreed("apply_plan", model, plan))
    warn_of_priorities("apply_plan", model, read)


def agreed(who: str, model: DistributedDataParallel, plan: Any) -> _Plan | None:
    """The plan, for follow(). All ranks call it: what is wrong with one rank's plan, or that ranks have different ones, is raised
    on all of them, as said by `who`."""
    read = problem = None
    if plan is not None:
        try:
            read = _read(plan)
            with _sending.unfrozen(model):
                _groups(read, model, *model._build_params_for_reducer())
        except (TypeError, ValueError) as error:  # the other ranks must hear of it, too
            problem = type(error)(f"{who}: {error}")
    _agree(who, model, repr(read), problem)
    return read


def follow(model: DistributedDataParallel, plan: _Plan | None) -> None:
    """From now on the model sends its gradients like this. All ranks call it between the same steps; None: without a word
    between them. Raises ValueError, and changes nothing, where the plan does not fit the model any more."""
    with _sending.unfrozen(model):
        parameters, sparse = model._build_params_for_reducer()
        groups = _groups(plan, model, parameters, sparse) if plan else []
        model.reducer._remove_autograd_hooks()
        if plan is None:
            model._ddp_init_helper(parameters, sparse, model._build_debug_param_to_name_mapping(parameters), model.static_graph)
            model._has_rebuilt_buckets = False
        else:
            _replace_reducer(model, parameters, sparse, groups)
        if getattr(model, "_require_manual_backward_finalization", False):  # since torch 2.15
            model.reducer._set_manual_finalization_required(True)
    ways = [_sending.Way(sum(parameters[i].numel() for i in group), bucket.priority)
            for group, bucket in zip(groups, plan.buckets if plan else ())]
    _tell_static_graph(model)
    sender = _sending.sender_of(model)
    sender.plan = plan
    sender.follow(ways, *(plan[1:] if plan else (None, None)))
    _sending.put_in_place(model)
    _sending.let_go(model)


def _read(plan: Any) -> _Plan:
    where = "the plan"
    if not isinstance(plan, Mapping):
        if not isinstance(plan, (str, os.PathLike)):
            raise TypeError(f"plan: expected a file, a dict or None, got {_shown(plan)}")
        where = os.fspath(plan)
        try:
            plan = json.loads(_files.read(plan, LARGEST_FILE), object_pairs_hook=_without_duplicates)
        except OSError as error:
            raise ValueError(f"{where}: {error.strerror or error}") from None
        except RecursionError:
            raise ValueError(f"{where}: nested too deeply; {NO_PLAN}") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}; {NO_PLAN}") from None
        if not isinstance(plan, Mapping) or "buckets" not in plan:
            raise ValueError(f"{where}: {NO_PLAN}")
    try:
        return _checked(plan)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for k, (key, _) in enumerate(pairs) if key in dict(pairs[:k]))
        raise ValueError(f"key {twice!r} is there twice")
    return found


def _checked(plan: Any) -> _Plan:
    _expect_keys(plan, "", {"buckets", "partition", "credit"})
    if not isinstance(plan.get("buckets"), list) or not plan["buckets"]:
        raise ValueError('expected "buckets": a list of at least one bucket')
    buckets = []
    for index, bucket in enumerate(plan["buckets"]):
        where = f"buckets[{index}]"
        _expect_keys(bucket, where, {"layers", "priority"})
        layers, priority = bucket.get("layers"), bucket.get("priority", 0)
        if not isinstance(layers, list) or not layers or not all(isinstance(layer, str) for layer in layers):
            raise ValueError(f"{where}.layers: expected a list of names")
        if type(priority) is not int or not 0 <= priority <= HIGHEST_PRIORITY:
            raise ValueError(f"{where}.priority: expected 0 to {HIGHEST_PRIORITY}, got {_shown(priority)}")
        buckets.append(_Bucket(layers, priority))
    for key, least in (("partition", LEAST_PARTITION), ("credit", 1)):
        if plan.get(key) is None:
            continue
        if type(plan[key]) is not int:
            raise ValueError(f"{key}: expected a number of bytes or null, got {_shown(plan[key])}")
        if not least <= plan[key] <= MOST_BYTES:
            raise ValueError(f"{key}: expected {least} to {MOST_BYTES} bytes or null, got {plan[key]}")
    return _Plan(buckets, plan.get("partition"), plan.get("credit"))


def _expect_keys(value: Any, where: str, known: set[str]) -> None:
    """`where` is empty for the plan itself, which whoever catches this has a name for."""
    place = f"{where}: " if where else ""
    if not isinstance(value, Mapping):
        raise ValueError(f"{place}expected an object, got {type(value).__name__}")
    for key in value:
        if key not in known:
            raise ValueError(f"{place}unknown key {key!r}; expected {', '.join(sorted(known))}")


def _shown(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})" if isinstance(value, (bool, int, float, bytes, str)) else type(value).__name__


def _groups(plan: _Plan, model: DistributedDataParallel, parameters: list, sparse: list[bool]) -> list[list[int]]:
    """For each bucket the numbers of its parameters, in the order in which their gradients are likely to come."""
    number = {id(p): i for i, p in enumerate(parameters)}
    single = dict(model.module.named_parameters())
    own: dict[str, list[int]] = {name: [] for name, _ in model.module.named_modules()}
    own |= {layer.name: layer.own for layer in find_layers(model)[0]}  # record()'s names and owners
    taken: dict[int, int] = {}
    groups = []
    for index, bucket in enumerate(plan.buckets):
        group: list[int] = []
        for layer in bucket.layers:
            if layer in single:
                owned = [number[id(single[layer])]] if id(single[layer]) in number else []
            elif layer in own:
                owned = own[layer]
            else:
                raise ValueError(f"buckets[{index}]: the model has no layer {layer!r}")
            # The last parameter of a layer is the first to have its gradient, as DDP assumes too.
            for one in sorted(owned, reverse=True):
                if one in taken and (one in group or taken[one] != index):
                    raise ValueError(f"buckets[{index}]: {layer!r} is in buckets[{taken[one]}] already")
                taken[one] = index
                group.append(one)
        if not group:
            raise ValueError(f"buckets[{index}]: none of its layers has a gradient")
        groups.append(group)
    for name, p in single.items():
        if id(p) not in number or number[id(p)] in taken:
            continue
        if p.numel():
            raise ValueError(f"no bucket has {name!r}")
        # A plan has no layer for what sends nothing, but DDP waits for that, too. It ends a bucket as soon as that is
        # full, so what adds nothing stands first.
        next((group for group in reversed(groups) if not any(sparse[i] for i in group)), groups[-1]).insert(0, number[id(p)])
    for index, group in enumerate(groups):
        if any(sparse[i] for i in group) and len(group) > 1:
            raise ValueError(f"buckets[{index}]: a sparse gradient needs a bucket of its own")
    if len({(p.dtype, p.device) for p in parameters}) > 1:
        raise ValueError("the model has gradients of several types or devices, for which DDP keeps separate "
                         "buckets")
    return groups


def _agree(who: str, model: DistributedDataParallel, plan: str, problem: TypeError | ValueError | None) -> None:
    """With different plans the ranks would add up gradients of different parameters."""
    mine = str(problem) if problem else hashlib.sha256(plan.encode()).hexdigest()
    everybody: list[Any] = [None] * model.process_group.size()
    dist.all_gather_object(everybody, (problem is not None, mine), group=model.process_group)
    for rank, (failed, text) in enumerate(everybody):
        if failed:
            raise problem or ValueError(f"{text} (on rank {rank})")
    for rank, (_, digest) in enumerate(everybody):
        if digest != everybody[0][1]:
            raise ValueError(f"{who}: rank {rank} has another plan than rank 0")


def warn_of_priorities(who: str, model: DistributedDataParallel, plan: _Plan | None) -> None:
    """Once, on rank 0: elsewhere than on CPU tensors over Talweg priorities do nothing. A warning may be an error, which no other
    rank would hear of: this one is for when none waits for another."""
    if plan is None or model.process_group.rank() != 0 or not any(bucket.priority for bucket in plan.buckets):
        return
    if _sending.talweg_backend(model.process_group) is None or _sending.device_of(model).type != "cpu":
        warnings.warn(f"{who}: priorities need the talweg backend and CPU tensors: buckets are sent in their order alone",
                      stacklevel=3)  # fmt: skip


def _replace_reducer(model, parameters, sparse, groups):
    """A reducer of DDP's that knows the parameters in the plan's order, and has been told that this is the order in which
    their gradients come: so it rebuilds its buckets at once, each as large as its group, and never again. What releases of
    torch after the first that is supported have added comes last."""
    names = {id(p): name for name, p in model.module.named_parameters()}
    order = [i for group in groups for i in group]
    planned = [parameters[i] for i in order]
    sizes = [sum(parameters[i].nbytes for i in group) for group in groups]
    ends = [sum(len(group) for group in groups[:k + 1]) for k in range(len(groups))]
    indices = [list(range(end - len(group), end)) for group, end in zip(groups, ends)]
    reducer = dist.Reducer(
        planned, indices, sizes, model.process_group, [sparse[i] for i in order], max(sizes),
        model.find_unused_parameters, model.gradient_as_bucket_view,
        {k: names.get(id(p), "") for k, p in enumerate(planned)} if dist.get_debug_level() != dist.DebugLevel.OFF else {},
        max(sizes), model.skip_all_reduce_unused_params, False, sizes,
        *(getattr(model, later) for later in ("batched_grad_copy", "lazy_bucket_allocation") if hasattr(model, later)),
    )  # fmt: skip
    buffers = "forward_sync_buffers" if hasattr(model, "forward_sync_buffers") else "broadcast_buffers"  # before torch 2.13
    model.reducer = reducer
    model.logger = dist.Logger(reducer)
    reducer.set_logger(model.logger)
    model.logger.set_construction_data_and_log(
        type(model.module).__name__, model.device_ids or [], -1 if model.output_device is None else model.output_device,
        getattr(model, buffers), any(isinstance(m, torch.nn.SyncBatchNorm) for m in model.module.modules()),
        model.static_graph)  # fmt: skip
    reducer._push_all_rebuilt_params()
    reducer._rebuild_buckets()
    model._has_rebuilt_buckets = True


def _tell_static_graph(model):
    """A new reducer has to learn the graph, as the first one did."""
    if model.static_graph:
        model.static_graph = False
        model._set_static_graph()
