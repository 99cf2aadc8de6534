"""A small model and the same training of it on any number of ranks, with what a single process makes of it."""

import torch
import torch.distributed as dist

ROWS = 8  # of every rank in every step


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5)
    )


def batch(step, size):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS * size, 20, generator=generator)
    return x, torch.randint(0, 5, (ROWS * size,), generator=generator)


def loss(model, step):
    """Of this rank's rows of a step's batch."""
    mine = slice(ROWS * dist.get_rank(), ROWS * (dist.get_rank() + 1))
    x, y = batch(step, dist.get_world_size())
    return torch.nn.functional.cross_entropy(model(x[mine]), y[mine])


def train(model, optimizer=None, steps=5):
    optimizer = optimizer or sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
    return model


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def serial(steps=5):
    """The parameters after the same training by one process that sees the rows of all ranks."""
    model = network()
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(step, dist.get_world_size())
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return flat(model)


def assert_equal_on_all_ranks(tensor):
    copies = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, tensor)
    assert all(torch.equal(copies[0], c) for c in copies)


def assert_near(a, b, relative=1e-5, absolute=1e-6):
    torch.testing.assert_close(a, b, rtol=relative, atol=absolute)
