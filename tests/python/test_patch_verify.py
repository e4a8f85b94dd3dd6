"""After the trials tigon.patch compares each replaced module with its own forward, and leaves no trace of that."""

import random

import torch
from test_patch_head import outputs, with_forward
from test_patch_structure import CONVENTIONS, MLP, Norm, attention, only, turn
from test_patch_trials import Variant
from tiny_models import batch, model
from torch import nn

import tigon


class TestVerify:
    """After the trials each replaced module is compared with its own forward."""

    def beyond_the_trials(self):
        return Variant(after=lambda self, y: y * 1.001 if y.shape[:2] == (2, 2) else y)

    def test_what_differs_is_put_back(self):
        mlp = self.beyond_the_trials()
        left = only(mlp, "left")
        assert left.text.startswith("verified in evaluation mode, it is ") and "from stock, must be" in left.text
        assert "forward" not in vars(mlp)
        assert tigon.patch(mlp, verify=False).counts() == dict(mlp=1)

    def test_of_ropes(self):
        def wide(q, k, cos, sin, unsqueeze_dim=1):
            q, k = turn(q, k, cos, sin, unsqueeze_dim)
            return (q * 1.001, k) if q.shape[-1] == 64 else (q, k)

        assert "from stock" in only(attention(wide), "left").text

    def test_of_the_head(self):
        def change(self, hidden, labels):
            logits = self.lm_head(hidden)
            return outputs(self, logits * 2 if hidden.dtype == torch.bfloat16 else logits, labels)

        patched = with_forward(change).bfloat16()
        (left,) = tigon.patch(patched).left
        assert left.kind == "loss" and left.text.startswith("verified in evaluation mode")
        assert "loss" not in tigon.patch(patched, loss=False).counts() and "forward" not in vars(patched.lm_head)

    def test_leaves_no_trace(self):
        patched = model("Gemma3")
        patched.model.norm.register_forward_hook(lambda *_: seen.append(1))
        patched.model.layers[0].mlp.up_proj.register_forward_pre_hook(lambda *_: seen.append(1))
        patched.lm_head.register_forward_hook(lambda *_: seen.append(1))
        seen, ids = [], batch()[0]
        patched(ids, labels=ids).loss.backward()
        seen.clear()
        patched.model.layers[1].eval()
        before = [(n, p.clone(), p.grad.clone(), p._version) for n, p in patched.named_parameters()]
        buffers = [(n, b.clone(), b._version) for n, b in patched.named_buffers()]
        modes = [m.training for m in patched.modules()]
        state, pythons = torch.get_rng_state(), random.getstate()
        assert tigon.patch(patched).counts()["loss"] == 1
        assert torch.equal(torch.get_rng_state(), state) and random.getstate() == pythons
        assert modes == [m.training for m in patched.modules()] and not seen
        for (_, value, grad, version), p in zip(before, patched.parameters()):
            assert torch.equal(p, value) and torch.equal(p.grad, grad) and p._version == version
        for (_, value, version), b in zip(buffers, patched.buffers()):
            assert torch.equal(b, value) and b._version == version

    def test_what_has_no_weights_is_named(self):
        with torch.device("meta"):
            parts = nn.Sequential(Norm(CONVENTIONS["Llama"]), MLP(nn.SiLU()))
        report = tigon.patch(parts)
        assert [str(entry.text) for entry in report.unverified] == [
            "its weight is on the device meta",
            "its gate_proj.weight is on the device meta",
        ]
        assert len(report.replaced) == 2 and "not verified 2:" in str(report)
        assert not tigon.patch(parts, verify=False).unverified

    def test_weights_that_are_not_finite_are_named(self):
        """As memory is before the weights are loaded."""
        mlp = MLP(nn.SiLU())
        mlp.up_proj.weight.data.fill_(float("nan"))
        report = tigon.patch(mlp)
        assert report.counts() == dict(mlp=1)
        assert report.unverified[0].text == "its own output in evaluation mode is not finite"

    def test_quantised_weights_are_named(self):
        mlp = MLP(nn.SiLU())
        mlp.up_proj.weight = nn.Parameter(torch.zeros(24, 16, dtype=torch.int8), requires_grad=False)
        (entry,) = tigon.patch(mlp).unverified
        assert entry.text == "its up_proj.weight is a Parameter of int8"
