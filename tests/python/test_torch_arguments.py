"""Arguments that an operator, a module or the optimizer does not take: one sentence, and the right exception."""

import re

import numpy
import pytest
import torch

import tigon
from tigon.torch import functional as T
from tigon.torch import nn, optim

x, w = torch.randn(4, 64), torch.randn(64)
labels = lambda *shape: torch.zeros(shape).long()
class_second = "; the classes are the last dimension: .movedim(1, -1) puts torch's second one there"

REFUSED = [
    # labels whose shape is not that of the rows
    (
        lambda: T.cross_entropy(torch.randn(2, 3, 1, 2, 3), labels(2, 1, 2, 3)),
        ValueError,
        "cross_entropy: target.shape is [2, 1, 2, 3], must be [2, 3, 1, 2] or [12] (one for each row)" + class_second,
    ),
    (
        lambda: T.cross_entropy(torch.randn(2, 3, 2), labels(2, 2)),
        ValueError,
        "cross_entropy: target.shape is [2, 2], must be [2, 3] or [6] (one for each row)" + class_second,
    ),
    (
        lambda: T.cross_entropy(torch.randn(2, 3, 4), labels(3, 2)),
        ValueError,
        "cross_entropy: target.shape is [3, 2], must be [2, 3] or [6] (one for each row)",
    ),
    (
        lambda: T.cross_entropy_outputs(torch.randn(2, 3, 4), labels(3, 2)),
        ValueError,
        "cross_entropy: target.shape is [3, 2], must be [2, 3] or [6] (one for each row)",
    ),
    (
        lambda: T.cross_entropy(torch.randn(2, 3, 4), labels(1, 6), reduction="none"),
        ValueError,
        "cross_entropy: target.shape is [1, 6], must be [2, 3] or [6] (one for each row)",
    ),
    (
        lambda: T.fused_linear_cross_entropy(torch.randn(2, 3, 8), torch.randn(5, 8), labels(3, 2)),
        ValueError,
        "fused_linear_cross_entropy: target.shape is [3, 2], must be [2, 3] or [6] (one for each row)",
    ),
    (
        lambda: T.cross_entropy(torch.randn(2, 3, 4), labels(2, 3), token_scale=torch.ones(3, 2)),
        ValueError,
        "cross_entropy_fwd: options.token_scale.shape[0] is 3, must be 2 (logits.shape[0])",
    ),
    (
        lambda: T.cross_entropy(x, labels(4).byte()),
        TypeError,
        "cross_entropy_fwd: labels.dtype is uint8, must be i32, i64",
    ),
    (
        lambda: T.modulated_rms_norm(torch.randn(2, 3, 8), torch.randn(3, 8)),
        ValueError,
        "modulated_rms_norm_fwd: scale.shape[0] is 3, must be 1 or a product of the first dimensions of x",
    ),
    (
        lambda: T.rope(*[torch.ones(1, 1, 4, 4)] * 2, *[torch.ones(4, 4)] * 2, sections_interleaved=True),
        ValueError,
        "rope_fwd: sections_interleaved is 1, must be 0 without sections",
    ),
    # what is no tensor
    (lambda: T.softmax(numpy.ones((4, 4))), TypeError, "softmax_fwd: x is a numpy.ndarray, must be a torch.Tensor"),
    (lambda: T.rms_norm(x, (64,), w), TypeError, "rms_norm_fwd: w is a tuple, must be a torch.Tensor or None"),
    (lambda: T.linear([1.0], w), TypeError, "linear_fwd: x is a list, must be a torch.Tensor"),
    (lambda: T.rms_norm(None), TypeError, "rms_norm_fwd: x is None, must be a torch.Tensor"),
    (lambda: T.rope(x, x, None, None), TypeError, "rope_fwd: cos is None, must be a torch.Tensor"),
    (lambda: T.embedding([1, 2], x), TypeError, "embedding_fwd: idx is a list, must be a torch.Tensor"),
    (lambda: T.embedding(1, x), TypeError, "embedding_fwd: idx is an int, must be a torch.Tensor"),
    (lambda: T.cross_entropy(x, [1, 2]), TypeError, "cross_entropy_fwd: labels is a list, must be a torch.Tensor"),
    (
        lambda: T.fused_linear_cross_entropy(numpy.ones((4, 4)), x, labels(4)),
        TypeError,
        "fused_linear_cross_entropy_fwd: hidden is a numpy.ndarray, must be a torch.Tensor",
    ),
    (
        lambda: T.relu_squared(x.to_sparse()),
        NotImplementedError,
        "relu_squared_fwd: x.layout is torch.sparse_coo, must be torch.strided",
    ),
    # what is no number
    (lambda: T.layer_norm(x, w, w, None), TypeError, "layer_norm_fwd: eps is None, must be a number"),
    (lambda: T.rms_norm(x, w, "1"), TypeError, "rms_norm_fwd: eps is a str, must be a number"),
    (lambda: T.rms_norm(x, w, torch.tensor(1.0)), TypeError, "rms_norm_fwd: eps is a torch.Tensor, must be a number"),
    (lambda: T.group_norm(x, 2.0), TypeError, "group_norm_fwd: groups is a float, must be an int"),
    (lambda: T.group_norm(x, 2**64 + 2), ValueError, f"group_norm_fwd: groups is {2**64 + 2}, must fit 64 bits"),
    # dtypes
    (lambda: T.rms_norm(x.double()), TypeError, "rms_norm_fwd: x.dtype is float64, must be f32, f16, bf16"),
    (lambda: T.rms_norm(x, w.double()), TypeError, "rms_norm_fwd: w.dtype is float64, must be f32, f16, bf16"),
    # modules
    (lambda: nn.RMSNorm((2, 8)), ValueError, "RMSNorm: size has 2 dimensions, must have 1"),
    # the optimizer
    (lambda: optim.AdamW([x], lr=-1), ValueError, "AdamW: lr is -1, must be 0 or more, and finite"),
    (lambda: optim.AdamW([x], eps=0), ValueError, "AdamW: eps is 0, must be 1.17549e-38 or more, and finite"),
    (
        lambda: optim.AdamW([x], weight_decay=-0.1),
        ValueError,
        "AdamW: weight_decay is -0.1, must be 0 or more, and finite",
    ),
    (lambda: optim.AdamW([x], betas=(0.9, 1)), ValueError, "AdamW: betas[1] is 1, must be 0 or more and less than 1"),
    (
        lambda: optim.AdamW([x], betas=(-0.5, 0)),
        ValueError,
        "AdamW: betas[0] is -0.5, must be 0 or more and less than 1",
    ),
    (lambda: optim.AdamW([x], lr=float("nan")), ValueError, "AdamW: lr is nan, must be 0 or more, and finite"),
    (lambda: optim.AdamW([x], max_norm=-1.0), ValueError, "AdamW: max_norm is -1.0, must be None, or 0 or more"),
    (
        lambda: optim.AdamW([{"params": [x], "lr": -2.0}]),
        ValueError,
        "AdamW: lr is -2, must be 0 or more, and finite",
    ),
]


@pytest.mark.parametrize("call, kind, sentence", REFUSED, ids=range(len(REFUSED)))
def test_refused(call, kind, sentence):
    for _ in range(2):  # what was remembered of the first call changes nothing
        with pytest.raises(kind) as caught:
            call()
        assert type(caught.value) is kind and str(caught.value) == sentence


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_labels_in_both_shapes(reduction):
    logits, target = torch.randn(2, 3, 5, requires_grad=True), torch.randint(5, (2, 3))
    hidden, weight = torch.randn(2, 3, 8), torch.randn(5, 8)
    wanted = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), target, reduction=reduction)
    torch.testing.assert_close(T.cross_entropy(logits, target, reduction=reduction), wanted)
    flat = T.cross_entropy(logits, target.flatten(), reduction=reduction)
    torch.testing.assert_close(flat, wanted.flatten() if reduction == "none" else wanted)
    wanted = T.cross_entropy(hidden @ weight.t(), target, reduction=reduction)
    torch.testing.assert_close(T.fused_linear_cross_entropy(hidden, weight, target, reduction=reduction), wanted)
    torchs = torch.randn(2, 5, 3, 4)
    target = torch.randint(5, (2, 3, 4))
    torch.testing.assert_close(
        T.cross_entropy(torchs.movedim(1, -1), target), torch.nn.functional.cross_entropy(torchs, target)
    )
    one = torch.randn(5)
    torch.testing.assert_close(
        T.cross_entropy(one, torch.tensor(3)), torch.nn.functional.cross_entropy(one, torch.tensor(3))
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_labels_of_a_compiled_call(compiled):
    f = lambda a, t: T.cross_entropy(a, t)
    torch._dynamo.reset()
    f = torch.compile(f, backend="aot_eager", dynamic=True) if compiled else f
    logits = torch.randn(4, 3, 5)
    torch.testing.assert_close(f(logits, labels(4, 3)), T.cross_entropy(logits, labels(4, 3)))
    with pytest.raises(Exception, match=re.escape("target.shape is [3, 4], must be [4, 3] or [12]")):
        f(logits, labels(3, 4))


def test_an_index_without_dimensions():
    table = torch.randn(9, 4, requires_grad=True)
    y = T.embedding(torch.tensor(3), table)
    assert torch.equal(y, table[3]) and y.shape == (4,)
    g = torch.randn(4)
    wanted = torch.autograd.grad(table[3], table, g)[0]
    assert torch.equal(torch.autograd.grad(y, table, g)[0], wanted)
    torch.library.opcheck(torch.ops.tigon.embedding_fwd.default, (table.detach(), torch.tensor(3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_no_eps_is_torchs(dtype):
    small = 1e-3 * torch.randn(4, 8).to(dtype)
    wanted = torch.nn.functional.rms_norm(small, (8,))
    torch.testing.assert_close(T.rms_norm(small, eps=None), wanted)
    torch.testing.assert_close(nn.RMSNorm((8,), eps=None, dtype=dtype)(small), wanted)
    torch.testing.assert_close(T.fused_add_rms_norm(small, 0 * small, eps=None)[0], wanted)
    torch.testing.assert_close(T.modulated_rms_norm(small, torch.zeros(8), eps=None), wanted)


def test_a_size_in_a_tuple():
    for size in (8, (8,), [8], torch.Size((8,))):
        assert nn.RMSNorm(size).weight.shape == nn.LayerNorm(size).weight.shape == (8,)
    assert nn.RMSNorm((8,)).state_dict().keys() == torch.nn.RMSNorm((8,)).state_dict().keys()


def test_numbers_of_numpy():
    groups = T.group_norm(x, numpy.int64(2), eps=numpy.float32(1e-5))
    torch.testing.assert_close(groups, torch.nn.functional.group_norm(x, 2))


def test_a_sparse_gradient_is_refused():
    embedding = torch.nn.Embedding(9, 4, sparse=True)
    embedding(torch.tensor([1, 2])).sum().backward()
    before = embedding.weight.detach().clone()
    with pytest.raises(NotImplementedError) as caught:
        optim.AdamW(embedding.parameters()).step()
    assert str(caught.value) == "AdamW: a gradient's layout is torch.sparse_coo, must be torch.strided"
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_adamw_steps_what_is_not_contiguous(dtype):
    torch.manual_seed(0)
    wide = torch.randn(4, 16)
    values = wide[:, ::2].t().contiguous().to(dtype)
    turned = [wide[:, ::2].to(dtype).clone().t(), wide.to(dtype).clone()[:, ::2].t()]
    for p in turned:
        assert not p.is_contiguous() and torch.equal(p, values)
    params = [values.clone(), *turned]
    for p in params:
        p.requires_grad_()
        optimizer = optim.AdamW([p], lr=1e-2)
        for step in range(3):
            p.grad = torch.cos(torch.arange(p.numel()).view(p.shape) + step).to(dtype)
            optimizer.step()
    assert not torch.equal(params[0], values)
    assert torch.equal(params[0], params[1]) and torch.equal(params[0], params[2])
    assert torch.equal(params[2]._base[:, 1::2], wide[:, 1::2].to(dtype))


def test_adamw_takes_the_negative_bit():
    p, q = torch.linspace(-1, 1, 8), torch._neg_view(torch.linspace(1, -1, 8))
    gradient = torch.linspace(2, -1, 8)
    for t, g in ((p, gradient), (q, torch._neg_view(-gradient))):
        t.requires_grad_().grad = g
        optim.AdamW([t], lr=1e-2, max_norm=1.0).step()
    assert q.is_neg() and torch.equal(p, q)


def test_the_version():
    assert tigon.__version__ == tigon.version() and re.fullmatch(r"\d+\.\d+\.\d+", tigon.__version__)
