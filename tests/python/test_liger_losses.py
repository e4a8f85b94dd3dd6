"""tigon.compat.liger's cross entropies against Liger-Kernel's formulas in f64, and all that they return."""

import itertools

import pytest
import torch
from torch import nn

from tigon.compat import liger
from tigon.compat.liger.ops import LigerCrossEntropyFunction, LigerFusedLinearCrossEntropyFunction

V, H = 37, 24
TARGET = torch.tensor([[3, 0, 36], [7, 7, 20]])
IGNORED = 7  # a class's own number, as a padding token's


def formula(logits, target, weight, lse_square_scale, smoothing, reduction, softcap, token_scaling=False):
    """(loss, z_loss) in f64: the z-loss has no class weight, and its mean is over the tokens that count."""
    z = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    weight = torch.ones(V, dtype=torch.float64) if weight is None else weight.double()
    lse, counted = z.logsumexp(-1), target != IGNORED
    short = lse - z.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    loss = (1 - smoothing) * weight[target] * short + smoothing / V * (weight * (lse.unsqueeze(-1) - z)).sum(-1)
    z_loss = lse_square_scale * lse**2
    factor = counted * ((-short).exp().detach() if token_scaling else 1.0)
    loss, z_loss = loss * factor, z_loss * factor
    if reduction == "mean":
        loss, z_loss = loss / (weight[target] * counted).sum(), z_loss / counted.sum()
    return (loss + z_loss, z_loss) if reduction == "none" else ((loss + z_loss).sum(), z_loss.sum())


OPTIONS = list(
    itertools.product([None, torch.float32, torch.bfloat16, torch.float16], [0.0, 0.1], [0.0, 0.2], [None, 2.0])
)


def class_weight(dtype):
    return None if dtype is None else torch.rand(V, generator=torch.Generator().manual_seed(5)).to(dtype)


def bound(dtype):
    """Relative to the largest: f32 a few roundings, 16-bit one of the logits and three of summands of a gradient."""
    return 2e-6 if dtype == torch.float32 else 2**-6


def assert_near(ours, theirs, dtype):
    assert (ours.double() - theirs).abs().max() <= bound(dtype) * theirs.abs().max()


def dloss(reduction):
    return (
        torch.linspace(-1, 2, 6, dtype=torch.float64).view(2, 3) if reduction == "none" else torch.tensor(1.5).double()
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype, lse_square_scale, smoothing, softcap", OPTIONS)
def test_cross_entropy(weight_dtype, lse_square_scale, smoothing, softcap, dtype, reduction):
    torch.manual_seed(0)
    x = (3 * torch.randn(2, 3, V)).to(dtype).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    weight = class_weight(weight_dtype)
    arguments = TARGET, weight, IGNORED, lse_square_scale, smoothing, reduction, softcap
    loss, z_loss, accuracy, predicted = LigerCrossEntropyFunction.apply(x, *arguments, True, True, True)
    want, want_z = formula(x64, TARGET, weight, lse_square_scale, smoothing, reduction, softcap)
    assert loss.dtype == z_loss.dtype == dtype
    assert_near(loss, want, dtype)
    assert_near(z_loss, want_z, dtype)
    counted = TARGET != IGNORED
    assert torch.equal(predicted, x64.argmax(-1).where(counted, -1))
    right = ((predicted == TARGET) & counted).float()
    assert torch.equal(accuracy, right if reduction == "none" else right.sum() / counted.sum())

    gradient = dloss(reduction)
    loss.backward(gradient.to(dtype))
    want.backward(gradient)
    assert_near(x.grad, x64.grad, dtype)
    options = reduction, smoothing, lse_square_scale, softcap
    assert torch.equal(liger.liger_cross_entropy(x, TARGET, weight, None, IGNORED, None, *options), loss)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("token_scaling", [False, True])
@pytest.mark.parametrize("weight_dtype, lse_square_scale, smoothing, softcap", OPTIONS)
def test_fused_linear_cross_entropy(
    weight_dtype, lse_square_scale, smoothing, softcap, token_scaling, dtype, reduction
):
    torch.manual_seed(0)
    tensors = [torch.randn(*shape).to(dtype).requires_grad_() for shape in [(2, 3, H), (V, H), (V,)]]
    tensors64 = [t.detach().double().requires_grad_() for t in tensors]
    hidden, head, bias = tensors
    weight = class_weight(weight_dtype)
    options = weight, IGNORED, lse_square_scale, smoothing, reduction, softcap
    arguments = hidden, head, TARGET, bias, *options, True, None, token_scaling, True, True
    loss, z_loss, accuracy, predicted = LigerFusedLinearCrossEntropyFunction.apply(*arguments)
    logits = tensors64[0] @ tensors64[1].T + tensors64[2]
    logits = logits + (logits.detach().to(dtype).double() - logits.detach())  # as they are held
    want, want_z = formula(logits, TARGET, weight, lse_square_scale, smoothing, reduction, softcap, token_scaling)
    assert loss.dtype == torch.float32 and z_loss.dtype == dtype
    assert_near(loss, want, dtype)
    assert_near(z_loss, want_z, dtype)
    counted = TARGET != IGNORED
    assert torch.equal(predicted, logits.argmax(-1).where(counted, -1))
    right = ((predicted == TARGET) & counted).float()
    assert torch.equal(accuracy, right if reduction == "none" else right.sum() / counted.sum())

    gradient = dloss(reduction)
    loss.backward(gradient.float())
    want.backward(gradient)
    for ours, theirs in zip(tensors, tensors64):
        assert_near(ours.grad, theirs.grad, dtype)


@pytest.mark.parametrize("weight", [None, class_weight(torch.float32)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_z_loss_that_is_returned_is_the_part_in_the_loss(weight, reduction):
    torch.manual_seed(0)
    x, head, scale = torch.randn(2, 3, H), torch.randn(V, H), 0.1
    logits = x @ head.T

    def fused(scale):
        return LigerFusedLinearCrossEntropyFunction.apply(
            x, head, TARGET, None, weight, IGNORED, scale, 0.0, reduction, None, True
        )

    def plain(scale):
        return LigerCrossEntropyFunction.apply(logits, TARGET, weight, IGNORED, scale, 0.0, reduction, None, True)

    for function in (fused, plain):
        loss, z_loss, *_ = function(scale)
        torch.testing.assert_close(loss - function(0.0)[0], z_loss, rtol=1e-5, atol=1e-5)


def test_many_rows_are_looked_at_in_chunks():
    """600 rows of a wide vocabulary are three chunks of at most 256; the last is shorter."""
    torch.manual_seed(0)
    hidden, head = torch.randn(600, 4), torch.randn(500, 4)
    target = torch.randint(500, (600,))
    outputs = liger.liger_fused_linear_cross_entropy(hidden, head, target, return_predicted_tokens=True)
    assert torch.equal(outputs.predicted_tokens, (hidden @ head.T).argmax(-1))
    assert outputs.z_loss is None and outputs.token_accuracy is None


def test_no_token_counts():
    ignored = torch.full((4,), -100)
    wanted = dict(return_z_loss=True, return_token_accuracy=True, return_predicted_tokens=True, lse_square_scale=0.1)
    x, head = torch.randn(4, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    for weight in (None, torch.rand(V)):
        for outputs in (
            liger.liger_fused_linear_cross_entropy(x, head, ignored, ce_weight=weight, **wanted),
            liger.liger_cross_entropy(x @ head.T, ignored, weight, **wanted),
        ):
            assert outputs.loss == 0 and outputs.z_loss == 0 and outputs.token_accuracy.isnan()
            assert outputs.predicted_tokens.tolist() == [-1] * 4
            gradients = torch.autograd.grad(outputs.loss, [x, head])
            assert not any(gradient.any() for gradient in gradients)


def test_an_ignored_row_may_hold_anything():
    x = torch.randn(3, V)
    x[1] = torch.nan
    x.requires_grad_()
    target = torch.tensor([1, -100, 2])
    outputs = liger.liger_cross_entropy(x, target, torch.rand(V), lse_square_scale=0.1, return_z_loss=True)
    outputs.loss.backward()
    assert outputs.loss.isfinite() and outputs.z_loss.isfinite() and x.grad.isfinite().all() and not x.grad[1].any()


def test_a_logit_far_below_the_others_does_not_cost_the_z_loss_its_digits():
    x = torch.zeros(1, V)
    x[0, 5] = -1e9
    outputs = liger.liger_cross_entropy(x, torch.tensor([5]), torch.rand(V), lse_square_scale=1.0, return_z_loss=True)
    torch.testing.assert_close(outputs.z_loss, torch.tensor(float(V - 1)).log() ** 2)


@pytest.mark.parametrize("loss", [liger.LigerCrossEntropyLoss, liger.LigerFusedLinearCrossEntropyLoss])
@pytest.mark.parametrize(
    "options, sentence",
    [
        (dict(reduction="foo"), "reduction is 'foo', must be 'mean', 'sum' or 'none'"),
        (dict(label_smoothing=2.0), "label_smoothing is 2.0, must be 0 to 1"),
        (dict(label_smoothing=-0.1), "label_smoothing is -0.1, must be 0 to 1"),
        (dict(softcap=-1.0), "softcap is -1.0, must be None or greater than 0"),
        (dict(softcap=0.0), "softcap is 0.0, must be None or greater than 0"),
    ],
)
@pytest.mark.parametrize("kind", [AssertionError, ValueError])
def test_options_are_checked_at_construction(loss, options, sentence, kind):
    with pytest.raises(kind, match=sentence):
        loss(**options)


def test_modules_hold_their_options():
    options = dict(ignore_index=3, lse_square_scale=0.1, label_smoothing=0.2, reduction="sum", softcap=5.0)
    wanted = dict(return_z_loss=True, return_token_accuracy=True, return_predicted_tokens=True)
    fused = dict(accum_dtype=torch.float32, use_token_scaling=True)
    for module, given in (
        (liger.LigerCrossEntropyLoss, options | wanted),
        (liger.LigerFusedLinearCrossEntropyLoss, options | wanted | fused),
    ):
        made = module(**given)
        assert {name: getattr(made, name) for name in given} == given
    weight = torch.rand(V)
    assert liger.LigerCrossEntropyLoss(weight).weight is weight
    assert liger.LigerFusedLinearCrossEntropyLoss(weight).ce_weight is weight


def test_modules_use_their_options():
    torch.manual_seed(0)
    x, head, bias, weight = torch.randn(6, H), torch.randn(V, H), torch.randn(V), class_weight(torch.float32)
    logits, target = x @ head.T + bias, TARGET.flatten()
    options = IGNORED, 0.1, 0.2, "sum", 5.0
    want, want_z = formula(logits.double(), target, weight, 0.1, 0.2, "sum", 5.0)
    outputs = liger.LigerCrossEntropyLoss(weight, *options, True)(logits, target)
    assert_near(outputs.loss, want, torch.float32)
    assert_near(outputs.z_loss, want_z, torch.float32)
    want, _ = formula(logits.double(), target, weight, 0.1, 0.2, "sum", 5.0, token_scaling=True)
    module = liger.LigerFusedLinearCrossEntropyLoss(weight, *options, use_token_scaling=True)
    assert_near(module(head, x, target, bias), want, torch.float32)


@pytest.mark.parametrize("kind", [AssertionError, ValueError])
def test_a_label_out_of_range(kind):
    for label in (V, -1):
        target = torch.tensor([0, label])
        sentence = rf"labels\[1\] is {label}, must be 0 to 36 .*out of bounds"
        with pytest.raises(kind, match=sentence):
            liger.liger_cross_entropy(torch.randn(2, V), target)
        with pytest.raises(kind, match=sentence):
            liger.LigerFusedLinearCrossEntropyLoss()(torch.randn(V, H), torch.randn(2, H), target)


def test_what_is_refused():
    x, target = torch.randn(2, V), torch.tensor([0, 1])
    with pytest.raises(AssertionError, match="weight.dtype is int64, must be a floating dtype"):
        liger.liger_cross_entropy(x, target, torch.ones(V, dtype=torch.long))
    with pytest.raises(AssertionError, match="ce_weight.dtype is int64, must be a floating dtype"):
        liger.liger_fused_linear_cross_entropy(x, torch.randn(5, V), target, ce_weight=torch.ones(5, dtype=torch.long))
    with pytest.raises(AssertionError, match=f"must be {V}"):
        liger.liger_cross_entropy(x, target, torch.ones(V - 1))
    with pytest.raises(TypeError, match="f(loat)?64"):
        liger.liger_cross_entropy(x.double(), target)


def test_autocast():
    """The head runs in autocast's dtype, what is looked at besides as the loss itself."""
    torch.manual_seed(0)
    x, head, target = torch.randn(6, H), torch.randn(V, H), TARGET.flatten()
    options = dict(ignore_index=IGNORED, lse_square_scale=0.1, use_token_scaling=True, return_z_loss=True)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = liger.liger_fused_linear_cross_entropy(x, head, target, **options)
    want = liger.liger_fused_linear_cross_entropy(x.bfloat16(), head.bfloat16(), target, **options)
    assert torch.equal(outputs.loss, want.loss) and torch.equal(outputs.z_loss.bfloat16(), want.z_loss)


def test_torch_compile_has_no_graph_break():
    torch.manual_seed(0)
    x, target, weight = torch.randn(6, V, requires_grad=True), TARGET.flatten(), class_weight(torch.bfloat16)
    options = dict(weight=weight, ignore_index=IGNORED, lse_square_scale=0.1, return_z_loss=True)

    def compiled(function):
        return torch.compile(function, fullgraph=True, backend="eager")

    want = liger.liger_cross_entropy(x, target, **options)
    got = compiled(liger.liger_cross_entropy)(x, target, **options)
    assert torch.equal(got.loss, want.loss) and torch.equal(got.z_loss, want.z_loss)
    module, head = liger.LigerFusedLinearCrossEntropyLoss(use_token_scaling=True), torch.randn(11, V)
    assert torch.equal(compiled(module)(head, x, target.clamp(max=10)), module(head, x, target.clamp(max=10)))
    norm = nn.Sequential(liger.LigerRMSNorm(V), liger.LigerLayerNorm(V))
    assert torch.equal(compiled(norm)(x), norm(x))
