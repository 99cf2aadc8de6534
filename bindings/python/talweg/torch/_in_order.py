"""Lets ranks make the second of two collectives in one order, whichever of the first ones is done first on each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch


class InOrder:
    """Steps run in the order in which they took their tickets, on the thread that brings the one that was missing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given = 0
        self._next = 0
        self._ready: dict[int, Callable[[], None]] = {}

    def ticket(self) -> int:
        with self._lock:
            self._given += 1
            return self._given - 1

    def run(self, ticket: int, step: Callable[[], None]) -> None:
        """`step` must not raise."""
        with self._lock:
            self._ready[ticket] = step
            while self._next in self._ready:
                self._ready.pop(self._next)()
                self._next += 1


class Promise:
    """A future that DDP can wait for, and its end: a tensor or an exception. (An exception that is set on torch's own future
    reaches Python, but not DDP.)"""

    def __init__(self) -> None:
        self._trigger: torch.futures.Future = torch.futures.Future()
        self._value: torch.Tensor | Exception | None = None
        self.future = self._trigger.then(self._resolve)

    def finish(self, compute: Callable[[], torch.Tensor]) -> None:
        """With what `compute` returns or raises."""
        try:
            self._value = compute()
        except Exception as error:
            self._value = error
        self._trigger.set_result(None)

    def fail(self, error: Exception) -> None:
        self._value = error
        self._trigger.set_result(None)

    def _resolve(self, _: torch.futures.Future) -> torch.Tensor:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value
