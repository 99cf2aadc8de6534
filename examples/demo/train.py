"""Trains a convolutional network on handwritten digits with DistributedDataParallel, over any backend.

    talweg run -n 4 -- python examples/demo/train.py --backend talweg --json result.json

Rank 0 prints progress and writes what was measured. The same seeds give every backend the same work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

DIGITS = Path(__file__).resolve().parent / "digits.txt"
TEST_IMAGES = 360  # of 1797; the same for everybody


def network() -> nn.Module:
    """About 5 million parameters, most of them in one wide layer: 20 MB of gradients a step."""
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 2048), nn.ReLU(),
        nn.Linear(2048, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip
    # He's initialisation: with it a dozen steps are enough, which is what a slow network has time for.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu")
    return model


def digits(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, test images and labels; pixels with mean 0 and deviation 1."""
    lines = [line.split() for line in DIGITS.read_text().splitlines() if not line.startswith("#")]
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(seed))
    images = torch.tensor([[int(pixel, 17) for pixel in pixels] for pixels, _ in lines], dtype=torch.float32)
    images = images.reshape(-1, 1, 8, 8)[order]
    images = (images - images.mean()) / images.std()
    labels = torch.tensor([int(digit) for _, digit in lines])[order]
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def fingerprint(model: nn.Module) -> str:
    """Equal on two ranks exactly when every bit of every parameter is."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["talweg", "gloo"], default="talweg")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=120, help="images per rank and step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="where rank 0 writes the result")
    options = parser.parse_args()

    torch.set_num_threads(1)
    if options.backend == "talweg":
        import talweg.torch  # noqa: F401  (registers the backend)
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()

    def say(text: str) -> None:
        if rank == 0:
            print(f"{options.backend}: {text}", flush=True)

    train_images, train_labels, test_images, test_labels = digits(options.seed)
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    parameters = sum(p.numel() for p in model.parameters())
    say(f"{size} workers, {parameters / 1e6:.1f} million parameters, {len(train_labels)} images, {options.steps} steps")
    predicted_s = None
    if options.backend == "talweg":
        plan = talweg.torch.backend().explain("all_reduce", parameters, "f32")
        say(f"gradients by {plan}")
        predicted_s = float(re.search(r"predicted (\S+) ms", plan)[1]) / 1e3

    order = torch.Generator().manual_seed(options.seed)
    queue = torch.empty(0, dtype=torch.long)

    def next_batch() -> torch.Tensor:
        """Every rank draws the same shuffled stream of images and takes its own part of the next stretch."""
        nonlocal queue
        stretch = options.batch * size
        while len(queue) < stretch:
            queue = torch.cat([queue, torch.randperm(len(train_labels), generator=order)])
        mine, queue = queue[rank * options.batch : (rank + 1) * options.batch], queue[stretch:]
        return mine

    def gradients(batch: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(train_images[batch]), train_labels[batch])
        loss.backward()
        return loss.detach()

    # Computing alone: the same forward and backward pass with DDP told not to synchronise. What a real step
    # takes longer than this is time in synchronisation: communication that did not hide behind computing.
    computing = []
    with model.no_sync():
        for _ in range(4):
            start = time.perf_counter()
            gradients(torch.arange(options.batch))
            optimizer.zero_grad()
            computing.append(time.perf_counter() - start)
    compute_s = statistics.median(computing[1:])

    dist.barrier()
    steps = []
    for step in range(options.steps):
        batch = next_batch()
        start = time.perf_counter()
        loss = gradients(batch)
        synchronised = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        steps.append((time.perf_counter() - start, synchronised - start))
        say(f"step {step + 1:2d} of {options.steps}: loss {loss.item():.3f}, {steps[-1][0]:.2f} s")

    # All gradients in one call, while nobody computes: what predictions are about.
    flat = torch.ones(parameters)
    calls = []
    for _ in range(3):
        flat.fill_(rank)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(flat)
        calls.append(time.perf_counter() - start)
    if not (flat == size * (size - 1) / 2).all():
        sys.exit(f"{options.backend}: rank {rank}: a sum is wrong")

    with torch.no_grad():
        scores = model.module(test_images)
    accuracy = (scores.argmax(1) == test_labels).float().mean().item()
    loss = nn.functional.cross_entropy(scores, test_labels).item()
    fingerprints: list[str] = [""] * size
    dist.all_gather_object(fingerprints, fingerprint(model.module))
    # The first step sets up connections and buckets, whatever the backend.
    settled = steps[1:] or steps
    result = {
        "backend": options.backend,
        "workers": size,
        "parameters": parameters,
        "steps": options.steps,
        "test_accuracy": accuracy,
        "test_loss": loss,
        "step_s": statistics.median(s for s, _ in settled),
        "sync_s": max(0.0, statistics.median(s for _, s in settled) - compute_s),
        "all_reduce_s": statistics.median(calls),
        "all_reduce_predicted_s": predicted_s,
        "fingerprints": fingerprints,
        "replicas_equal": len(set(fingerprints)) == 1,
    }
    say(f"test accuracy {accuracy:.1%}, loss {loss:.3f}; replicas are "
        f"{'bit-equal' if result['replicas_equal'] else 'NOT EQUAL'}")  # fmt: skip
    if rank == 0 and options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    dist.destroy_process_group()
    return 0 if result["replicas_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
