"""What compressed gradients have left unsent: a float32 tensor for each parameter, which in every bucket lie in a row."""

from __future__ import annotations

import torch

Key = tuple[tuple[int, int], ...]  # (the parameter's number, its elements) in the order of a bucket


class Residuals:
    """Keeps to the parameters, however buckets are put together anew: what lay in one row is then copied to another. A step
    may be undone until the next one begins: each row is copied before it is changed."""

    def __init__(self) -> None:
        self._of: dict[int, torch.Tensor] = {}
        self._rows: dict[Key, torch.Tensor] = {}
        self._before: dict[Key, torch.Tensor] = {}  # rows as they were when the step began
        self._changed: set[Key] = set()  # of these, those that this step has asked for

    def row(self, key: Key) -> torch.Tensor:
        """Those of a bucket, one behind the other, to be changed; zeros where a parameter has none yet. Raises ValueError
        where one has another size than its parameter."""
        found = self._rows.get(key)
        if found is None:
            found = self._put_together(key)
        if key not in self._before:
            self._before[key] = torch.empty_like(found)
        self._before[key].copy_(found)
        self._changed.add(key)
        return found

    def settle(self, undo: bool) -> None:
        """The step has ended: what it has changed stays so, or is as it was before."""
        if undo:
            for key in self._changed & self._rows.keys():
                self._rows[key].copy_(self._before[key])
        self._changed = set()

    def _put_together(self, key: Key) -> torch.Tensor:
        parts = []
        for number, count in key:
            part = self._of.get(number)
            if part is not None and part.numel() != count:
                raise ValueError(f"the residual of parameter {number} has {part.numel()} elements, but {count} are needed: "
                                 "it was saved for another model")
            parts.append(torch.zeros(count) if part is None else part)
        row = torch.cat(parts) if parts else torch.zeros(0)
        numbers = {number for number, _ in key}
        self._rows = {old: kept for old, kept in self._rows.items() if numbers.isdisjoint(n for n, _ in old)}
        self._before = {old: kept for old, kept in self._before.items() if old in self._rows}
        self._rows[key] = row
        for (number, _), part in zip(key, row.split([count for _, count in key])):
            self._of[number] = part
        return row

    def saved(self) -> dict[int, torch.Tensor]:
        """Copies, by number."""
        return {number: part.clone() for number, part in self._of.items()}

    def restore(self, saved: dict[int, torch.Tensor]) -> None:
        self._of = {number: part.detach().to("cpu", torch.float32).flatten().clone() for number, part in saved.items()}
        self._rows = {}
        self._before, self._changed = {}, set()
