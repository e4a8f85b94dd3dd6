"""multi_token_attention, attention weights that a convolution mixes, and Liger-Kernel's names of it."""

import math

import torch

from tigon.torch._derived import derived
from tigon.torch._op import Op

FUNCTIONS = ["multi_token_attention"]
MODULES = ["MultiTokenAttention"]

_NAME = "multi_token_attention"
_PLACES = {"post": 0, "pre": 1}
_SUMS = ("weight", "bias")


def _batches(*args):
    """The rule of DTensors: a rank has whole planes of scores."""
    from torch.distributed.tensor import Partial, Replicate

    return [(0, {name: Replicate() for name in _SUMS} | {f"d{name}": Partial() for name in _SUMS})]


SHARDING = {_NAME: _batches}

_MultiTokenAttention = derived(
    _NAME,
    Op(
        f"{_NAME}_fwd",
        extents={"n": "channels", "p": "rows", "k": "columns", "c": "stat_channels", "v": "stat_rows"},
    ),
    Op(f"{_NAME}_bwd", extents={"n": "channels"}),
    parameters=2,
)


def plain(s, weight, bias=None, place="post", stride=1, padding=0, dilation=1, groups=1):
    """functional.multi_token_attention of softmax in torch alone, which the tests compare with."""
    causal = lambda x, masked: x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(), masked)
    soft = lambda x: causal(x, -torch.inf).softmax(-1)
    before = soft(s) if place == "post" else causal(s, 0)
    c = torch.nn.functional.conv2d(before, weight, bias, stride, padding, dilation, groups)
    return soft(c) if place == "pre" else causal(c, 0)


def _pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def multi_token_attention(
    scores, weight, bias=None, place="post", sparse=False, stride=1, padding=0, dilation=1, groups=1
):
    """Causal attention weights and a convolution over queries and keys: of scores [B, Cin, L, L] f32, bf16 or f16, before
    softmax, and a weight [Cout, Cin / groups, kh, kw] of torch.nn.functional.conv2d.

    place "post": conv2d(softmax(scores), weight, bias), "pre": softmax(conv2d(scores, weight)), which has no bias. Elements
    with j > i count as 0 before the convolution, and are 0 in the result. `sparse`: sparsemax in place of softmax. Strides,
    paddings and dilations are a number or two; paddings are (k - 1) * dilation at most. For backward a number for each row of
    softmax is kept, besides the inputs.
    """
    if place not in _PLACES:
        raise ValueError(f'{_NAME}: place is "{place}", must be "post" or "pre"')
    (stride_h, stride_w), (padding_h, padding_w), (dilation_h, dilation_w) = map(_pair, (stride, padding, dilation))
    places = [
        max(scores.shape[-1] + 2 * pad - by * (taps - 1) - 1, -1) // step + 1
        for taps, step, pad, by in zip(
            weight.shape[-2:], (stride_h, stride_w), (padding_h, padding_w), (dilation_h, dilation_w)
        )
    ]
    before = place == "pre"
    stat = (weight.shape[0], places[0]) if before else tuple(scores.shape[-3:-1])
    window = groups, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w
    return _MultiTokenAttention(
        scores, weight, bias, (weight.shape[0], *places, *stat, _PLACES[place], sparse, *window)
    )


class MultiTokenAttention(torch.nn.Module):
    """functional.multi_token_attention with a weight, and a bias after softmax."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        sparse=False,
        place="post",
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, _pair(kernel_size)
        self.stride, self.padding, self.dilation = map(_pair, (stride, padding, dilation))
        self.groups, self.sparse, self.place = groups, sparse, place
        made = dict(device=device, dtype=dtype)
        self.weight = torch.nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size, **made))
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(out_channels, **made)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """torch.nn.Conv2d's."""
        torch.nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(self.weight[0].numel(), 1))
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, scores):
        window = self.stride, self.padding, self.dilation, self.groups
        return multi_token_attention(scores, self.weight, self.bias, self.place, self.sparse, *window)

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, place={self.place!r}"


def liger_multi_token_attention(scores, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, sparse=False):
    return multi_token_attention(scores, weight, bias, "post", sparse, stride, padding, dilation, groups)


class LigerMultiTokenAttentionFunction:
    apply = staticmethod(liger_multi_token_attention)


class LigerMultiTokenAttention(MultiTokenAttention):
    """MultiTokenAttention after softmax, by Liger-Kernel's name."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        sparse=False,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, sparse)
