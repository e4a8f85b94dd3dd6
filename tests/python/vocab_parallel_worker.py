"""One of two processes of test_torch_vocab_parallel.py: its shard's losses and gradients."""

import torch
import torch.distributed as dist
from ranks import join, leave
from torch.distributed.tensor.debug import CommDebugMode

from tigon.torch import functional as T

CUTS = {12: (0, 6, 12), 11: (0, 4, 11)}  # by vocabulary: even shards, uneven ones
TARGET = torch.tensor([[1, -100, 3, 10, 0], [7, 3, -100, 2, 5]])
OPTIONS = {
    "mean": dict(),
    "sum": dict(reduction="sum", softcap=2.0, temperature=0.7),
    "none": dict(reduction="none", label_smoothing=0.1, lse_square_scale=0.01),
    "denominator": dict(denominator=5, softcap=3.0, temperature=2.0, softcap_first=True),
}


def logits(vocab, dtype=torch.float32):
    x = torch.randn(2, 5, vocab, generator=torch.Generator().manual_seed(vocab), device="cpu")
    return (3 * x).to(torch.get_default_device(), dtype)


def shard(rank, vocab, dtype, entropy=False, **options):
    """(loss, gradient, lse, entropy, collectives of forward, of backward)"""
    begin, end = CUTS[vocab][rank : rank + 2]
    x = logits(vocab, dtype)[..., begin:end].contiguous().requires_grad_()
    with CommDebugMode() as forward:
        found = T.vocab_parallel_cross_entropy(
            x, TARGET, dist.group.WORLD, vocab, begin, entropy=entropy, outputs=True, **options
        )
        gathers = forward.get_total_counts()
    with CommDebugMode() as backward:
        total = found.loss.sum() + (0.5 * found.entropy.sum() if entropy else 0)
        total.backward()
        others = backward.get_total_counts()
    kept = None if found.entropy is None else found.entropy.detach()
    return found.loss.detach(), x.grad, found.lse, kept, gathers, others


def compiled(rank):
    """The gradient of a compiled function, whose collective is in the graph."""
    begin, end = CUTS[12][rank : rank + 2]
    x = logits(12)[..., begin:end].contiguous().requires_grad_()
    run = lambda t: T.vocab_parallel_cross_entropy(t, TARGET, dist.group.WORLD)
    torch.compile(run, fullgraph=True, backend="aot_eager")(x).backward()
    return x.grad


def run(rank, port, folder, device):
    global TARGET
    join(rank, port, device)
    torch.set_default_device(device)
    TARGET = TARGET.to(device)
    results = {}
    for vocab in CUTS:
        for name, options in OPTIONS.items():
            results[vocab, name] = shard(rank, vocab, torch.float32, entropy=name == "sum", **options)
    results["bf16"] = shard(rank, 12, torch.bfloat16)
    smooth = dict(reduction="none", label_smoothing=0.1, smoothing_formula="megatron")
    results["megatron"] = shard(rank, 12, torch.float32, **smooth)
    results["partition"] = shard(rank, 11, torch.float32, own_partition=True, **smooth)
    results["compiled"] = compiled(rank)
    leave(rank, folder, results)
