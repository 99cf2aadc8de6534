"""A model with the gradients that a test gives it, under a hook of talweg.torch.hooks."""

import torch
from torch.nn.parallel import DistributedDataParallel

from talweg.torch import hooks

SIZES = (1500, 1, 40, 17, 600)  # elements of the parameters: some shorter than a block, some of no whole block


class Given(torch.nn.Module):
    """A model whose gradients are what it is called with."""

    def __init__(self, sizes=SIZES, dtype=torch.float32):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.zeros(size, dtype=dtype) for size in sizes)

    def forward(self, gradients):
        return sum((part * gradient).sum() for part, gradient in zip(self.parts, gradients))


def given_gradients(step, rank, sizes=SIZES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def parallel(state, model=None, bucket_mb=0.002, group=None):
    model = DistributedDataParallel(model or Given(), process_group=group, bucket_cap_mb=bucket_mb)
    model.register_comm_hook(state, hooks.hook)
    return model


def averaged(model, gradients):
    model.zero_grad()
    model(gradients).backward()
    return [part.grad.clone() for part in model.module.parts]
