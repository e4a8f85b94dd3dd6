"""linear_logprob of a group whose ranks have shards of the vocabulary: two processes against one with all of it."""

import logprob_shards_worker as worker
import pytest
import torch
from logprob_shards_worker import CUTS, OPTIONS, TARGET, TOKENS, VOCABS, head, leaves, of_classes, total
from ranks import DEVICES, results_of

from tigon.torch import functional as T
from tigon.torch import nn

ONE_SUM = 1, 1  # forward's all-gather, and the sum of hidden's gradient


@pytest.fixture(scope="module", params=DEVICES)
def ranks(request, tmp_path_factory):
    """The results of both processes, by rank."""
    return results_of(worker.run, request.param, tmp_path_factory)


def whole(dtype=torch.float32, **options):
    """(outputs, gradients) of one process."""
    *tensors, upstream = head(dtype)
    hidden, weight, bias = inputs = leaves(tensors, 0, 12)
    found = T.linear_logprob(hidden, weight, TARGET, bias, **options)
    total(found, upstream).backward()
    return found, [t.grad for t in inputs]


def expect(ranks, key, cut, dtype=torch.float32, close={}, flat=False, **options):
    found, (dhidden, *others) = whole(dtype, **options)
    for rank, results in enumerate(ranks):
        outputs, gradients, *collectives = results[key]
        for ours, theirs in zip(outputs[:2], found[:2]):
            if theirs is not None:
                torch.testing.assert_close(ours, theirs.detach().flatten() if flat else theirs.detach(), **close)
        assert outputs[2:] == [None, None] and (outputs[1] is None) == (found.entropy is None)
        own = slice(*CUTS[cut][rank : rank + 2])
        for ours, theirs in zip(gradients, [dhidden, *(t[own] for t in others)]):
            torch.testing.assert_close(ours, theirs, **close)
        assert tuple(collectives) == ONE_SUM
    for ours, theirs in zip(*[[*r[key][0][:2], r[key][1][0]] for r in ranks]):
        assert ours is theirs is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_two_ranks_are_one(ranks, cut, name):
    expect(ranks, (cut, name), cut, **OPTIONS[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(ranks, dtype):
    """hidden's gradient is a sum of rounded parts."""
    off = 2e-2 if dtype == torch.bfloat16 else 2e-3
    expect(ranks, dtype, "uneven", dtype, dict(rtol=off, atol=off), entropy=True)


def test_flat_target(ranks):
    expect(ranks, "flat", "uneven", flat=True, entropy=True)


def test_frozen_head(ranks):
    _, (dhidden, _, _) = whole()
    for results in ranks:
        _, gradients, *collectives = results["frozen"]
        torch.testing.assert_close(gradients[0], dhidden)
        assert gradients[1:] == [None, None] and tuple(collectives) == ONE_SUM


def test_compiled(ranks):
    _, (dhidden, *others) = whole(entropy=True)
    for rank, results in enumerate(ranks):
        own = slice(*CUTS["uneven"][rank : rank + 2])
        for ours, theirs in zip(results["compiled"], [dhidden, *(t[own] for t in others)], strict=True):
            torch.testing.assert_close(ours, theirs)


def expect_dtensors(ranks, key, vocab, dtype=torch.float32, close={}, **options):
    *tensors, upstream = head(dtype)
    target, own = of_classes(vocab)
    inputs = [tensors[0].requires_grad_(), *(t[own].clone().requires_grad_() for t in tensors[1:])]
    found = T.linear_logprob(*inputs[:2], target, inputs[2], **options)
    total(found, upstream).backward()
    for results in ranks:
        outputs, gradients, *collectives = results["dtensors", *key]
        assert outputs[2:] == [None, None] and tuple(collectives) == ONE_SUM
        for ours, theirs in zip(outputs[:2], found[:2]):
            assert ours is theirs is None or torch.testing.assert_close(ours, theirs.detach(), **close) is None
        for ours, leaf in zip(gradients, inputs, strict=True):
            assert ours is None or torch.testing.assert_close(ours, leaf.grad, **close) is None
    return [results["dtensors", *key][1] for results in ranks]


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("vocab", VOCABS)
def test_dtensors_gather_no_weight(ranks, vocab, local):
    for gradients in expect_dtensors(ranks, (vocab, local), vocab, entropy=True):
        assert all(g is not None for g in gradients)


@pytest.mark.parametrize("tokens", TOKENS, ids=str)
def test_compiled_dtensors(ranks, tokens):
    """Their gradients are those of the whole head, whose 11 classes the ranks have 6 and 5 of."""
    *tensors, upstream = head()
    target, own = of_classes(11)
    inputs = [tensors[0].requires_grad_(), *(t[own].clone().requires_grad_() for t in tensors[1:])]
    total(T.linear_logprob(*inputs[:2], target, inputs[2], entropy=True), upstream).backward()
    for results in ranks:
        for ours, leaf in zip(results["compiled", tokens], inputs, strict=True):
            torch.testing.assert_close(ours, leaf.grad)


def test_liger_kernels_name(ranks):
    *tensors, upstream = head()
    hidden, weight, _ = leaves(tensors, 0, 12)
    found = T.linear_logprob(hidden, weight, TARGET, temperature=0.7, entropy=True)
    total(found, upstream).backward()
    for rank, results in enumerate(ranks):
        outputs, (dhidden, dweight) = results["scaled"]
        for ours, theirs in zip(outputs, (-found.logprob, found.entropy), strict=True):
            torch.testing.assert_close(ours, theirs.detach().flatten())
        torch.testing.assert_close(dhidden, hidden.grad)
        torch.testing.assert_close(dweight, weight.grad[6 * rank : 6 * rank + 6])


def test_dtensors_of_16_bits(ranks):
    expect_dtensors(ranks, ("bf16",), 11, torch.bfloat16, dict(rtol=2e-2, atol=2e-2))


def test_dtensors_of_a_frozen_head(ranks):
    for dhidden, *others in expect_dtensors(ranks, ("frozen",), 11):
        assert dhidden is not None and others == [None, None]


def test_other_dtensors_are_refused(ranks):
    mixed = "linear_logprob: group is given with DTensors, must be None, or the tensors local ones"
    numbers = "linear_logprob: vocab and vocab_begin are given, must be None with a sharded weight"
    for rank, results in enumerate(ranks):
        cut = f"linear_logprob: weight.to_local().shape[0] is {(4, 8)[rank]}, must be 6, as torch.chunk cuts 12"
        group = "linear_logprob: group has the ranks [0], must have [0, 1] (weight.device_mesh's)"
        assert results["refused"] == [mixed, mixed, mixed, numbers, cut, group if rank == 0 else None]


def test_a_sharded_head_is_left_to_trl(ranks):
    assert [results["trl"] for results in ranks] == [False, False]


def test_numbers_without_a_group_are_refused():
    hidden, weight, _, _ = head()
    for numbers in (dict(vocab=12), dict(vocab_begin=0)):
        with pytest.raises(ValueError, match="vocab and vocab_begin are given, must be None without group"):
            T.linear_logprob(hidden, weight, TARGET, **numbers)


@pytest.fixture
def alone(tmp_path):
    """A group of one rank."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def test_one_rank(alone):
    hidden, weight, bias, upstream = head()
    module = nn.LinearLogprob(group=alone, entropy=True)
    found, expected = whole(entropy=True)
    inputs = leaves((hidden, weight, bias), 0, 12)
    ours = module(inputs[0], inputs[1], TARGET, inputs[2])
    total(ours, upstream).backward()
    torch.testing.assert_close(ours[:2], tuple(t.detach() for t in found[:2]))
    for leaf, theirs in zip(inputs, expected):
        torch.testing.assert_close(leaf.grad, theirs)
    with pytest.raises(ValueError, match="vocab_begin is None, must be given with vocab"):
        T.linear_logprob(hidden, weight, TARGET, group=alone, vocab=12)
    with pytest.raises(ValueError, match=r"vocab_begin is 1, must be 0 to 0 \(vocab - weight.shape\[0\]\)"):
        T.linear_logprob(hidden, weight, TARGET, group=alone, vocab=12, vocab_begin=1)
    with pytest.raises(ValueError, match=r"labels\[0\] is 1, must be 0 to 0"):
        T.linear_logprob(hidden, weight[:1], TARGET, group=alone)
    with pytest.raises(RuntimeError, match="linear_logprob has no second derivative"):
        (dhidden,) = torch.autograd.grad(module(*inputs[:2], TARGET).logprob.sum(), inputs[:1], create_graph=True)
        dhidden.sum().backward()
