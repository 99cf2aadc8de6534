"""The layers of a DDP model, and what notes when each begins and ends in the forward and the backward pass (bindings/torch/
step_log.h says how)."""

from __future__ import annotations

import copyreg
import enum
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from talweg import _sending
from talweg._c10d import StepLog


class Kind(enum.IntEnum):
    """What happened, and to what `index` of the log's entries refers."""

    STEP = 0  # a step ended; stamp None
    FORWARD = 1  # a forward pass of the whole model begins
    LAYER_IN = 2  # index: layer
    LAYER_OUT = 3
    FORWARD_END = 4
    GRAD = 5  # the gradient of a layer's output is there
    GRAD_END = 6  # that of its input is
    READY = 7  # index: parameter, whose gradient is there
    BACKWARD_END = 8  # before DDP waits for what it has sent
    SYNC_END = 9  # after that
    UPDATE = 10  # an optimiser begins
    UPDATE_END = 11
    SENT = 12  # index: how many all-reduces of the step went before this one
    ARRIVED = 13


class Layer(NamedTuple):
    name: str
    module: torch.nn.Module
    own: list[int]  # its parameters, as numbers among those that DDP reduces
    gradient: int  # their gradients' bytes
    parent: int  # the layer that contains it, or -1


def find_layers(model: DistributedDataParallel) -> tuple[list[Layer], list[torch.nn.Parameter]]:
    """The modules that have parameters of their own or contain no other, containers before their content; and the
    parameters that DDP reduces. Who comes first owns a parameter that several modules share."""
    parameters, _ = model._build_params_for_reducer()
    number = {id(p): i for i, p in enumerate(parameters)}
    owned: set[int] = set()
    layers: list[Layer] = []
    index_of: dict[str, int] = {}
    for name, module in model.module.named_modules():
        direct = list(module.parameters(recurse=False))
        if not direct and any(module.children()):
            continue
        own = [number[id(p)] for p in direct if id(p) in number and id(p) not in owned]
        owned.update(id(p) for p in direct)
        parts = name.split(".") if name else []
        above = [".".join(parts[:k]) for k in range(len(parts) - 1, -1, -1)] if name else []
        parent = next((index_of[a] for a in above if a in index_of), -1)
        index_of[name] = len(layers)
        layers.append(Layer(name or _root_name(module), module, own, sum(parameters[i].nbytes for i in own), parent))
    return layers, parameters


def _root_name(module: torch.nn.Module) -> str:
    """What has no name in a model is called after its class, or nearly so where a part of the model is called that."""
    name = type(module).__name__
    taken = {part for part, _ in (*module.named_modules(), *module.named_parameters())}
    while name in taken:
        name += "_"
    return name


class Watching:
    """In place from `begin` to `end`."""

    def __init__(self, model: DistributedDataParallel, now: Callable[[], Any] | None) -> None:
        self.model = model
        with _sending.unfrozen(model):
            self.layers, self.parameters = find_layers(model)
        self.log = StepLog(len(self.layers), now)
        self._in_front: list[tuple[torch.nn.Module, Any, Any]] = []  # a layer's module, what was called, what is called now

    def begin(self) -> None:
        for index, layer in enumerate(self.layers):
            # Not a hook: modules without any are called faster, and a program's own stay the first and the last.
            own = layer.module.__dict__.get("forward")
            call = functools.update_wrapper(self.log.in_front_of(index, layer.module.forward), layer.module.forward)
            call.copied = (getattr, (layer.module, "forward")) if own is None else (operator.getitem, ((own,), 0))
            copyreg.pickle(type(call), _copied)
            layer.module.__dict__["forward"] = call
            self._in_front.append((layer.module, own, call))
        with _sending.unfrozen(self.model):  # or they have nothing to be watched at
            self.log.watch_parameters(self.parameters)

    def end(self) -> None:
        for module, own, call in self._in_front:
            if module.__dict__.get("forward") is not call:
                continue  # the program has put its own there meanwhile
            if own is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = own
        self._in_front.clear()
        self.log.end()


def _copied(call: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What a copy of a model, made while it is watched, has in place of what stands in front of a layer: the copied layer's own
    forward(), which copy and pickle ask for when they have made that layer; or the one that the program had put there."""
    return call.copied
