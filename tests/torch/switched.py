"""A switch that serves while a test runs, and the program that it is."""

import contextlib
import os
import re
import subprocess

import pytest


def program():
    if "TALWEG_PROGRAM" not in os.environ:
        pytest.skip("TALWEG_PROGRAM does not say where talweg is")
    return os.environ["TALWEG_PROGRAM"]


def had_by_the_switch():
    """Of all ranks, by the switch that serves: blocks that it has summed, each once, however often it came; and bytes of all datagrams."""
    status = subprocess.run([program(), "switch", "status", "--listen", os.environ["TALWEG_SWITCH"]], check=True,
                            stdout=subprocess.PIPE, text=True).stdout  # fmt: skip
    return [sum(int(number) for number in re.findall(rf"^talweg_switch_{counter}_total{{.*}} (\d+)$", status, re.MULTILINE))
            for counter in ("contributions", "received_bytes")]


@contextlib.contextmanager
def served_switch(monkeypatch, sparse="0", algorithm="switch"):
    """Groups that are joined meanwhile have all that it can sum go through it."""
    with subprocess.Popen([program(), "switch", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as switch:
        try:
            monkeypatch.setenv("TALWEG_SWITCH", switch.stdout.readline().split()[2].rstrip(","))
            monkeypatch.setenv("TALWEG_ALGO", algorithm)
            monkeypatch.setenv("TALWEG_SWITCH_SPARSE", sparse)
            yield
        finally:
            switch.kill()
            for name in ("TALWEG_SWITCH", "TALWEG_ALGO", "TALWEG_SWITCH_SPARSE"):
                monkeypatch.delenv(name)
