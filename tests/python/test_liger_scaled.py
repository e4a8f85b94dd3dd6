"""Liger-Kernel's fused_linear_scaled_cross_entropy against plain torch, with one rank and as one of one."""

import pytest
import torch

from tigon.compat.liger import ops
from tigon.compat.liger.transformers.functional import liger_fused_linear_scaled_cross_entropy_tp

apply = ops.LigerFusedLinearScaledCrossEntropyFunction.apply
TARGET = torch.tensor([3, -100, 0, 10, 3, -100, 7])
IDS = torch.tensor([4, 0, 4, 10])


def head(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in ((7, 8), (11, 8))]


def plain(hidden, weight, temperature, ids):
    logps = torch.log_softmax(hidden @ weight.T / temperature, -1)
    counted = (TARGET != -100).double()
    loss = -logps.gather(-1, TARGET.clamp(min=0)[:, None]).squeeze(-1)
    return loss * counted, -(logps.exp() * logps).sum(-1) * counted, logps[:, ids] * counted[:, None]


def gradients(outputs, inputs):
    generator = torch.Generator().manual_seed(4)
    loss = sum((o.double() * torch.randn(o.shape, generator=generator).double()).sum() for o in outputs)
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("dtype, off", [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)], ids=["f32", "bf16"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_each_token(dtype, off, temperature):
    inputs = head(dtype)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    found = apply(*inputs, TARGET, temperature, -100, 1, True, IDS)
    wanted = plain(*exact, temperature, IDS)
    for ours, theirs in zip(found, wanted):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=off, atol=off)
    for ours, theirs in zip(gradients(found, inputs), gradients(wanted, exact)):
        torch.testing.assert_close(ours.double(), theirs, rtol=off, atol=off)


def test_what_is_returned():
    inputs = head()
    loss, entropy, chosen = apply(*inputs, TARGET, return_entropy=True, selected_token_ids=IDS)
    torch.testing.assert_close(apply(*inputs, TARGET), loss)
    torch.testing.assert_close(apply(*inputs, TARGET, return_entropy=True)[1], entropy)
    torch.testing.assert_close(apply(*inputs, TARGET, selected_token_ids=IDS)[1], chosen)
    with pytest.raises(AssertionError, match="selected_token_ids.ndim is 2, must be 1"):
        apply(*inputs, TARGET, selected_token_ids=IDS[None])
    with pytest.raises(AssertionError, match="out of bounds"):
        apply(*inputs, TARGET + 11)


def test_a_group_of_one():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        inputs = head()
        wanted = apply(*inputs, TARGET, 0.7, return_entropy=True)
        of_wanted = gradients(wanted, inputs)
        for group in (None, torch.distributed.group.WORLD):
            found = liger_fused_linear_scaled_cross_entropy_tp(*inputs, TARGET, group, 0.7, return_entropy=True)
            for ours, theirs in zip(found, wanted):
                torch.testing.assert_close(ours, theirs)
            for ours, theirs in zip(gradients(found, inputs), of_wanted):
                torch.testing.assert_close(ours, theirs)
    finally:
        torch.distributed.destroy_process_group()
