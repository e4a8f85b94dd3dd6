"""tigon.patch of models on a GPU: what it replaces is verified there. The random state of the GPU stays as it is."""

import pytest
import torch
from test_patch_structure import CONVENTIONS, MLP, Norm, attention, turn
from tiny_models import FAMILIES, model
from torch import nn

import tigon

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])


@DTYPES
def test_parts_are_verified(dtype):
    names = ("gate_up_proj", "down_proj")
    parts = [*(Norm(CONVENTIONS[name]) for name in CONVENTIONS), MLP(nn.SiLU()), MLP(nn.GELU(), True, names)]
    parts += [nn.LayerNorm(24), nn.GroupNorm(4, 24), nn.Embedding(50, 24), attention(turn), nn.RMSNorm(24, eps=1e-6)]
    made = nn.ModuleList(parts).to("cuda", dtype)
    states = torch.get_rng_state(), torch.cuda.get_rng_state()
    report = tigon.patch(made)
    assert len(report.replaced) == len(parts) and not report.left and not report.unverified, report
    assert all(map(torch.equal, states, (torch.get_rng_state(), torch.cuda.get_rng_state())))


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Cohere", "Phi3", "Nemotron", "Mixtral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_families_are_verified(family, dtype):
    report = tigon.patch(model(family, dtype).cuda())
    assert report.counts() == FAMILIES[family][2] and not report.unverified, report


@pytest.mark.parametrize("made", [*CONVENTIONS, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm], ids=str)
@DTYPES
def test_dtype_under_autocast(made, dtype):
    arguments = (4, 24) if made is nn.GroupNorm else (24,)
    norm = Norm(CONVENTIONS[made]) if isinstance(made, str) else made(*arguments, eps=1e-6)
    norm, x = norm.cuda(), torch.randn(5, 24, device="cuda").to(dtype)
    assert tigon.patch(norm).replaced
    with torch.autocast("cuda", torch.bfloat16):
        want = type(norm).forward(norm, x)
        assert norm(x).dtype == want.dtype
        torch.testing.assert_close(norm(x), want, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
