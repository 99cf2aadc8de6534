"""Runs the body of a test on several ranks: forked processes, each in a process group over Talweg on loopback."""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import time
import traceback
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TALWEG_SOCKET_IFNAME", "lo")

import pytest  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import talweg.torch  # noqa: E402, F401

LIMIT_S = 90  # for one test body; a hang must not stop the run


def _run_rank(rank, size, path, body, arguments, timeout, failures):
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "talweg", store=dist.FileStore(path, size), rank=rank, world_size=size, timeout=timeout
        )
        body(*arguments)
        dist.destroy_process_group()
    except BaseException:
        failures.put((rank, traceback.format_exc()))
        # The others must not wait for this rank's collectives until their deadline.
        failures.close()
        failures.join_thread()
        os._exit(1)
    # Python's exit would run the parent's hooks a second time.
    os._exit(0)


def run(size, body, arguments=(), timeout=timedelta(seconds=30)):
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        processes = [
            context.Process(target=_run_rank, args=(rank, size, path, body, arguments, timeout, failures))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        deadline = time.monotonic() + LIMIT_S
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        hung = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for rank in hung:
            processes[rank].kill()
            processes[rank].join()
    texts = [f"ranks {hung} of {size} were still running after {LIMIT_S} s"] if hung else []
    while not failures.empty():
        rank, text = failures.get()
        texts.append(f"rank {rank} of {size}:\n{text}")
    bad = [rank for rank, process in enumerate(processes) if process.exitcode != 0]
    if bad:  # a rank that crashed leaves no text
        texts.append(f"ranks {bad} of {size} ended with {[processes[rank].exitcode for rank in bad]}")
    if texts:
        pytest.fail("\n".join(texts), pytrace=False)


def on_ranks(*sizes, timeout=timedelta(seconds=30)):
    """Decorates a test whose body is to run on each of several ranks, once for every size given."""

    def decorate(body):
        @functools.wraps(body)
        def test(*positional, **named):
            for size in sizes:
                run(size, functools.partial(body, **named), positional, timeout)

        return test

    return decorate
