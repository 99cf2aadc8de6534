"""DistributedDataParallel in all its modes trains over Talweg to what one process, or gloo, comes to."""

import torch
import torch.distributed as dist
from ranks import on_ranks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from training import assert_equal_on_all_ranks, assert_near, batch, flat, loss, network, serial, sgd, train

import talweg.torch

# So small that several buckets are in flight.
BUCKET_MB = 0.01


def parallel(group=None, **options):
    return DistributedDataParallel(network(), process_group=group, bucket_cap_mb=BUCKET_MB, **options)


@on_ranks(2, 4)
def test_every_mode_trains_to_the_parameters_of_one_process():
    expected = serial()
    assert not torch.equal(expected, flat(network()))
    for options in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        got = flat(train(parallel(**options)))
        assert_near(got, expected)
        assert_equal_on_all_ranks(got)


@on_ranks(2, 4)
def test_ranks_that_run_out_of_input_join():
    results = []
    for group in (None, dist.new_group(backend="gloo")):
        model = parallel(group)
        with model.join():
            train(model, steps=3 + dist.get_rank())
        results.append(flat(model))
    assert_equal_on_all_ranks(results[0])
    assert_near(*results)


@on_ranks(2, 4)
def test_gradients_accumulate_without_synchronisation():
    model = parallel()
    with model.no_sync():
        loss(model, 0).backward()
        assert_near(model.module[0].weight.grad, _gradient_of_this_rank(0))
    loss(model, 1).backward()
    reference = network()
    for step in (0, 1):
        x, y = batch(step, dist.get_world_size())
        torch.nn.functional.cross_entropy(reference(x), y).backward()
    for got, expected in zip(model.parameters(), reference.parameters()):
        assert_near(got.grad, expected.grad)


def _gradient_of_this_rank(step):
    model = network()
    loss(model, step).backward()
    return model[0].weight.grad


@on_ranks(2, 4)
def test_a_hook_may_chain_futures():
    def hook(_, bucket):
        total = dist.all_reduce(bucket.buffer() / dist.get_world_size(), async_op=True).get_future()
        return total.then(lambda f: f.value()[0])

    model = parallel()
    model.register_comm_hook(None, hook)
    assert_near(flat(train(model)), serial())


@on_ranks(2, 4)
def test_hooks_send_gradients_as_halves():
    def sent(hook):
        model = DistributedDataParallel(network())
        if hook:
            model.register_comm_hook(None, hook)
        before = talweg.torch.backend().statistics()["bytes_sent"]
        train(model)
        return flat(model), talweg.torch.backend().statistics()["bytes_sent"] - before

    _, whole = sent(None)
    for hook, precision in ((default_hooks.fp16_compress_hook, 1e-3), (talweg.torch.compress_bfloat16, 8e-3)):
        got, half = sent(hook)
        assert_near(got, serial(), relative=precision, absolute=precision)
        assert not torch.equal(got, serial())
        assert_equal_on_all_ranks(got)
        # More ranks may take another algorithm for the half than for the whole.
        assert dist.get_world_size() > 2 or half < 0.75 * whole


@on_ranks(2, 4)
def test_power_sgd_compresses_as_over_gloo():
    results = []
    for group in (None, dist.new_group(backend="gloo")):
        # One bucket: the hook's callbacks reduce too, and with several buckets the ranks would not agree on an order.
        model = DistributedDataParallel(network(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        results.append(flat(train(model, steps=6)))
    assert_equal_on_all_ranks(results[0])
    assert_near(*results, relative=1e-3, absolute=1e-4)


@on_ranks(2, 4)
def test_sparse_gradients_are_summed():
    results = []
    for group in (None, dist.new_group(backend="gloo")):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True), process_group=group)
        optimizer = sgd(model)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([[step, 7 + dist.get_rank()]])).sum().backward()
            optimizer.step()
        results.append(flat(model))
    assert_equal_on_all_ranks(results[0])
    assert_near(*results)


@on_ranks(2, 4)
def test_a_compiled_model_trains():
    # Compiling in this process: a pool of compilers would outlive the test.
    torch._inductor.config.compile_threads = 1
    model = torch.compile(DistributedDataParallel(network()))
    assert_near(flat(train(model, steps=2)), serial(steps=2))
