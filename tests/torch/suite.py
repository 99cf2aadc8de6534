"""Runs PyTorch's own DistributedTest suite over Talweg and lists what passed and what failed.

    PYTHONPATH=build/python .venv/bin/python tests/torch/suite.py [--world-size 4] [--choice gloo|mpi] [-k WORDS] [--json FILE]

The suite asks for the name of the backend in many places and knows a fixed list of names, so it is told the name of
one whose tests are wanted (gloo's; or mpi's, which has the CPU all-to-all tests), while init_process_group makes
Talweg's. Ranks are forked: spawned ones would import torch anew for every test.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
import unittest

# What is tied to a built-in backend: torch answers these calls for gloo only, DDP's log names every plug-in "custom",
# and the suite is told another name than the group's.
TIED_TO_A_NAME = {
    "test_ddp_logging_data_cpu",
    "test_get_backend",
    "test_monitored_barrier_allreduce_hang",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
    "test_monitored_barrier_wait_all_ranks",
}


def load(choice: str, backend: str, world_size: int, folder: str) -> type[unittest.TestCase]:
    os.environ.update(
        BACKEND=choice, WORLD_SIZE=str(world_size), TEMP_DIR=folder, OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo", TALWEG_SOCKET_IFNAME="lo",
    )
    import torch
    import torch.testing._internal.distributed.distributed_test as suite

    if backend == "talweg":
        import talweg.torch  # noqa: F401
    init = torch.distributed.init_process_group

    def init_with_tested_backend(*args, **kwargs):
        return init(*args, **{**kwargs, "backend": backend})

    suite.dist.init_process_group = init_with_tested_backend

    class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            # As the parent's, but with forked ranks.
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world-size", type=int, default=4)
    parser.add_argument("--choice", choices=["gloo", "mpi"], default="gloo", help="whose tests to choose")
    parser.add_argument("--backend", default="talweg", help="the backend to test")
    parser.add_argument("-k", default="", help="only tests whose name contains this")
    parser.add_argument("--json", help="write the lists there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The suite prints each rank's exit and pages of warnings: only the verdicts are of interest.
        cls = load(options.choice, options.backend, options.world_size, folder)
        names = [n for n in unittest.TestLoader().getTestCaseNames(cls) if options.k in n]
        lists: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": [], "tied_to_a_name": []}
        start = time.monotonic()
        for name in names:
            if options.backend == "talweg" and name in TIED_TO_A_NAME:
                lists["tied_to_a_name"].append(name)
                continue
            result = unittest.TextTestRunner(stream=io.StringIO()).run(cls(name))
            verdict = "skipped" if result.skipped else "passed" if result.wasSuccessful() else "failed"
            lists[verdict].append(name)
            if verdict == "failed":
                print(f"FAILED {name}\n{(result.failures + result.errors)[0][1]}", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.backend}, {options.choice}'s tests, {options.world_size} ranks: {len(lists['passed'])} passed, "
          f"{len(lists['failed'])} failed, {len(lists['tied_to_a_name'])} tied by torch to another name, "
          f"{len(lists['skipped'])} skipped in {seconds:.0f} s")
    for name in lists["failed"]:
        print(f"  failed: {name}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({**lists, "seconds": seconds}, file, indent=1)
    return 1 if lists["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
