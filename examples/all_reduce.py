"""The smallest NumPy program over Talweg:  talweg run -n 4 -- python examples/all_reduce.py"""

import numpy as np

import talweg

group = talweg.init()
gradient = np.full(1_000_000, group.rank, dtype=np.float32)

work = group.all_reduce(gradient, op=talweg.AVG, async_op=True)  # in flight: compute something meanwhile
work.wait()

if group.rank == 0:
    print(f"average over {group.size} ranks: {gradient[0]:.1f}")
