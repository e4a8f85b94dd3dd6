"""One of two processes of test_torch_logprob_shards.py: a head whose vocabulary is cut into shards."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from tigon.torch import functional as T

CUTS = {"even": (0, 6, 12), "uneven": (0, 4, 12), "empty": (0, 0, 12)}
TARGET = torch.tensor([[1, -100, 3, 10, 0], [7, 3, -100, 2, 11]])
OPTIONS = {
    "plain": dict(),
    "entropy": dict(entropy=True, softcap=2.0, temperature=0.7),
    "softcap_first": dict(entropy=True, softcap=3.0, temperature=2.0, softcap_first=True),
    "cached": dict(entropy=True, cache_bytes=100, workspace_bytes=4096),
    "wide": dict(entropy=True, logits_in_f32=True),
}


def head(dtype=torch.float32):
    """hidden, weight, bias, and upstream gradients of both outputs"""
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(shape, generator=generator) for shape in ((2, 5, 8), (12, 8), (12,))]
    return *(t.to(dtype) for t in tensors), torch.randn(2, 2, 5, generator=generator)


def total(found, upstream):
    """What the gradients are of."""
    loss = (found.logprob * upstream[0]).sum()
    return loss if found.entropy is None else loss + (found.entropy * upstream[1]).sum()


def leaves(tensors, begin, end):
    hidden, weight, bias = tensors
    return [t.clone().requires_grad_() for t in (hidden, weight[begin:end], bias[begin:end])]


def shard(rank, cut, dtype=torch.float32, frozen=False, flat=False, **options):
    """(outputs, gradients, collectives of forward, of backward)"""
    begin, end = CUTS[cut][rank : rank + 2]
    *tensors, upstream = head(dtype)
    hidden, weight, bias = inputs = leaves(tensors, begin, end)
    if frozen:
        weight.requires_grad_(False), bias.requires_grad_(False)
    numbers = {} if cut == "even" else dict(vocab=12, vocab_begin=begin)
    target = TARGET.flatten() if flat else TARGET
    with CommDebugMode() as forward:
        found = T.linear_logprob(hidden, weight, target, bias, group=dist.group.WORLD, **numbers, **options)
        gathers = forward.get_total_counts()
    with CommDebugMode() as backward:
        total(found, upstream.flatten(1) if flat else upstream).backward()
        sums = backward.get_total_counts()
    return [t if t is None else t.detach() for t in found], [t.grad for t in inputs], gathers, sums


def compiled(rank):
    """The gradients of a compiled function, whose collectives are in the graphs."""
    *tensors, upstream = head()
    hidden, weight, bias = inputs = leaves(tensors, *CUTS["uneven"][rank : rank + 2])
    shard_is = dict(group=dist.group.WORLD, vocab=12, vocab_begin=CUTS["uneven"][rank])
    run = lambda h, w, b: total(T.linear_logprob(h, w, TARGET, b, entropy=True, **shard_is), upstream)
    torch.compile(run, fullgraph=True, backend="aot_eager")(hidden, weight, bias).backward()
    return [t.grad for t in inputs]


def refused():
    hidden, weight, _, _ = head()
    mesh = init_device_mesh("cpu", (2,))
    whole = [distribute_tensor(t, mesh) for t in (hidden, weight, TARGET)]
    try:
        T.linear_logprob(*whole, group=dist.group.WORLD)
    except ValueError as refusal:
        return str(refusal)


def run(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = {(cut, name): shard(rank, cut, **options) for cut in CUTS for name, options in OPTIONS.items()}
    results["frozen"] = shard(rank, "uneven", frozen=True)
    results["flat"] = shard(rank, "uneven", flat=True, entropy=True)
    for dtype in (torch.bfloat16, torch.float16):
        results[dtype] = shard(rank, "uneven", dtype, entropy=True)
    results["compiled"] = compiled(rank)
    results["refused"] = refused()
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
