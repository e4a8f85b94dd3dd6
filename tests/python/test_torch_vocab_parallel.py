"""vocab_parallel_cross_entropy: one rank against cross_entropy, and two processes, against the whole vocabulary
in plain torch."""

import pytest
import torch
import vocab_parallel_worker as worker
from ranks import DEVICES, results_of
from vocab_parallel_worker import CUTS, OPTIONS, TARGET, logits

import tigon.compat.liger as liger
from tigon.torch import functional as T
from tigon.torch import nn

COUNTED = TARGET != -100


@pytest.fixture(scope="module", params=DEVICES)
def ranks(request, tmp_path_factory):
    """The results of both processes, by rank."""
    return results_of(worker.run, request.param, tmp_path_factory)


def plain(
    x,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    softcap_first=False,
    denominator=None,
    smoothed=slice(None),
):
    """(loss, lse, entropy) in x's dtype; `smoothed`: the classes that smoothing is spread over."""
    if softcap_first:
        z = softcap * torch.tanh(x / softcap) / temperature
    else:
        z = x / temperature
        z = z if softcap is None else softcap * torch.tanh(z / softcap)
    lse = z.logsumexp(-1)
    own = z.gather(-1, TARGET.clamp(min=0)[..., None])[..., 0]
    loss = (1 - label_smoothing) * (lse - own) + label_smoothing * (lse - z[..., smoothed].mean(-1))
    loss = (loss + lse_square_scale * lse**2) * COUNTED
    entropy = (lse - (z.softmax(-1) * z).sum(-1)) * COUNTED
    if reduction != "none":
        loss = loss.sum() / (denominator or COUNTED.sum() if reduction == "mean" else 1)
    return loss, lse, entropy


def expect(ranks, key, vocab, entropy=False, tolerance=1e-5, dtype=torch.float32, **options):
    x = logits(vocab, dtype).double().requires_grad_()
    loss, lse, of_entropy = plain(x, **options)
    (loss.sum() + (0.5 * of_entropy.sum() if entropy else 0)).backward()
    for rank, results in enumerate(ranks):
        theirs, gradient, their_lse, their_entropy, forward, backward = results[key]
        part = x.grad[..., slice(*CUTS[vocab][rank : rank + 2])]
        close = dict(rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(theirs.double(), loss.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(their_lse.double(), lse.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), part, **close)
        if entropy:
            torch.testing.assert_close(their_entropy.double(), of_entropy.detach(), rtol=1e-5, atol=1e-6)
        assert (forward, backward) == (1, 0)  # Liger-Kernel has three or four all-reduces
    assert torch.equal(ranks[0][key][0], ranks[1][key][0])


@pytest.mark.parametrize("vocab", CUTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_two_ranks_are_the_whole_vocabulary(ranks, vocab, name):
    expect(ranks, (vocab, name), vocab, entropy=name == "sum", **OPTIONS[name])


def test_bf16(ranks):
    expect(ranks, "bf16", 12, tolerance=1e-2, dtype=torch.bfloat16)


def test_megatrons_formula(ranks):
    expect(ranks, "megatron", 12, reduction="none", label_smoothing=0.1 * 12 / 11)


def test_own_partition(ranks):
    """The smoothing is over the rank's own classes, and so the losses differ."""
    for rank, (begin, end) in enumerate(zip(CUTS[11], CUTS[11][1:])):
        x, classes = logits(11).double().requires_grad_(), end - begin
        smoothing = 0.1 * classes / (classes - 1)
        loss, _, _ = plain(x, reduction="none", label_smoothing=smoothing, smoothed=slice(begin, end))
        loss.sum().backward()
        theirs, gradient = ranks[rank]["partition"][:2]
        torch.testing.assert_close(theirs.double(), loss.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), x.grad[..., begin:end], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ranks[0]["partition"][0], ranks[1]["partition"][0])


@pytest.mark.parametrize("name", OPTIONS)
def test_one_rank_is_cross_entropy(name):
    options = OPTIONS[name]
    ours, theirs = (logits(12).requires_grad_() for _ in range(2))
    loss = T.vocab_parallel_cross_entropy(ours, TARGET, **options)
    expected = T.cross_entropy(theirs, TARGET, **options)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(loss, expected.reshape(loss.shape))
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_no_exponentials_are_saved():
    """Liger-Kernel saves them in f32, twice the bytes of bf16 logits."""
    saved, x = [], logits(12, torch.bfloat16).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        T.vocab_parallel_cross_entropy(x, TARGET)
    wide = [t for t in saved if t.numel() >= x.numel()]
    assert [t.data_ptr() for t in wide] == [x.data_ptr()]


def test_smoothing_of_far_logits_is_finite():
    """log(exp(z - m)) is -inf where the exponential underflows; Liger-Kernel's loss is inf there."""
    x = torch.zeros(2, 5, 12)
    x[..., 1:] = -500
    loss = T.vocab_parallel_cross_entropy(x, TARGET.clamp(max=0), label_smoothing=0.12)
    assert loss.item() == pytest.approx(0.12 * 500 * 11 / 12, rel=1e-6)


@pytest.mark.parametrize("label", [12, -1])
def test_label_of_no_shard_is_refused(label):
    """Liger-Kernel's loss of it is silently lse."""
    target = TARGET.clone()
    target[0, 0] = label
    with pytest.raises(ValueError, match=rf"labels\[0\] is {label}, must be 0 to 11 \(options.vocab - 1\)"):
        T.vocab_parallel_cross_entropy(logits(12), target)


def test_arguments():
    with pytest.raises(ValueError, match="vocab_begin is None, must be given with vocab"):
        T.vocab_parallel_cross_entropy(logits(12), TARGET, vocab=12)
    with pytest.raises(ValueError, match="vocab_begin is 1, must be 0 to 0"):
        T.vocab_parallel_cross_entropy(logits(12), TARGET, vocab=12, vocab_begin=1)
    with pytest.raises(ValueError, match="smoothing_formula is 'keras'"):
        T.vocab_parallel_cross_entropy(logits(12), TARGET, smoothing_formula="keras")


def test_module():
    x = logits(12)
    module = nn.VocabParallelCrossEntropyLoss(reduction="sum", label_smoothing=0.1)
    expected = T.cross_entropy(x, TARGET, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(module(x, TARGET), expected)


def test_compiled():
    x = logits(12).requires_grad_()
    run = lambda t: T.vocab_parallel_cross_entropy(t, TARGET, label_smoothing=0.1)
    expected = torch.autograd.grad(run(x), x)[0]
    found = torch.compile(run, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(torch.autograd.grad(found, x)[0], expected)


def test_compiled_ranks(ranks):
    for results in ranks:
        torch.testing.assert_close(results["compiled"], results[12, "mean"][1])


def test_ligers_names():
    x, target = logits(12).transpose(0, 1).requires_grad_(), TARGET.T
    loss = liger.LigerVocabParallelCrossEntropy(label_smoothing=0.1, label_smoothing_formula="megatron")(x, target)
    expected = plain(logits(12).double(), reduction="none", label_smoothing=0.1 * 12 / 11)[0].T
    assert loss.shape == (5, 2) and loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    apply = liger.LigerVocabParallelCEFunction.apply
    torch.testing.assert_close(apply(x, target, None, -100, 0.1, "megatron", "partition"), loss)
    with pytest.raises(ValueError, match="ndim is 2, must be 3"):
        apply(x[0], target[0], None, -100, 0.0, "pytorch", "global")
    with pytest.raises(ValueError, match="reduction is 'mean', must be 'none'"):
        liger.LigerVocabParallelCrossEntropy(reduction="mean")
    with pytest.raises(ValueError, match="label_smoothing_mode is 'local'"):
        liger.LigerVocabParallelCrossEntropy(label_smoothing_mode="local")
