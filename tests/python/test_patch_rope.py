"""The ropes that tigon.patch takes: of one tensor, of images, complex ones; and strangers' that it must leave."""

import functools

import pytest
import torch
from test_patch_structure import attention, only, rotate_half, rotate_pairs, turn
from torch import nn

import tigon


def one(x, cos, sin, unsqueeze_dim=1):
    return x * cos.unsqueeze(unsqueeze_dim) + rotate_half(x) * sin.unsqueeze(unsqueeze_dim)


def last(x, cos, sin, unsqueeze_dim=1):
    cos, sin = (t.repeat_interleave(2, -1).unsqueeze(unsqueeze_dim) for t in (cos, sin))
    keep, turning = x[..., : -cos.shape[-1]], x[..., -cos.shape[-1] :]
    return torch.cat([keep, turning * cos + rotate_pairs(turning) * sin], -1)


def vision(q, k, cos, sin):
    cos, sin = cos.unsqueeze(-2).float(), sin.unsqueeze(-2).float()
    return tuple((x.float() * cos + rotate_half(x.float()) * sin).to(x.dtype) for x in (q, k))


def complexes(xq, xk, freqs_cis):
    turned = (torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * freqs_cis[:, :, None] for x in (xq, xk))
    return tuple(torch.view_as_real(x).flatten(3).type_as(xq) for x in turned)


def calls(function, *names):
    """An attention whose forward calls the function with these arguments."""
    scope = {"rotary": function}
    exec(f"def forward(self, {', '.join(names)}):\n    return rotary({', '.join(names)})", scope)
    return type("Attention", (nn.Module,), {"forward": scope["forward"]})()


def both(module, *arguments):
    """(ours, stock) as tuples, and whether ours is Tigon's."""
    stock = type(module).forward(module, *arguments)
    ours = module(*arguments)
    name = str(ours[0].grad_fn if isinstance(ours, tuple) else ours.grad_fn)
    ours, stock = (x if isinstance(x, tuple) else (x,) for x in (ours, stock))
    nodes, tigons = [x.grad_fn for x in ours], "ropeBackward" in name
    for _ in range(4):
        nodes = [n for node in nodes if node is not None for n, _ in node.next_functions]
        tigons = tigons or "ropeBackward" in str(nodes)
    return ours, stock, tigons


def heads(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()


class TestRope:
    def same(self, module, *arguments):
        assert only(module).kind == "rope"
        ours, stock, tigons = both(module, *arguments)
        assert tigons and len(ours) == len(stock)
        for mine, theirs in zip(ours, stock):
            assert mine.dtype == theirs.dtype
            eps = torch.finfo(mine.dtype).eps
            torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=8 * eps)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_one_tensor(self, dtype):
        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        self.same(
            calls(one, "x", "cos", "sin"), heads(2, 3, 6, 16, dtype=dtype), angle.cos().to(dtype), angle.sin().to(dtype)
        )
        scope = calls(one, "x", "cos", "sin", "unsqueeze_dim")
        self.same(scope, heads(2, 6, 3, 16, dtype=dtype), angle.cos().to(dtype), angle.sin().to(dtype), 2)

    @pytest.mark.parametrize("width", [16, 24])
    def test_the_last_of_a_head(self, width):
        angle = torch.randn(2, 6, 8)
        self.same(calls(last, "x", "cos", "sin"), heads(2, 3, 6, width), angle.cos(), angle.sin())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_vision(self, dtype):
        angle = torch.randn(6, 8).repeat(1, 2)
        q, k = heads(6, 3, 16, dtype=dtype), heads(6, 3, 16, dtype=dtype)
        self.same(calls(vision, "q", "k", "cos", "sin"), q, k, angle.cos(), angle.sin())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_complex(self, dtype):
        table = torch.polar(torch.rand(2, 6, 8) + 0.5, torch.randn(2, 6, 8))
        q, k = heads(2, 6, 3, 16, dtype=dtype), heads(2, 6, 1, 16, dtype=dtype)
        self.same(calls(complexes, "xq", "xk", "freqs_cis"), q, k, table)

    def test_tables_of_f32_give_f32(self):
        """What autocast makes of an attention: heads of bf16, tables of f32."""
        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        q, k = heads(2, 4, 6, 16, dtype=torch.bfloat16), heads(2, 2, 6, 16, dtype=torch.bfloat16)
        self.same(attention(turn), q, k, angle.cos(), angle.sin())

    @pytest.mark.parametrize(
        "strange",
        [
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k.detach(), cos, sin, unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q.clamp(-100, 100), k, cos, sin, unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k, cos, sin.flip(0), unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k * 2, cos, sin, unsqueeze_dim),
        ],
        ids=["detaches k", "clamps q", "other tables", "scales k"],
    )
    def test_strange(self, strange):
        assert only(attention(strange), "left").kind == "rope"

    def test_what_was_not_tried_runs_stock(self):
        """unsqueeze_dim that the function ignores, tables longer than the tokens, heads wider than the tables."""

        def ignores(q, k, cos, sin, unsqueeze_dim=1):
            return turn(q, k, cos, sin, 1)

        torch.manual_seed(0)
        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        module = attention(ignores, 2)
        tigon.patch(module)
        q, k = heads(2, 4, 6, 16), heads(2, 2, 6, 16)
        ours, stock, tigons = both(module, q, k, angle.cos(), angle.sin())
        for x, mine, theirs in zip((q, k), ours, stock):
            # Two products and their sum: each side is within 2 eps of the largest element, as |cos|, |sin| <= 1.
            assert (mine - theirs).abs().max() <= 4 * torch.finfo(x.dtype).eps * x.abs().max()
        module = attention(turn)
        tigon.patch(module)
        with pytest.raises(RuntimeError, match="must match the size"):
            module(q[:, :, :5], k[:, :, :5], angle.cos(), angle.sin())
        table = angle.cos().requires_grad_()
        assert not both(module, q, k, table, angle.sin())[2]

    def test_the_last_elements_are_not_the_first(self):
        """Both agree where all of a head turns."""

        def turn_last(q, k, cos, sin, unsqueeze_dim=1):
            wide = cos.shape[-1]
            turned = turn(q[..., -wide:], k[..., -wide:], cos, sin, unsqueeze_dim)
            return tuple(torch.cat([x[..., :-wide], y], -1) for x, y in zip((q, k), turned))

        angle = torch.randn(2, 6, 4).repeat(1, 1, 2)
        self.same(attention(turn_last), heads(2, 4, 6, 16), heads(2, 2, 6, 16), angle.cos(), angle.sin())

    def test_keys_may_be_missing(self):
        def rotary(q, k=None, cos=None, sin=None, unsqueeze_dim=1):
            turned = turn(q, q if k is None else k, cos, sin, unsqueeze_dim)
            return turned[0] if k is None else turned

        scope = {"rotary": rotary}
        exec("def forward(self, q, cos, sin):\n    return rotary(q, cos=cos, sin=sin, unsqueeze_dim=1)", scope)
        module, angle = type("Attention", (nn.Module,), {"forward": scope["forward"]})(), torch.randn(2, 6, 16)
        assert only(module).kind == "rope"
        q = heads(2, 3, 6, 16)
        assert torch.equal(module(q, angle.cos(), angle.sin()), turn(q, q, angle.cos(), angle.sin())[0])

    def test_within_decorators(self):
        times = []

        def counted(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                times.append(function)
                return function(*arguments)

            return wrapper

        module, angle = attention(turn), torch.randn(2, 6, 8).repeat(1, 1, 2)
        type(module).forward = counted(counted(type(module).forward))
        arguments = heads(2, 4, 6, 16), heads(2, 2, 6, 16), angle.cos(), angle.sin()
        self.same(module, *arguments)
        times.clear()
        module(*arguments)
        assert len(times) == 2

    def test_a_decorator_without_a_closure_is_said(self):
        module, kept = attention(turn), []
        kept.append(type(module).forward)
        type(module).forward = functools.wraps(kept[0])(lambda *arguments: kept[0](*arguments))
        assert only(module, "left").text == "its forward calls rotary, and is wrapped by a decorator"

    def test_a_method_is_said(self):
        class Attention(nn.Module):
            def rotary(self, q):
                return q

            def forward(self, q):
                return self.rotary(q)

        assert only(Attention(), "left").text == "its rope is its own method rotary"

    def test_other_arguments_are_said(self):
        def rotary(tensor, sin, cos):
            return tensor * cos + sin

        assert only(calls(rotary, "tensor", "sin", "cos"), "left").text == "rotary takes tensor, sin, cos"
