"""The two ends of a model: embedding and linear."""

from tigon.torch._autograd import function, like, lowered
from tigon.torch._derived import derived
from tigon.torch._op import op


def _rows(shape, strides):
    """The row of an index without dimensions, [H], as [1, H]."""
    return (shape, strides) if len(shape) > 1 else ((1, *shape), (1, *strides))


@op("embedding_fwd(Tensor table, Tensor idx) -> Tensor y", y=_rows)
def _embedding_fwd(table, idx):
    return (table.new_empty((*idx.shape, table.shape[-1])),)


@op("embedding_bwd(Tensor dy, Tensor idx, int vocab, bool has_padding_idx, int padding_idx) -> Tensor dtable", dy=_rows)
def _embedding_bwd(dy, idx, vocab, has_padding_idx, padding_idx):
    return (dy.new_empty((vocab, dy.shape[-1])),)


@function("embedding", _embedding_fwd, _embedding_bwd)
def _Embedding(fwd, bwd):
    def forward(ctx, table, idx, padding_idx):
        y = fwd(table, idx)
        ctx.save_for_backward(idx)
        ctx.options = table.shape[0], padding_idx is not None, padding_idx or 0
        return y

    def backward(ctx, dy):
        return bwd(dy, *ctx.saved_tensors, *ctx.options), None, None

    return forward, backward


def embedding(ids, weight, padding_idx=None):
    """weight[ids]. ids [...] i64 or i32 in [0, V); weight [V, H] f32, bf16 or f16.

    Row padding_idx gets no gradient; those of equal ids are summed in f32 in the order of ids, the same on each run.
    """
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return _Embedding(weight, ids, padding_idx)


@op("linear_fwd(Tensor x, Tensor w, Tensor? b) -> Tensor y")
def _linear_fwd(x, w, b):
    return (x.new_empty((*x.shape[:-1], w.shape[0])),)


@op(
    "linear_bwd(Tensor dy, Tensor x, Tensor w, bool need_dx, bool need_dw, ScalarType? db_dtype)"
    " -> (Tensor dx, Tensor dw, Tensor db)"
)
def _linear_bwd(dy, x, w, need_dx, need_dw, db_dtype):
    db = None if db_dtype is None else w.new_empty(w.shape[0], dtype=db_dtype)
    return like(x, need_dx), like(w, need_dw), db


_Linear = derived("linear", _linear_fwd, _linear_bwd)


def linear(x, weight, bias=None):
    """x @ weight.T + bias. x [..., K], weight [N, K] and bias [N] of one dtype, f32, bf16 or f16; bias may be f32.

    Under autocast, in autocast's own dtype. Products are summed in f32 and rounded once.
    """
    return _Linear(*lowered(x, weight, bias))
