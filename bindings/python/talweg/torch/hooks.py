"""Communication hooks for DDP that send less: gradients as halves, as 8-bit or 4-bit integers, or the largest alone. Or that wait
for less: bounded_loss().

    model = DistributedDataParallel(...)
    state = talweg.torch.hooks.int8()
    talweg.torch.hooks.register(model, state)   # or model.register_comm_hook(state, talweg.torch.hooks.hook)
    ...
    torch.save({"model": ..., "compression": state.state_dict()}, f"checkpoint-{rank}")   # every rank its own

What a rank does not send it keeps, and adds to its next gradient (error feedback), so that nothing is lost in the long run:
state_dict() has it. Residuals belong to parameters, and each parameter is compressed by itself, so DDP may rebuild its
buckets. All ranks have the same bits. A NaN or an infinity on one rank reaches all; the residuals of all ranks are
then what they were before that step, as GradScaler throws away all that was sent in it. Sparse gradients are summed exactly. statistics()
tells how much less was sent. All ranks make their states in the same order. Works over every backend for CPU tensors that has
all-to-all, all-gather and all-reduce, gloo too; bounded_loss(), which sends all and lets a part be lost, over talweg alone.

Sources: Seide et al., 1-bit SGD (Interspeech 2014) and Karimireddy et al. (ICML 2019) for error feedback; Alistarh et al., QSGD
(NeurIPS 2017); Stich et al., Sparsified SGD with memory (NeurIPS 2018); Lin et al., Deep Gradient Compression (ICLR 2018); Fei
et al., OmniReduce (SIGCOMM 2021) for blocks.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from talweg.torch import _bounded, _compression
from talweg.torch._compression import Compression

__all__ = ["Compression", "auto", "bf16", "block_top_k", "bounded_loss", "fp16", "hook", "int4", "int8", "random_k", "register",
           "threshold", "top_k"]


def hook(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For model.register_comm_hook(state, hook), with the state that one of the functions below has made."""
    if not isinstance(state, Compression):
        raise TypeError(f"talweg.torch.hooks.hook takes a state that talweg.torch.hooks.int8() or its like has made, not {state!r}")
    return state.run(bucket)


def register(model: DistributedDataParallel, state: Compression) -> None:
    """Registers the hook; residuals are then saved under the parameters' names."""
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"register() takes a DistributedDataParallel, not {type(model).__name__}")
    if not isinstance(state, Compression):
        raise TypeError(f"register() takes a state that talweg.torch.hooks.int8() or its like has made, not {state!r}")
    if state.registered:
        raise ValueError(f"register: {state} is registered already: expected a state of its own for each model")
    if model._comm_hooks:
        raise ValueError("register: this model has a communication hook already: DDP takes one, and two cannot be combined")
    state.name_parameters(model.module.named_parameters())
    model.register_comm_hook(state, hook)
    state.registered = True


def fp16(process_group: dist.ProcessGroup | None = None) -> Compression:
    """Gradients travel as float16: half of the bytes. Sums are computed in float32, rounded once."""
    return _compression.Sharded("fp16()", process_group, "f16", 256, True, None)


def bf16(process_group: dist.ProcessGroup | None = None) -> Compression:
    """Gradients travel as bfloat16: half of the bytes. Sums are computed in float32, rounded once."""
    return _compression.Sharded("bf16()", process_group, "bf16", 256, True, None)


def int8(block: int = 256, stochastic: bool = False, seed: int = 0, process_group: dist.ProcessGroup | None = None) -> Compression:
    """Gradients travel as 8-bit integers, `block` of them (a multiple of 16, up to 1024) with a scale of 4 bytes."""
    return _integers("int8", block, stochastic, seed, process_group)


def int4(block: int = 64, stochastic: bool = False, seed: int = 0, process_group: dist.ProcessGroup | None = None) -> Compression:
    """Gradients travel as 4-bit integers, `block` of them (a multiple of 16, up to 1024) with a scale of 4 bytes."""
    return _integers("int4", block, stochastic, seed, process_group)


def top_k(ratio: float, process_group: dist.ProcessGroup | None = None, by_switch: bool = False) -> Compression:
    """Of every parameter the elements of largest magnitude travel, 8 bytes each: `ratio` of them, at least one.

    by_switch: to the switch that sums for the process group, and not to every other rank: with TALWEG_SWITCH and TALWEG_ALGO=switch,
        and TALWEG_SWITCH_SPARSE, which is pairs, 1 or auto (with auto TALWEG_ALGO may be empty). Sums are those of False but
        for the order in which floats are added, and for what TALWEG_SWITCH_EXACT or TALWEG_SWITCH_FORMAT rounds, which no
        residual keeps. Where the switch is not there, and with auto where trees are quicker, buckets go whole. With 1 the
        switch's blocks travel, for single elements too, of which a warning tells. Raises ValueError for other settings."""
    return _compression.Top(f"top_k({_ratio(ratio)})", process_group, ratio, 1, bool(by_switch))


def random_k(ratio: float, seed: int = 0, process_group: dist.ProcessGroup | None = None) -> Compression:
    """Of every parameter any elements travel, 4 bytes each, the same ones on all ranks: `ratio` of them, at least one."""
    return _compression.Randomly(f"random_k({_ratio(ratio)}, seed={_seed(seed)})", process_group, ratio, seed)


def threshold(t: float, process_group: dist.ProcessGroup | None = None, by_switch: bool = False) -> Compression:
    """Elements travel, 8 bytes each, whose magnitude in a rank's own gradient with its residual is `t` or more. by_switch: as
    top_k() says; ranks need not tell each other first how many theirs are."""
    if not _is_number(t) or not 0 < t < math.inf:
        raise ValueError(f"threshold: t must be a number above 0, not {t!r}")
    return _compression.AboveThreshold(f"threshold({t})", process_group, t, bool(by_switch))


def block_top_k(ratio: float, block: int = 256, process_group: dist.ProcessGroup | None = None,
                by_switch: bool = False) -> Compression:
    """Of every parameter the blocks of largest L2 norm travel, 4 bytes an element and 4 a block: `ratio` of them, at least
    one. A block may be an embedding's row. by_switch: as top_k() says."""
    return _compression.Top(f"block_top_k({_ratio(ratio)}, block={_whole(block)})", process_group, ratio, block, bool(by_switch))


def auto(block: int = 64, process_group: dist.ProcessGroup | None = None) -> Compression:
    """Nothing is lost: every bucket goes whole, as its elements that are not zero, or as its blocks that are not, whichever
    is expected to take least time by what it had in the steps before."""
    return _compression.Automatic(f"auto(block={_whole(block)})", process_group, block)


def bounded_loss(p: float = 0.01, policy: str = "zero", packet_bytes: int = 0, guard: float | None = None, log_every: int = 100,
                 process_group: dist.ProcessGroup | None = None, droppable: float | tuple[float, float] = 0.0,
                 keep_important: bool = False, queues: int = 1, back_first: bool = False,
                 servers: Sequence[int] | None = None, p_sender: float | None = None, p_call: float | None = None,
                 priority: int = 0) -> Compression:
    """Gradients travel whole, and of each bucket nobody waits for the last packets: up to the part `p` (0 to 0.5) of what one
    rank sends another may be missing in the average. Over talweg alone. docs/bounded-loss.md says when a loss is safe.

    policy: "zero" counts what is missing as zero, and keeps it for the next step; "rescale" averages what has come
    packet_bytes: as help(talweg.Group.bounded_sums) says
    guard: such as 0.5, the relative change of the gradients' norm within 10 steps from which on the next 10 steps lose
        nothing, as do those until two norms are known; None: no guard
    droppable, keep_important, queues, back_first: what switches may do with packets, as help(talweg.Group.bounded_sums) says;
        two numbers: of the model's first layers and of its last ones. A bucket's layers say its queue, all of it
    servers: ranks of the process group that sum, such as those with the fastest links; None: all
    p_sender: 0 to p, the part that may be missing of what one rank sends another on average over buckets of one size, while one
        bucket may lack p of it; None: p
    p_call: 0 to p, the part that may be missing of what all ranks together send one in a bucket, and so in a step; None: p
    priority: 0 to 7, of what buckets send over the group's connections, as help(talweg.BoundedSums.all_reduce) says
    log_every: so many steps, after which what was lost of each parameter is logged ("talweg.torch.hooks", info); 0: never

    The state's report() says what was lost of each parameter. The first 20 sums of each size lose nothing."""
    if not _is_number(p) or not 0 <= p <= 0.5:
        raise ValueError(f"bounded_loss: p must be from 0 to 0.5, not {p!r}")
    for name, limit in (("p_sender", p_sender), ("p_call", p_call)):
        if limit is not None and (not _is_number(limit) or not 0 <= limit <= p):
            raise ValueError(f"bounded_loss: {name} must be from 0 to p, which is {p!r}, or None, not {limit!r}")
    if policy not in ("zero", "rescale"):
        raise ValueError(f"bounded_loss: policy must be 'zero' or 'rescale', not {policy!r}")
    if guard is not None and (not _is_number(guard) or not 0 < guard < math.inf):
        raise ValueError(f"bounded_loss: guard must be a number above 0 or None, not {guard!r}")
    for name, number in (("packet_bytes", packet_bytes), ("log_every", log_every)):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
            raise ValueError(f"bounded_loss: {name} must be a whole number of at least 0, not {number!r}")
    both = droppable if isinstance(droppable, tuple) else (droppable, droppable)
    if len(both) != 2 or not all(_is_number(part) and 0 <= part <= 1 for part in both):
        raise ValueError(f"bounded_loss: droppable must be from 0 to 1, or two such numbers, not {droppable!r}")
    if not isinstance(queues, int) or isinstance(queues, bool) or not 1 <= queues <= 7:
        raise ValueError(f"bounded_loss: queues must be a whole number from 1 to 7, not {queues!r}")
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 7:
        raise ValueError(f"bounded_loss: priority must be a whole number from 0 to 7, not {priority!r}")
    if keep_important and max(both) <= 0:
        raise ValueError("bounded_loss: keep_important where no packet is droppable: nothing could be missing")
    summing = [] if servers is None else list(servers)
    if servers is not None and not summing or not all(isinstance(rank, int) and not isinstance(rank, bool) for rank in summing):
        raise ValueError(f"bounded_loss: servers must be ranks, or None for all, not {servers!r}")
    return _bounded.Bounded(f"bounded_loss(p={p}, policy={policy!r})", process_group, p, policy, packet_bytes, guard, log_every,
                            both, bool(keep_important), queues, bool(back_first), summing, p_sender, p_call, priority)


def _integers(code: str, block: int, stochastic: bool, seed: int, process_group: dist.ProcessGroup | None) -> Compression:
    if _whole(block) % 16 != 0 or not 16 <= block <= 1024:
        raise ValueError(f"{code}: block must be a multiple of 16 from 16 to 1024, not {block}")
    description = f"{code}(block={block}, stochastic={bool(stochastic)}, seed={_seed(seed)})"
    return _compression.Sharded(description, process_group, code, block, True, seed if stochastic else None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ratio(ratio: float) -> float:
    if not _is_number(ratio) or not 0 < ratio <= 1:
        raise ValueError(f"ratio must be above 0 and up to 1, not {ratio!r}")
    return ratio


def _whole(block: int) -> int:
    if not isinstance(block, int) or isinstance(block, bool) or not 0 < block < 2**31:
        raise ValueError(f"block must be a whole number above 0, not {block!r}")
    return block


def _seed(seed: int) -> int:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be a whole number from 0 to 2**64 - 1, not {seed!r}")
    return seed
