"""One rank of the PyTorch scenarios; prints one line of JSON on rank 0.

    torch_rank.py all_reduce  BACKEND BOARD BYTES SECONDS
    torch_rank.py collectives BACKEND BOARD BYTES SECONDS
    torch_rank.py ddp         BACKEND BOARD LAYERSxWIDTH:BUCKET_MB STEPS
    torch_rank.py new_group   BACKEND BOARD BYTES GROUPS

Rank, size and rendezvous come from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""
import json
import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist

from board import Board

BATCH = 8  # little arithmetic, so that the network matters
WARM_UP_STEPS = 3


def all_reduce(board, rank, size, bytes_text, seconds_text):
    expected = float(size * (size + 1) // 2)
    data = torch.empty(int(bytes_text) // 4)

    def batch(calls):
        data.fill_(float(rank + 1))
        board.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(data)
        spent = time.perf_counter() - start
        # Every further call in place multiplies by the number of ranks.
        wrong = int((data != expected * float(size) ** (calls - 1)).sum())
        return spent / calls, wrong

    warm = [board.max_over_ranks([batch(1)[0]])[0] for _ in range(5)]
    out = {"wrong": 0, "bytes": int(bytes_text)}
    for mode, calls in (("isolated", 1), ("stream", 8)):
        iterations = max(3, min(201, int(float(seconds_text) / (warm[-1] * calls))))
        results = [batch(calls) for _ in range(iterations)]
        times = board.max_over_ranks([r[0] for r in results])
        out["wrong"] += int(board.max_over_ranks([sum(r[1] for r in results)])[0])
        out[mode] = {"iterations": iterations, "min_ms": 1e3 * min(times), "median_ms": 1e3 * statistics.median(times)}
    return out


def operations(rank, size, elements):
    """name: (call, what must hold after it)."""
    part = elements // size
    own, whole, other = torch.empty(part), torch.empty(elements), torch.empty(elements)
    parts = list(other.view(size, part))
    total = float(size * (size + 1) // 2)
    by_rank = torch.arange(1.0, size + 1).repeat_interleave(part)
    at_root = parts if rank == 0 else None

    def fill():
        own.fill_(float(rank + 1))
        whole.fill_(float(rank + 1))
        other.copy_(by_rank) if rank == 0 else other.zero_()

    return fill, {
        "all_reduce": (lambda: dist.all_reduce(whole), lambda: bool((whole == total).all())),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(own, whole), lambda: bool((own == total).all())),
        "all_gather": (lambda: dist.all_gather_into_tensor(other, own), lambda: torch.equal(other, by_rank)),
        "all_to_all": (lambda: dist.all_to_all_single(other, whole), lambda: torch.equal(other, by_rank)),
        "broadcast": (lambda: dist.broadcast(whole, 0), lambda: bool((whole == 1).all())),
        "reduce": (lambda: dist.reduce(whole, 0), lambda: rank != 0 or bool((whole == total).all())),
        "gather": (lambda: dist.gather(own, at_root, 0), lambda: rank != 0 or torch.equal(other, by_rank)),
        "scatter": (lambda: dist.scatter(own, at_root, 0), lambda: bool((own == rank + 1).all())),
    }


def collectives(board, rank, size, bytes_text, seconds_text):
    fill, all_operations = operations(rank, size, int(bytes_text) // 4)
    out = {"wrong": 0, "bytes": int(bytes_text), "median_ms": {}}
    for name, (call, holds) in all_operations.items():
        def once():
            fill()
            board.barrier()
            start = time.perf_counter()
            call()
            spent = time.perf_counter() - start
            return spent, 0 if holds() else 1

        warm = [board.max_over_ranks([once()[0]])[0] for _ in range(3)]
        results = [once() for _ in range(max(5, min(101, int(float(seconds_text) / warm[-1]))))]
        out["median_ms"][name] = 1e3 * statistics.median(board.max_over_ranks([r[0] for r in results]))
        out["wrong"] += int(board.max_over_ranks([sum(r[1] for r in results)])[0])
    return out


def ddp(board, rank, _size, model_text, steps_text):
    shape, bucket_mb = model_text.split(":")
    count, width = (int(part) for part in shape.split("x"))
    torch.manual_seed(7)
    layers = [layer for _ in range(count) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=float(bucket_mb))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    inputs, wanted = torch.randn(BATCH, width), torch.randn(BATCH, width)
    times = []
    for _ in range(WARM_UP_STEPS + int(steps_text)):
        board.barrier()
        start = time.perf_counter()
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
    times = board.max_over_ranks(times)[WARM_UP_STEPS:]
    total = sum(float(p.double().abs().sum()) for p in model.parameters())
    most = board.max_over_ranks([total, -total])
    return {"isolated": {"iterations": len(times), "min_ms": 1e3 * min(times),
                         "median_ms": 1e3 * statistics.median(times)},
            "wrong": 0 if most[0] == -most[1] else 1}  # replicas have drifted apart


def new_group(board, rank, size, bytes_text, groups_text):
    """Groups of all ranks, one after the other: what making one takes, and its first call."""
    data, expected = torch.empty(int(bytes_text) // 4), float(size * (size + 1) // 2)
    made, first, wrong = [], [], 0
    for _ in range(int(groups_text)):
        data.fill_(float(rank + 1))
        board.barrier()
        start = time.perf_counter()
        group = dist.new_group()
        made.append(time.perf_counter() - start)
        board.barrier()
        start = time.perf_counter()
        dist.all_reduce(data, group=group)
        first.append(time.perf_counter() - start)
        wrong += int((data != expected).sum())
        board.barrier()
        dist.destroy_process_group(group)
    return {"wrong": int(board.max_over_ranks([wrong])[0])} | {
        name: {"median_ms": 1e3 * statistics.median(board.max_over_ranks(times))} for name, times in (("made", made), ("first", first))}


def main():
    job, backend, board_path, first, second = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # names that PyTorch renames
    if backend == "talweg":
        import talweg.torch  # noqa: F401  registers the backend
    dist.init_process_group(backend)
    board = Board(board_path, rank, size)
    jobs = {"all_reduce": all_reduce, "collectives": collectives, "ddp": ddp, "new_group": new_group}
    result = jobs[job](board, rank, size, first, second)
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
