"""A recommendation model whose gradients are mostly zeros, trained with gradients compressed or whole:

    talweg run -n 4 -- python examples/train_recommender.py --send auto
    talweg lab run examples/clusters/even4.yaml -- python examples/train_recommender.py --send block_top_k
    ... --backend gloo                                                   # the same, densely, for comparison

People click on few of many items (by Zipf's law), so that a step touches few of the embeddings' rows. The clicks are drawn from
hidden tastes; the loss after training tells whether what was not sent was missed.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import talweg.torch
from talweg.torch import hooks

HISTORY = 8  # items that a person has clicked on before
BATCH = 128  # people of a rank in a step

FORMS = {
    "dense": None,
    "auto": lambda dim, ratio, **o: hooks.auto(block=dim, **o),
    "int8": lambda dim, ratio, **o: hooks.int8(**o),
    "top_k": lambda dim, ratio, **o: hooks.top_k(ratio, **o),
    "block_top_k": lambda dim, ratio, **o: hooks.block_top_k(ratio, block=dim, **o),
}


class Recommender(torch.nn.Module):
    """How likely a person who clicked on some items clicks on another."""

    def __init__(self, items, dim):
        super().__init__()
        self.history = torch.nn.EmbeddingBag(items, dim, mode="mean")
        self.candidate = torch.nn.Embedding(items, dim)
        self.judge = torch.nn.Sequential(torch.nn.Linear(3 * dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        for table in (self.history, self.candidate):
            torch.nn.init.normal_(table.weight, std=0.3)

    def forward(self, history, candidate):
        h, c = self.history(history), self.candidate(candidate)
        return self.judge(torch.cat([h, c, h * c], dim=1)).squeeze(1)


class Clicks:
    """Batches of (history, candidate, clicked), the same for a seed."""

    def __init__(self, items):
        generator = torch.Generator().manual_seed(0)
        self.odds = 1 / torch.arange(1, items + 1, dtype=torch.float64) ** 1.1
        self.tastes = torch.randn(items, 4, generator=generator)

    def batch(self, seed, people=BATCH):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.multinomial(self.odds, people * (HISTORY + 1), replacement=True, generator=generator)
        history, candidate = drawn.view(people, HISTORY + 1).split([HISTORY, 1], dim=1)
        liking = (self.tastes[history].mean(1) * self.tastes[candidate[:, 0]]).sum(1)
        clicked = torch.rand(people, generator=generator) < torch.sigmoid(4 * liking)
        return history, candidate[:, 0], clicked.float()


def train(form, steps, items, dim, ratio=0.04, group=None):
    """(loss on clicks that were not trained on, seconds of a step, the hook's state or None)."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Recommender(items, dim), process_group=group)
    state = None
    if FORMS[form] is not None:
        state = FORMS[form](dim, ratio, process_group=group)
        hooks.register(model, state)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    clicks = Clicks(items)
    score = torch.nn.functional.binary_cross_entropy_with_logits
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    begin = time.perf_counter()
    for step in range(steps):
        if step == min(5, steps - 1):  # connections and plans are there
            begin, timed = time.perf_counter(), steps - step
        history, candidate, clicked = clicks.batch(1 + step * size + rank)
        loss = score(model(history, candidate), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = (time.perf_counter() - begin) / timed
    with torch.no_grad():
        history, candidate, clicked = clicks.batch(2**40, 4096)
        return float(score(model.module(history, candidate), clicked)), seconds, state


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", default="talweg", choices=["talweg", "gloo"])
    options.add_argument("--send", default="dense", choices=FORMS)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--items", type=int, default=20_000)
    options.add_argument("--dim", type=int, default=32)
    options.add_argument("--ratio", type=float, default=0.04, help="of top_k and block_top_k")
    given = options.parse_args()
    if min(given.steps, given.items, given.dim) < 1:
        options.error("--steps, --items and --dim are 1 or more")
    dist.init_process_group(given.backend)
    loss, seconds, state = train(given.send, given.steps, given.items, given.dim, given.ratio)
    if dist.get_rank() == 0:
        told = f", {state.statistics()['ratio']:.1f} times less sent" if state else ""
        print(f"loss after {given.steps} steps on {dist.get_world_size()} ranks, {given.backend} {given.send}: {loss:.4f}, "
              f"{1e3 * seconds:.1f} ms a step{told}")
    dist.barrier()
    dist.destroy_process_group()
