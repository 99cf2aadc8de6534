"""One of four ranks whose network has an aggregator, which is no rank; started by `talweg run`."""

import os

import numpy as np

import talweg

with talweg.init() as group:
    assert group.size == int(os.environ["WORLD_SIZE"]) == 4, group.size
    assert "aggregators: agg\n" in group.describe(), group.describe()
    plan = group.explain("all_reduce", 1_000_000, "f32")
    assert " through agg" in plan, plan
    data = np.full(1_000_000, group.rank + 1, dtype=np.float32)
    group.all_reduce(data)
    assert np.all(data == 10)
    parts = np.zeros(group.size)
    group.all_gather(np.full(1, float(group.rank)), parts)
    assert parts.tolist() == [0, 1, 2, 3]
