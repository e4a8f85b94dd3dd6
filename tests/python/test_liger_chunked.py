"""tigon.compat.liger's chunked losses and its GRPO of logits against the papers' formulas in f64."""

import pytest
import test_torch_policies as policies
import test_torch_preferences as preferences
import torch
import torch.nn.functional as F

from tigon.compat.liger import chunked_loss
from tigon.compat.liger.chunked_loss import functional
from tigon.compat.liger.ops.grpo_loss import GrpoLossFunction, fused_selective_log_softmax
from tigon.compat.liger.transformers.grpo_loss import triton_grpo_loss
from tigon.torch.functional import policy_loss

N, T, H, V = 6, 5, 16, 37
TARGET = torch.randint(V, (N, T), generator=torch.Generator().manual_seed(7))
TARGET[0, 3:] = TARGET[2, :2] = TARGET[4, 1:] = -100
COUNTED = TARGET != -100
COUNTS = COUNTED.sum(-1)
BETA = preferences.BETA
PAIRS = preferences.PAIRS | dict(bco_pair=lambda a, b: -F.logsigmoid(BETA * a) - F.logsigmoid(-BETA * b))


def head(seed, rows=N):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=generator)
    return draw(rows, T, H), draw(V, H) / 2, draw(V)


def logits_of(hidden, weight, bias):
    return hidden @ weight.T + bias


def each_logprob(tensors, target):
    """[N, T], 0 where the target is ignored."""
    logs = logits_of(*tensors).log_softmax(-1)
    return logs.gather(-1, target.clamp(min=0)[..., None]).squeeze(-1) * (target != -100)


def near(found, wanted):
    """f32 roundings of log-probabilities below 16 and of sums and differences of six: of the largest number, or where
    that is what a difference left over, of 0.05."""
    assert found.shape == wanted.shape
    assert (found.double() - wanted).abs().max().item() <= 2e-5 * max(wanted.detach().abs().max().item(), 0.05)


def compare(ours, wanted, leaves, exact):
    """Loss, returned tensors, and gradients of 1.5 times the loss."""
    assert len(ours[1]) == len(wanted[1])
    near(ours[0], wanted[0])
    for found, must in zip(ours[1], wanted[1]):
        near(found, must)
    gradient = lambda loss, of: torch.autograd.grad(1.5 * loss, of, retain_graph=True)
    for found, must in zip(gradient(ours[0], leaves), gradient(wanted[0], exact)):
        near(found, must)


def pair_formula(kind, tensors, reference, average, alpha, nll_target=None):
    logps = each_logprob(tensors, TARGET).sum(-1)
    ref = each_logprob(reference, TARGET).sum(-1).detach() if reference else torch.zeros(N).double()
    if average:
        logps, ref = logps / COUNTS, ref / COUNTS
    a, b = (logps - ref).chunk(2)
    loss = PAIRS[kind](a, b).mean()
    nll_target = (TARGET if nll_target is None else nll_target)[: N // 2]
    chosen = [tensors[0][: N // 2], *tensors[1:]]
    nll = -each_logprob(chosen, nll_target).sum() / (nll_target != -100).sum()
    mean = (logits_of(*tensors).mean(-1) * COUNTED).view(2, -1).sum(-1) / COUNTED.view(2, -1).sum(-1)
    more = [nll if alpha else torch.zeros(()).double(), BETA * a, BETA * b]
    if kind == "orpo":
        odds = preferences.log_odds(a) - preferences.log_odds(b)
        more += [F.logsigmoid(odds).mean(), odds.mean()]
    return loss + alpha * nll, [*logps.chunk(2), *mean, *more]


@pytest.mark.parametrize("nll", [False, True], ids=["", "nll"])
@pytest.mark.parametrize("average", [False, True], ids=["sums", "means"])
@pytest.mark.parametrize("kind", sorted(PAIRS))
def test_pairs(kind, average, nll):
    alpha = 0.0 if not nll else 1.0 if kind == "orpo" else 0.75
    name = {"cpo": "CPO", "simpo": "SimPO", "orpo": "ORPO"}.get(kind, "DPO")
    if kind in ("simpo", "orpo", "ipo") and not average:
        pytest.skip("of means alone")
    options = dict(beta=BETA, compute_nll_loss=nll)
    if kind != "orpo":
        options |= dict(label_smoothing=0.25, alpha=0.75)
    if name == "DPO":
        options |= dict(loss_type=kind)
    if name in ("DPO", "CPO"):
        options |= dict(average_log_prob=average)
    leaves = [t.requires_grad_() for t in head(1)]
    exact = [t.detach().double().requires_grad_() for t in leaves]
    reference = head(2) if name == "DPO" else ()
    hidden, weight, bias = leaves
    loss = getattr(chunked_loss, f"LigerFusedLinear{name}Loss")(**options)
    ours = loss(weight, hidden, TARGET, bias, *reference)
    wanted = pair_formula(kind, exact, [t.double() for t in reference], average, alpha)
    compare(ours, wanted, leaves, exact)


def test_orpo_has_labels_of_its_own_for_the_nll():
    labels = TARGET.roll(1, 0)
    leaves = [t.requires_grad_() for t in head(1)]
    exact = [t.detach().double().requires_grad_() for t in leaves]
    ours = functional.liger_fused_linear_orpo(leaves[0], leaves[1], TARGET, leaves[2], -100, BETA, True, labels)
    compare(ours, pair_formula("orpo", exact, (), True, 1.0, labels), leaves, exact)


@pytest.mark.parametrize("kl", [None, 0.375, "each"], ids=str)
@pytest.mark.parametrize("average", [False, True], ids=["sums", "means"])
@pytest.mark.parametrize("with_reference", [False, True], ids=["", "reference"])
def test_kto(with_reference, average, kl):
    labels = torch.tensor([True, False, False, True, True, False])
    if kl is not None:
        kl = torch.rand(N, generator=torch.Generator().manual_seed(3)) if kl == "each" else torch.tensor(kl)
    leaves = [t.requires_grad_() for t in head(1)]
    exact = [t.detach().double().requires_grad_() for t in leaves]
    reference = head(2) if with_reference else (None,) * 3
    loss = chunked_loss.LigerFusedLinearKTOLoss(beta=BETA, use_ref_model=with_reference, average_log_prob=average)
    ours = loss(leaves[0], leaves[1], TARGET, leaves[2], labels, *reference, kl)

    logps, ref = each_logprob(exact, TARGET).sum(-1), torch.zeros(N).double()
    if with_reference:
        ref = each_logprob([t.double() for t in reference], TARGET).sum(-1)
    if average:
        logps, ref = logps / COUNTS, ref / COUNTS
    y = 2.0 * labels - 1
    wanted = (1 - torch.sigmoid(y * BETA * (logps - ref - (0 if kl is None else kl.double())))).mean()
    sums = (logits_of(*exact).sum(-1) * COUNTED).sum(-1)
    each = [(t * side).sum() for t in (logps, sums, BETA * (logps - ref)) for side in (labels, ~labels)]
    compare(ours, (wanted, each), leaves, exact)


@pytest.mark.parametrize("kind", ["ipo", "simpo", "orpo", "kto"])
def test_a_sequence_without_tokens(kind):
    """Its mean is 0 and it has no gradient; Liger-Kernel's mean is NaN."""
    target = TARGET.clone()
    target[1] = -100
    hidden, weight, bias = (t.requires_grad_() for t in head(1))
    if kind == "kto":
        labels = torch.tensor([True, False] * 3)
        loss, returned = functional.liger_fused_linear_kto(
            hidden, weight, target, labels, bias, use_ref_model=False, average_log_prob=True
        )
    elif kind == "ipo":
        made = chunked_loss.LigerFusedLinearDPOLoss(loss_type="ipo", use_ref_model=False)
        loss, returned = made(weight, hidden, target, bias)
        assert returned[0][1] == 0
    else:
        loss, returned = getattr(functional, f"liger_fused_linear_{kind}")(hidden, weight, target, bias)
        assert returned[0][1] == 0
    assert loss.isfinite() and all(t.isfinite().all() for t in returned)
    gradient = torch.autograd.grad(loss, hidden)[0]
    assert gradient.isfinite().all() and not gradient[1].any() and gradient[0].any()


def test_the_returned_log_probabilities_have_gradients():
    """With which a caller's own term trains; Liger-Kernel drops them."""
    hidden, weight, bias = (t.requires_grad_() for t in head(1))
    _, returned = functional.liger_fused_linear_cpo(hidden, weight, TARGET, bias)
    exact = [t.detach().double().requires_grad_() for t in (hidden, weight, bias)]
    gradient = torch.autograd.grad(returned[0].sum(), hidden)[0]
    near(gradient, torch.autograd.grad(each_logprob(exact, TARGET)[: N // 2].sum(), exact[0])[0])


@pytest.mark.parametrize(
    "name, options, sentence",
    [
        ("DPO", dict(loss_type="sigmoids"), "loss_type is 'sigmoids', must be one of sigmoid, hinge"),
        ("DPO", dict(loss_type="exo_pair"), "label_smoothing must be > 0 for loss_type='exo_pair'"),
        ("DPO", dict(loss_type="robust", label_smoothing=0.5), "label_smoothing is 0.5, must be from 0 to below 0.5"),
        ("GRPO", dict(sapo_temperature_pos=0.0), "sapo_temperature_pos is 0.0, must be greater than 0"),
        ("GRPO", dict(delta=-1.0), "delta is -1.0, must be greater than 0"),
    ],
)
def test_refused_options(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        getattr(chunked_loss, f"LigerFusedLinear{name}Loss")(**options)


def test_refused_calls():
    hidden, weight, bias = head(1)
    with pytest.raises(ValueError, match=r"target.shape\[0\] is 5, must be even"):
        chunked_loss.LigerFusedLinearCPOLoss()(weight, hidden[:5], TARGET[:5], bias)
    with pytest.raises(AssertionError, match="ref_input or ref_weight is None, must be there: use_ref_model"):
        chunked_loss.LigerFusedLinearDPOLoss()(weight, hidden, TARGET, bias)
    with pytest.raises(AssertionError, match="preference_labels is None"):
        chunked_loss.LigerFusedLinearKTOLoss()(hidden, weight, TARGET, bias)
    given = hidden, weight, TARGET.clamp(min=0), COUNTED, torch.ones(N)
    grpo = lambda **o: functional.liger_fused_linear_grpo(*given, ref_per_token_logps=torch.zeros(N, T), **o)
    for options, sentence in (
        (dict(loss_type="ppo"), "loss_type is 'ppo', must be one of grpo, bnpo"),
        (dict(loss_type="dr_grpo"), "max_completion_length is None, must be there"),
        (dict(loss_type="sapo", importance_sampling_level="sequence"), "must be 'token' with 'sapo'"),
        (dict(loss_type="cispo", delta=2.0), "delta is 2.0, must be None with loss_type 'cispo'"),
        (dict(vllm_is_ratio=torch.ones(N, 2)), r"vllm_is_ratio.shape is \[6, 2\], must be one of"),
        (dict(importance_sampling_level="group"), "importance_sampling_level is 'group'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            grpo(**options)
    with pytest.raises(AssertionError, match="ref_per_token_logps or ref_input is None"):
        functional.liger_fused_linear_grpo(*given)


B, WIDTH, MASK = policies.B, policies.WIDTH, policies.MASK
KL = 0.25  # that of test_torch_policies' formula, as are these
LIMITS = dict(epsilon_low=0.2, epsilon_high=0.28, delta=1.25)
OF_TOKENS = "cispo", "sapo", "vespo"
LEVELS = [(kind, "token") for kind in policies.KINDS]
LEVELS += [(kind, "sequence") for kind in policies.KINDS if kind not in OF_TOKENS]


def policy_head():
    generator = torch.Generator().manual_seed(4)
    draw = lambda *shape: torch.randn(shape, generator=generator)
    ids = torch.randint(V, (B, WIDTH), generator=generator)
    return (draw(B, WIDTH, H), draw(V, H) / 2, draw(V)), ids


def policy_formula(kind, level, l, old, ref, advantage, ratio):
    return policies.plain(kind, level, l, old, ref, torch.zeros_like(l), advantage[:, None], ratio[:, None])


def options_of(kind):
    limits = LIMITS if kind not in OF_TOKENS else dict(epsilon_high=5.0 if kind == "cispo" else 0.28)
    return limits | dict(max_completion_length=WIDTH if kind == "dr_grpo" else None)


def clip_share(kind, level, l, old, advantage):
    """Of tokens that count: beyond the limit that their advantage runs into."""
    d = l - old
    rho = ((d * MASK).sum(1, keepdim=True) / MASK.sum(1, keepdim=True) if level == "sequence" else d).exp()
    a = advantage[:, None]
    if kind in ("sapo", "vespo"):
        return torch.zeros(()).double()
    low, high = (-1.0, 5.0) if kind == "cispo" else (0.8, 1.28)
    clipped = ((rho < low) & (a < 0)) | ((rho > high) & (a > 0))
    return (clipped * MASK).sum() / MASK.sum()


@pytest.mark.parametrize("reference", ["logps", "head", "none"])
@pytest.mark.parametrize("kind, level", LEVELS)
def test_grpo(kind, level, reference):
    tensors, ids = policy_head()
    leaves = [t.requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    temperature = 0.8
    each = lambda t: (logits_of(*t) / temperature).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    l = each(exact)
    generator = torch.Generator().manual_seed(5)
    noise = lambda: (torch.rand(B, WIDTH, generator=generator).double() - 0.5).float()
    old, advantage = (l.detach() + noise()).float(), torch.tensor([0.5, -1.5, 1.0])
    ratio = torch.rand(B, generator=generator) + 0.5
    given, more = dict(old_per_token_logps=old, vllm_is_ratio=ratio), {}
    if reference == "logps":
        ref = (l.detach() + noise()).float()
        given["ref_per_token_logps"] = ref
    elif reference == "head":
        frozen = policy_head()[0]
        frozen = frozen[0].roll(1, 0), frozen[1], frozen[2]
        ref = each([t.double() for t in frozen])
        given |= dict(zip(("ref_input", "ref_weight", "ref_bias"), frozen))
    else:
        ref, more = l.detach(), dict(use_ref_model=False)
    made = chunked_loss.LigerFusedLinearGRPOLoss(
        beta=KL, loss_type=kind, importance_sampling_level=level, temperature=temperature, **options_of(kind), **more
    )
    ours = made(leaves[0], leaves[1], ids, MASK, advantage, leaves[2], **given)
    doubles = [t.double() for t in (old, ref, advantage, ratio)]
    wanted = policy_formula(kind, level, l, *doubles)
    d = doubles[1] - l.detach()
    kl = ((d.exp() - d - 1) * MASK).sum() / MASK.sum()
    compare(ours, (wanted, [kl, clip_share(kind, level, l.detach(), doubles[0], doubles[2])]), leaves, exact)


def grpo_on_logits(**options):
    """A call of triton_grpo_loss on its own draw, and what the formula takes."""
    generator = torch.Generator().manual_seed(6)
    logits = 2 * torch.randn(B, WIDTH + 1, V, generator=generator)
    ids = torch.randint(V, (B, WIDTH), generator=generator)
    exact = logits.double().requires_grad_()
    l = (exact[:, :-1] / 0.9).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    noise = lambda: torch.rand(B, WIDTH, generator=generator) - 0.5
    old, ref = ((l.detach() + noise()).float() for _ in range(2))
    advantage, ratio = torch.tensor([0.5, -1.5, 1.0]), torch.rand(B, generator=generator) + 0.5
    leaf = logits.clone().requires_grad_()
    options |= dict(beta=KL, vllm_is_ratio=ratio)
    run = lambda given: triton_grpo_loss(given, old, ref, ids, advantage, MASK, **options)
    return leaf, run, exact, l, [t.double() for t in (old, ref, advantage, ratio)], ids


def triton_options(kind, level):
    named = {f"eps_{name.removeprefix('epsilon_')}": value for name, value in options_of(kind).items() if "eps" in name}
    others = {name: value for name, value in options_of(kind).items() if "eps" not in name}
    return dict(loss_type=kind, importance_sampling_level=level) | named | others


@pytest.mark.parametrize("inplace", [False, True], ids=["", "inplace"])
@pytest.mark.parametrize("kind, level", LEVELS)
def test_grpo_of_logits(kind, level, inplace):
    leaf, run, exact, l, doubles, _ = grpo_on_logits(**triton_options(kind, level), reduce=True, inplace=inplace)
    wanted = policy_formula(kind, level, l, *doubles)
    (must,) = torch.autograd.grad(1.5 * wanted, exact)
    given = leaf.clone()
    loss, metrics = run(given)
    assert len(metrics) == 2
    near(loss, wanted)
    near(metrics[1], clip_share(kind, level, l.detach(), doubles[0], doubles[2]))
    before = given.detach().clone()
    (found,) = torch.autograd.grad(1.5 * loss, given)
    near(found, must)
    assert not found[:, -1].any() and not found[MASK.logical_not().nonzero(as_tuple=True)].any()
    assert torch.equal(given.detach(), found if inplace else before)


@pytest.mark.parametrize("kind, level", LEVELS)
def test_grpo_of_logits_by_tokens(kind, level):
    leaf, run, exact, l, doubles, _ = grpo_on_logits(**triton_options(kind, level), reduce=False, inplace=False)
    old, ref, advantage, ratio = doubles
    each = policies.token_losses(kind, level, l, old, advantage[:, None], ratio[:, None])
    d = ref - l
    kl = (d.exp() - d - 1) * MASK
    wanted = each * MASK + KL * kl
    upstream = torch.rand(B, WIDTH, generator=torch.Generator().manual_seed(8))
    loss, found_kl, clipped = run(leaf)
    near(loss, wanted)
    near(found_kl, kl.detach())
    near((clipped.sum() / MASK.sum()).double(), clip_share(kind, level, l.detach(), old, advantage))
    (gradient,) = torch.autograd.grad((loss * upstream).sum(), leaf)
    near(gradient, torch.autograd.grad((wanted * upstream).sum(), exact)[0])
    # Its maths is that of policy_loss, which gives each token's loss without a gradient.
    names = dict(old=old, ref=ref, ratio=ratio, mask=MASK, kind=kind, level=level, kl_weight=KL, outputs=True)
    limits = options_of(kind)
    names |= dict(eps_high=limits["epsilon_high"], delta=limits.get("delta"))
    near(loss, policy_loss(l.detach().float(), advantage.float(), **names).token_loss.double())


@pytest.mark.parametrize("kind, level", LEVELS)
def test_a_ratio_of_each_token(kind, level):
    """By tokens as policy_loss has them, and their weighted sum is the reduced loss of it."""
    leaf, _, _, l, (old, ref, advantage, _), ids = grpo_on_logits()
    ratio = torch.rand(B, WIDTH, generator=torch.Generator().manual_seed(9)) + 0.5
    given = leaf, old.float(), ref.float(), ids, advantage.float(), MASK
    options = triton_options(kind, level) | dict(beta=KL, vllm_is_ratio=ratio, inplace=False)
    (each, _, _), (loss, _) = (triton_grpo_loss(*given, **options, reduce=reduce) for reduce in (False, True))
    limits = options_of(kind)
    wanted = policy_loss(
        *(l.detach().float(), advantage.float()),
        **dict(old=old, ref=ref, ratio=ratio, mask=MASK, kind=kind, level=level, kl_weight=KL, outputs=True),
        **dict(eps_high=limits["epsilon_high"], delta=limits.get("delta")),
    )
    near(each, wanted.token_loss.double())
    near(loss, wanted.loss.double())


def test_what_is_outside_of_the_mask_is_not_read():
    """old and ref hold NaN there, as a sampler may leave it."""
    leaf, _, _, l, (old, ref, advantage, _), ids = grpo_on_logits()
    old, ref = (t.float().where(MASK != 0, torch.nan) for t in (old, ref))
    for reduce in (False, True):
        found = triton_grpo_loss(leaf, old, ref, ids, advantage.float(), MASK, reduce=reduce, inplace=False)
        loss = found[0] if reduce else found[0].sum()
        assert loss.isfinite() and torch.autograd.grad(loss, leaf)[0].isfinite().all()


def test_bias_corrected_kl_is_weighted_by_rho():
    leaf, _, _, l, (old, ref, advantage, _), ids = grpo_on_logits()
    _, (kl, _) = triton_grpo_loss(
        leaf, old.float(), ref.float(), ids, advantage.float(), MASK, reduce=True, use_bias_correction_kl=True
    )
    d = ref - l.detach()
    near(kl, ((d.exp() - d - 1) * (l.detach() - old).exp() * MASK).sum() / MASK.sum())


def test_a_second_backward_over_logits_that_are_gone():
    leaf, run, *_ = grpo_on_logits(reduce=True)
    loss, _ = run(leaf.clone())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_grpo_function_and_selective_log_softmax():
    leaf, _, _, l, (old, ref, advantage, _), ids = grpo_on_logits()
    given = leaf, old.float(), ref.float(), ids, advantage.float(), MASK, 0.9, 0.04, 0.2, 0.4, False
    loss, kl, clipped = GrpoLossFunction.apply(*given, "grpo")
    also, metrics = triton_grpo_loss(*given[:6], loss_type="grpo", reduce=True, inplace=False)
    assert torch.equal(loss, also) and torch.equal(kl, metrics[0]) and torch.equal(clipped, metrics[1])
    with pytest.raises(ValueError, match="call triton_grpo_loss"):
        GrpoLossFunction.apply(*given, "vespo")
    with pytest.raises(AssertionError, match="ref_logp is None, must be there with beta 0.04"):
        GrpoLossFunction.apply(given[0], given[1], None, *given[3:], "grpo")
    longer = torch.nn.functional.pad(ids, (2, 0))
    found = fused_selective_log_softmax(leaf, longer, 0.9, torch.nn.functional.pad(MASK, (2, 0)))
    near(found, l.detach() * MASK)
    assert not found.requires_grad


def test_items_of_all_batches():
    leaf, _, _, _, (old, ref, advantage, _), ids = grpo_on_logits()
    given = leaf, old.float(), ref.float(), ids, advantage.float(), MASK
    alone, _ = triton_grpo_loss(*given, reduce=True, inplace=False)
    for items in (26, torch.tensor(26)):
        shared, _ = triton_grpo_loss(*given, reduce=True, inplace=False, num_items_in_batch=items)
        torch.testing.assert_close(shared, alone * MASK.sum() / 26)


def test_compiled_without_a_graph_break():
    hidden, weight, bias = (t.requires_grad_() for t in head(1))
    labels, advantage = torch.tensor([True, False] * 3), torch.linspace(-1, 1, N)
    ids, logits = TARGET.clamp(min=0), logits_of(*head(1)).detach().requires_grad_()
    of_logits = dict(reduce=True, inplace=False, beta=0.0, loss_type="grpo")
    losses = {
        "orpo": lambda: functional.liger_fused_linear_orpo(hidden, weight, TARGET, bias),
        "kto": lambda: functional.liger_fused_linear_kto(hidden, weight, TARGET, labels, bias, use_ref_model=False),
        "grpo": lambda: functional.liger_fused_linear_grpo(
            hidden, weight, ids, COUNTED, advantage, bias, use_ref_model=False
        ),
        "logits": lambda: triton_grpo_loss(logits, None, None, ids[:, 1:], advantage, COUNTED[:, 1:], **of_logits),
    }
    for name, run in losses.items():
        torch._dynamo.reset()
        first = lambda: run()[0]
        compiled = torch.compile(first, fullgraph=True, backend="aot_eager")
        leaf = logits if name == "logits" else hidden
        assert torch.equal(compiled(), first())
        assert torch.equal(torch.autograd.grad(compiled(), leaf)[0], torch.autograd.grad(first(), leaf)[0])
