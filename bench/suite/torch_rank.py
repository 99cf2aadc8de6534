"""One rank of the PyTorch scenarios; prints one line of JSON on rank 0.

    torch_rank.py all_reduce BACKEND BOARD BYTES SECONDS
    torch_rank.py ddp        BACKEND BOARD LAYERSxWIDTH:BUCKET_MB STEPS

Rank, size and rendezvous come from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""
import json
import os
import statistics
import sys
import time

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


def main():
    job, backend, board_path, first, second = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    if backend == "talweg":
        import talweg.torch  # noqa: F401  registers the backend
    dist.init_process_group(backend)
    board = Board(board_path, rank, size)
    result = {"all_reduce": all_reduce, "ddp": ddp}[job](board, rank, size, first, second)
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
