"""Runs the body of a test on several ranks: forked processes, each with a group over loopback."""

import functools
import multiprocessing
import os
import tempfile
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TALWEG_SOCKET_IFNAME", "lo")

import pytest  # noqa: E402

import talweg  # noqa: E402

LIMIT_S = 60


def _run_rank(rank, size, path, body, arguments, failures):
    try:
        with talweg.init(rank=rank, size=size, store=f"file:{path}", timeout=20, **arguments) as group:
            body(group)
    except BaseException:
        failures.put(f"rank {rank}:\n{traceback.format_exc()}")
        failures.close()
        failures.join_thread()
        os._exit(1)
    os._exit(0)


def run_ranks(size, body, **arguments):
    """Runs `body`, given its group, on each of `size` forked ranks, which join with these arguments."""
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        given = (size, os.path.join(folder, "store"), body, arguments, failures)
        processes = [context.Process(target=_run_rank, args=(rank, *given)) for rank in range(size)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(LIMIT_S)
            if process.is_alive():
                process.kill()
                process.join()
    texts = []
    while not failures.empty():
        texts.append(failures.get())
    if texts or any(process.exitcode != 0 for process in processes):
        codes = [process.exitcode for process in processes]
        pytest.fail("\n".join([f"exit codes {codes}", *texts]), pytrace=False)


def on_ranks(size):
    """Decorates a test whose body, given its group, is to run on each of `size` forked ranks."""

    def decorate(body):
        # Not functools.wraps: pytest would take the body's argument for a fixture.
        @functools.wraps(body, assigned=("__name__", "__doc__", "__module__"), updated=())
        def test():
            run_ranks(size, body)

        del test.__wrapped__
        return test

    return decorate
