"""The two ends of a model: embedding and linear."""

import torch

from tigon.torch._autograd import lowered
from tigon.torch._derived import derived
from tigon.torch._op import Op

FUNCTIONS = ["embedding", "linear"]
MODULES = ["Embedding"]


def _rows(shape, strides):
    """The row of an index without dimensions, [H], as [1, H]."""
    return (shape, strides) if len(shape) > 1 else ((1, *shape), (1, *strides))


_embedding_fwd = Op("embedding_fwd", views={"y": _rows})
_embedding_bwd = Op("embedding_bwd", views={"dy": _rows}, extents={"v": "vocab"})
_Embedding = derived("embedding", _embedding_fwd, _embedding_bwd, options=("vocab", "has_padding_idx", "padding_idx"))


def embedding(ids, weight, padding_idx=None):
    """weight[ids]. ids [...] i64 or i32 in [0, V); weight [V, H] f32, bf16 or f16.

    Row padding_idx gets no gradient; those of equal ids are summed in f32 in the order of ids, the same on each run.
    """
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    vocab = (*getattr(weight, "shape", ()), 0)[0]
    return _Embedding(weight, ids, (vocab, padding_idx is not None, padding_idx or 0))


_Linear = derived("linear", backward_op=Op("linear_bwd", required=("x", "w")))


def linear(x, weight, bias=None):
    """x @ weight.T + bias. x [..., K], weight [N, K] and bias [N] of one dtype, f32, bf16 or f16; bias may be f32.

    Under autocast, in autocast's own dtype. Products are summed in f32 and rounded once.
    """
    return _Linear(*lowered(x, weight, bias))


class Embedding(torch.nn.Embedding):
    """torch.nn.Embedding, less max_norm, scale_grad_by_freq and sparse."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(self, name):
                raise NotImplementedError(f"Embedding: {name} is {getattr(self, name)}, must be left out")

    def forward(self, ids):
        return embedding(ids, self.weight, self.padding_idx)
