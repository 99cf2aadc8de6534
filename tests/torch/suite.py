"""Runs PyTorch's own DistributedTest suite over Talweg and lists what passed and what failed.

    PYTHONPATH=build/python .venv/bin/python tests/torch/suite.py [--world-size 4] [--choice gloo|mpi] [-k WORDS] [--json FILE]

The suite chooses tests by the name of the backend, out of a fixed list of names, when it is imported: it is imported
for gloo (or for mpi, which has the CPU all-to-all tests) and told afterwards that the backend is Talweg. Ranks are
forked: spawned ones would import torch anew for every test.
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

# What gloo passes with torch 2.13; mpi's all-to-all tests, which it is never given, are the same at every size.
MUST_PASS = {("gloo", 3): 90, ("gloo", 4): 93, ("gloo", 8): 111}
MUST_PASS |= {("mpi", size): 12 for size in (3, 4, 8)}
# Tests that this backend need not pass, with the reason of each.
EXCEPTIONS: dict[str, str] = {}


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
    # These lists say for which backends the suite looks for the collectives in a profile.
    for profiled in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        profiled.append(backend)

    class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            # As the parent's, but with forked ranks.
            super().setUp()
            # These tests ask for the CPU model of the backends that they know; the others name the one that is used.
            known_only = "accumulate_gradients" in self._testMethodName
            suite.BACKEND = choice if known_only else backend
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world-size", type=int, default=4)
    parser.add_argument("--choice", choices=["gloo", "mpi"], default="gloo", help="whose tests to choose")
    parser.add_argument("--backend", default="talweg", help="the backend to test")
    parser.add_argument("-k", default="", help="only tests whose name contains this; mpi: all_to_all")
    parser.add_argument("--json", help="write the lists there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The suite prints each rank's exit and pages of warnings: only the verdicts are of interest.
        cls = load(options.choice, options.backend, options.world_size, folder)
        words = options.k or ("all_to_all" if options.choice == "mpi" else "")
        names = [n for n in unittest.TestLoader().getTestCaseNames(cls) if words in n]
        lists: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": [], "excepted": []}
        slowest: list[tuple[float, str]] = []
        start = time.monotonic()
        for name in names:
            if options.backend == "talweg" and name in EXCEPTIONS:
                lists["excepted"].append(name)
                continue
            begun = time.monotonic()
            result = unittest.TextTestRunner(stream=io.StringIO()).run(cls(name))
            verdict = "skipped" if result.skipped else "passed" if result.wasSuccessful() else "failed"
            lists[verdict].append(name)
            slowest.append((time.monotonic() - begun, name))
            if verdict == "failed":
                print(f"FAILED {name}\n{(result.failures + result.errors)[0][1]}", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.backend}, {options.choice}'s tests, {options.world_size} ranks: {len(lists['passed'])} passed, "
          f"{len(lists['failed'])} failed, {len(lists['excepted'])} excepted, {len(lists['skipped'])} skipped "
          f"in {seconds:.0f} s")
    for name in lists["failed"]:
        print(f"  failed: {name}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({**lists, "seconds": seconds, "slowest": sorted(slowest, reverse=True)}, file, indent=1)
    expected = 0 if options.k else MUST_PASS.get((options.choice, options.world_size), 0)
    missing = expected - len(lists["passed"]) - len(lists["excepted"])
    if missing > 0:
        print(f"  {expected} must pass: {missing} were not run or failed")
    return 1 if lists["failed"] or missing > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
