"""Collective communication for NumPy arrays and anything else with the buffer protocol.

Start N processes that know their rank (`talweg run -n 4 -- python program.py`, torchrun, mpirun, srun), then:

    import numpy, talweg
    group = talweg.init()
    x = numpy.full(1000, group.rank, dtype=numpy.float32)
    group.all_reduce(x)                         # in place; op=talweg.SUM
    work = group.all_reduce(x, op=talweg.MAX, async_op=True)
    work.wait()

What goes wrong is a talweg.Error whose `code` is one word ("timeout", "peer_failed", "mismatch", ...).
`talweg.plan("cluster.yaml")`, `talweg.predict("job.yaml", rate="10Gbit/s", ranks=8)` and `talweg.simulate("cluster.yaml",
bytes="1M..64M")` return what the commands of these names write as JSON; `help(talweg.simulate)` lists their arguments.
For PyTorch: `import talweg.torch`, then `torch.distributed.init_process_group("talweg")`.
"""

from talweg._core import (
    ANY_RANK,
    AVG,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    BoundedSums,
    Error,
    Group,
    LossReport,
    ReduceOp,
    Work,
    __version__,
    init,
    plan,
    predict,
    simulate,
)

__all__ = [
    "ANY_RANK",
    "AVG",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "MAX",
    "MIN",
    "PRODUCT",
    "SUM",
    "BoundedSums",
    "Error",
    "Group",
    "LossReport",
    "ReduceOp",
    "Work",
    "__version__",
    "init",
    "plan",
    "predict",
    "simulate",
]
