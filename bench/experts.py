"""The experts of a mixture for bench/peers_cpu.py and peers_cuda.py: transformers' loop over them, on the tensors of Tigon's case."""
import torch
import torch.nn.functional as F

from tigon.torch import functional as T


def fused_moe(t):
    x, idx, w, gate_up, down, dy, y = t.tensors("x", "idx", "w", "gate_up", "down", "dy", "y")

    def function(x, w, gate_up, down):  # as in transformers
        y = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(idx.long(), len(down)).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert in hit:
            expert = expert[0]
            choice, token = torch.where(mask[expert])
            gate, up = F.linear(x[token], gate_up[expert]).chunk(2, dim=-1)
            z = F.linear(F.silu(gate) * up, down[expert]) * w[token, choice, None]
            y.index_add_(0, token, z.to(y.dtype))
        return y

    return function, [x, w, gate_up, down], [dy], [y], t.tensors("dx", "dw", "dgate_up", "ddown")


FROM_TORCH = {
    "fused_moe": lambda t: lambda x, w, gate_up, down, idx=t.tensors("idx")[0]: T.fused_moe(x, idx, w, gate_up, down)
}
