"""Records the traces of this folder: two ranks of a small network under DistributedDataParallel and gloo.

    python3 record.py FOLDER            on the CPU
    python3 record.py FOLDER cuda       on a GPU that both ranks share

On the CPU it writes ddp0.json.gz and ddp1.json.gz (PyTorch's profiler, two steps) and et0.json.gz (the execution trace of
rank 0), on a GPU gpu0.json.gz and gpu1.json.gz (three steps), and prints the sizes of the network's parameters, in the
order of its layers.
"""

import gzip
import os
import pathlib
import sys

import torch
from torch import distributed, multiprocessing, nn, optim
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

RANKS = 2


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 200),
        nn.ReLU(), nn.Linear(200, 10))


def run(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.05)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    execution = ExecutionTraceObserver()
    if rank == 0:
        execution.register_callback(f"{folder}/et0.json")
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=2, active=2, repeat=1),
                 execution_trace_observer=execution if rank == 0 else None,
                 on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/ddp{rank}.json")) as profiler:
        for _ in range(5):
            samples, labels = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))
            optimizer.zero_grad()
            loss(model(samples), labels).backward()
            optimizer.step()
            profiler.step()
    distributed.destroy_process_group()


def device_network():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(8), nn.Flatten(), nn.Linear(64 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, 10))


def run_on_device(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(device_network().cuda(), bucket_cap_mb=2)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    samples, labels = torch.randn(256, 3, 64, 64).pin_memory(), torch.randint(10, (256,)).pin_memory()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,
                 schedule=schedule(wait=8, warmup=4, active=3, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/gpu{rank}.json")) as profiler:
        for _ in range(15):
            optimizer.zero_grad()
            loss(model(samples.cuda(non_blocking=True)), labels.cuda(non_blocking=True)).backward()
            optimizer.step()
            profiler.step()
    distributed.destroy_process_group()


def main(folder, device="cpu"):
    if device == "cpu":
        multiprocessing.spawn(run, (folder,), nprocs=RANKS)
        names = [f"ddp{rank}" for rank in range(RANKS)] + ["et0"]
    else:
        multiprocessing.spawn(run_on_device, (folder,), nprocs=RANKS)
        names = [f"gpu{rank}" for rank in range(RANKS)]
    for name in names:
        plain = pathlib.Path(folder, name + ".json")
        # Where it was recorded is nobody's business.
        text = plain.read_text().replace(str(plain), plain.name)
        pathlib.Path(folder, name + ".json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        plain.unlink()
    of = network if device == "cpu" else device_network
    print([parameter.numel() for parameter in of().parameters()])


if __name__ == "__main__":
    main(*sys.argv[1:])
