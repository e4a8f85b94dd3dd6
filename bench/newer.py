"""QuACK, FlashAttention 4 and cuDNN's norms (its Python front end) for the cases of peers_cuda.py, each where it can be imported.

They come from PyPI: quack-kernels[cu13], flash-attn-4, nvidia-cudnn-frontend."""
import functools
import importlib

import peers_cpu

EPS = {"rms_norm": 1e-6, "fused_add_rms_norm": 1e-6, "layer_norm": 1e-5}


def quack(op, t):
    import quack

    if op == "rms_norm":
        return lambda x, w: quack.rmsnorm(x, w, eps=EPS[op])
    if op == "fused_add_rms_norm":
        return lambda x, residual, w: quack.rmsnorm(x, w, residual=residual, eps=EPS[op], prenorm=True)
    if op == "layer_norm":
        return quack_layer_norm()
    if op == "softmax":
        return lambda x: quack.softmax(x.reshape(-1, x.shape[-1])).view_as(x)
    if op == "cross_entropy":
        labels = t.tensors("labels")[0].long()
        return lambda x: quack.cross_entropy(x, labels)
    if op == "fused_linear_cross_entropy":
        from quack.linear_cross_entropy import chunked_linear_cross_entropy
        labels = t.tensors("labels")[0].long()
        return lambda h, w: chunked_linear_cross_entropy(h, w, labels, ignore_index=0)
    return None


def quack_layer_norm():
    """QuACK's two functions, which want weights in f32, as one of autograd."""
    rmsnorm, torch = importlib.import_module("quack.rmsnorm"), peers_cpu.torch  # quack.rmsnorm is a function, too

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b):
            wide = w.float()
            y, rstd, mean = rmsnorm.layernorm_fwd(x, wide, b.float(), EPS["layer_norm"], return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, wide, rstd, mean)
            ctx.dtype = w.dtype
            return y

        @staticmethod
        def backward(ctx, dy):
            x, wide, rstd, mean = ctx.saved_tensors
            dx, dw, db = rmsnorm.layernorm_bwd(x, wide, dy, rstd, mean)
            return dx, dw.to(ctx.dtype), db.to(ctx.dtype)

    return LayerNorm.apply


def flash_attention_4(op, t):
    from flash_attn.cute import flash_attn_func
    if op != "attention":
        return None

    def attention(q, k, v):
        made = flash_attn_func(q, k, v, causal=True)
        return made[0] if isinstance(made, tuple) else made

    return attention


class Graphs:
    """Forward and backward of a norm of one shape."""

    def __init__(self, cudnn, op, x, weights):
        torch = peers_cpu.torch
        self.cudnn, self.op = cudnn, op
        self.handle = cudnn.create_handle()
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        self.eps = torch.full((1, 1, 1, 1), EPS[op])
        self.stats = [torch.empty(len(x), 1, 1, 1, device="cuda") for _ in range(len(weights))]  # mean, rstd; or rstd
        options = {"io_data_type": cudnn.data_type.BFLOAT16, "intermediate_data_type": cudnn.data_type.FLOAT,
                   "compute_data_type": cudnn.data_type.FLOAT, "handle": self.handle}
        flat, scales = self.images(x), [self.images(w) for w in weights]

        forward = cudnn.pygraph(**options)
        inputs = [forward.tensor_like(one) for one in (flat, *scales)]
        eps = forward.tensor_like(self.eps)
        named = dict(zip(("input", "scale", "bias"), inputs), epsilon=eps, norm_forward_phase=cudnn.norm_forward_phase.TRAINING)
        made = forward.layernorm(name="y", **named) if op == "layer_norm" else forward.rmsnorm(name="y", **named)
        self.forward = self.build(forward, [*inputs, eps], made, wide=made[1:])

        backward = cudnn.pygraph(**options)
        inputs = [backward.tensor_like(one) for one in (flat, flat, scales[0], *self.stats)]
        named = dict(zip(("grad", "input", "scale", "mean", "inv_variance") if op == "layer_norm" else
                         ("grad", "input", "scale", "inv_variance"), inputs))
        made = (backward.layernorm_backward(name="dx", **named) if op == "layer_norm" else
                backward.rmsnorm_backward(name="dx", has_dbias=False, **named))
        self.backward = self.build(backward, inputs, [one for one in made if one is not None], wide=())

    @staticmethod
    def images(x):
        """Rows of channels, as cuDNN has them: one pixel each."""
        return x.view(-1, x.shape[-1], 1, 1)

    def build(self, graph, inputs, outputs, wide):
        for one in outputs:
            one.set_output(True).set_data_type(self.cudnn.data_type.FLOAT if any(one is other for other in wide) else
                                               self.cudnn.data_type.BFLOAT16)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A, self.cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        space = peers_cpu.torch.empty(max(1, graph.get_workspace_size()), dtype=peers_cpu.torch.uint8, device="cuda")
        return lambda given, to: graph.execute(dict(zip([*inputs, *outputs], [*given, *to])), space, handle=self.handle)


def cudnn_norm(op, t):
    import cudnn
    torch = peers_cpu.torch
    if op not in ("rms_norm", "layer_norm"):
        return None
    graphs = functools.lru_cache(lambda shape, x, weights: Graphs(cudnn, op, x, weights))

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *weights):
            made, y = graphs(x.shape, x, weights), torch.empty_like(x)
            made.forward([made.images(x), *map(made.images, weights), made.eps], [made.images(y), *made.stats])
            ctx.graphs, ctx.weights = made, weights
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, made = ctx.saved_tensors[0], ctx.graphs
            dx, grads = torch.empty_like(x), [torch.empty_like(w) for w in ctx.weights]
            made.backward([made.images(one) for one in (dy, x, ctx.weights[0])] + made.stats,
                          [made.images(one) for one in (dx, *grads)])
            return dx, *grads

    return Norm.apply


PARTIES = {"quack": quack, "fa4": flash_attention_4, "cudnn": cudnn_norm}


absent = set()


def cases(op, t, left_out):
    """{party: its function of the operator}; what cannot be imported is said once, by left_out(op, party, error)."""
    found = {}
    for name, case in PARTIES.items():
        if name in absent:
            continue
        try:
            function = case(op, t)
        except Exception as error:  # any kind: an error of a peer is not ours
            if isinstance(error, ImportError):
                absent.add(name)
            left_out(op, name, error)
            continue
        if function:
            found[name] = function
    return found
