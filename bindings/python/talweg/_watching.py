"""Hooks on a DDP model that note when each layer begins and ends in the forward and the backward pass.

The forward pass is told by hooks on modules. For the backward pass, torch's own hooks on modules would put functions into
the graph (which forbids operations in place); these here hang on nodes that the graph has anyway: a layer's backward pass
begins with the node that made its output, and ends with the one that made its input."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel


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
        layers.append(Layer(name or type(module).__name__, module, own, sum(parameters[i].nbytes for i in own), parent))
    return layers, parameters


class Watching:
    """Hooks in place from `begin` to `end`; what they note is in `log`: (kind, index, stamp)."""

    def __init__(self, model: DistributedDataParallel, now: Any) -> None:
        self.model = model
        self.layers, self.parameters = find_layers(model)
        self.log: list[tuple[int, int, Any]] = []
        self.after: list[set[int]] = [set() for _ in self.layers]
        self.look_for_sources = True
        self._live = False  # within the forward pass of the whole model
        self._waiting = False  # for its backward pass
        self._now = now
        self._last: Any = None
        self._inputs: list[Any] = [None] * len(self.layers)
        self._outputs: dict[Any, int] = {}
        self._handles: list[Any] = []

    def begin(self) -> None:
        for index, layer in enumerate(self.layers):
            self._handles.append(layer.module.register_forward_pre_hook(self._layer_in(index), prepend=False))
            self._handles.append(layer.module.register_forward_hook(self._layer_out(index), prepend=True))
        for index, parameter in enumerate(self.parameters):
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._ready(index)))

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.pass_ends()

    def pass_begins(self) -> None:
        self.log.append((Kind.FORWARD, -1, self._now()))
        self._live = self._waiting = True

    def pass_ends(self) -> None:
        if self._live:
            self.log.append((Kind.FORWARD_END, -1, self._now()))
        self._live = False
        self._last = None
        self._inputs = [None] * len(self.layers)
        self._outputs.clear()

    def _layer_in(self, index):
        append, now, kind = self.log.append, self._now, Kind.LAYER_IN
        note_end = self._on_gradient(Kind.GRAD_END, index)

        def hook(module, arguments):
            if not self._live:
                return
            first = None
            for one in arguments:
                node = one.grad_fn if isinstance(one, torch.Tensor) else None
                if node is not None:
                    first = first or node
                    if node is not self._last:  # else the layer before begins there, which says the same
                        node.register_prehook(note_end)
                    if self.look_for_sources:
                        self.after[index] |= _sources(node, self._outputs)
            self._inputs[index] = first
            append((kind, index, now()))

        return hook

    def _layer_out(self, index):
        append, now, kind = self.log.append, self._now, Kind.LAYER_OUT
        note_begin = self._on_gradient(Kind.GRAD, index)

        def hook(module, arguments, output):
            if not self._live:
                return
            append((kind, index, now()))
            for one in (output,) if isinstance(output, torch.Tensor) else _tensors(output):
                node = one.grad_fn
                # A layer that hands its input on has no node, and a container's last one is its last layer's.
                if node is not None and node is not self._inputs[index] and node is not self._last:
                    node.register_prehook(note_begin)
                    self._last = node
                    if self.look_for_sources:
                        self._outputs.setdefault(node, index)

        return hook

    def _on_gradient(self, kind, index):
        append, now = self.log.append, self._now

        def hook(gradients):
            if self._waiting:
                self._backward_begins()
            append((kind, index, now()))

        return hook

    def _ready(self, index):
        append, now, kind = self.log.append, self._now, Kind.READY

        def hook(parameter):
            if self._waiting:
                self._backward_begins()
            append((kind, index, now()))

        return hook

    def _backward_begins(self):
        # DDP asks for its own callback when it has sent the last bucket: this one comes before, and what it asks for after it.
        self._waiting = False
        queue = torch.autograd.Variable._execution_engine.queue_callback

        def synchronised():
            self.log.append((Kind.SYNC_END, -1, self._now()))

        def backward_ends():
            self.log.append((Kind.BACKWARD_END, -1, self._now()))
            queue(synchronised)

        queue(backward_ends)


def _tensors(output):
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else ()
    return [one for one in values if isinstance(one, torch.Tensor)]


def _sources(node, outputs):
    """The layers whose outputs a node's value was made of."""
    found, seen, waiting = set(), {node}, [node]
    while waiting:
        one = waiting.pop()
        if one in outputs:
            found.add(outputs[one])
            continue
        for following, _ in one.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found
