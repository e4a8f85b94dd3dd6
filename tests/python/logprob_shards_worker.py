"""One of two processes of test_torch_logprob_shards.py: a head whose vocabulary is cut into shards."""

import torch
import torch.distributed as dist
from ranks import join, leave
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from tigon.compat.liger.transformers.functional import liger_fused_linear_scaled_cross_entropy_tp
from tigon.huggingface import trl_head
from tigon.torch import functional as T

CUTS = {"even": (0, 6, 12), "uneven": (0, 4, 12), "empty": (0, 0, 12)}
VOCABS = 12, 11, 1  # split by torch.chunk for DTensors: even, uneven, with a rank that has no class
TOKENS = None, Replicate(), Shard(0)  # placements of a compiled call with DTensors; None: local tensors
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
    device = torch.get_default_device()
    made = lambda *shape: torch.randn(shape, generator=generator, device="cpu").to(device)
    tensors = [made(2, 5, 8), made(12, 8), made(12)]
    return *(t.to(dtype) for t in tensors), made(2, 2, 5)


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


def compiled_dtensors(mesh, tokens):
    """The same of weight and bias as DTensors, whose hidden is one, too, of that placement, or a local tensor."""
    *tensors, upstream = head()
    target, own = of_classes(11)
    placed = lambda t: t.clone() if tokens is None else distribute_tensor(t, mesh, [tokens])
    sharded = [distribute_tensor(t[own], mesh, [Shard(0)]) for t in tensors[1:]]
    inputs = [placed(tensors[0]).requires_grad_(), *(t.requires_grad_() for t in sharded)]
    group, target, upstream = mesh.get_group() if tokens is None else None, placed(target), [placed(u) for u in upstream]
    run = lambda h, w, b: total(T.linear_logprob(h, w, target, b, entropy=True, group=group), upstream)
    torch.compile(run, fullgraph=True, backend="aot_eager")(*inputs).backward()
    return [t.grad.full_tensor() if isinstance(t.grad, DTensor) else t.grad for t in inputs]


def scaled(rank):
    """Liger-Kernel's name of it: (nll, entropy), and the gradients."""
    *tensors, upstream = head()
    hidden, weight, _ = inputs = leaves(tensors, *CUTS["even"][rank : rank + 2])
    rows, target = hidden.flatten(0, 1), TARGET.flatten()
    nll, entropy = liger_fused_linear_scaled_cross_entropy_tp(rows, weight, target, None, 0.7, return_entropy=True)
    (entropy * upstream[1].flatten() - nll * upstream[0].flatten()).sum().backward()
    return [nll.detach(), entropy.detach()], [t.grad for t in inputs[:2]]


def of_classes(vocab):
    """A target and a slice of `vocab` classes."""
    return TARGET.clamp(max=vocab - 1), slice(vocab)


def dtensors(mesh, vocab, local, dtype=torch.float32, frozen=False, **options):
    """(outputs, gradients, collectives) of weight and bias as DTensors, whose hidden is one, too, or `local`."""
    *tensors, upstream = head(dtype)
    target, own = of_classes(vocab)
    everywhere = (lambda t: t.clone()) if local else (lambda t: distribute_tensor(t, mesh, [Replicate()]))
    sharded = [distribute_tensor(t[own], mesh, [Shard(0)]) for t in tensors[1:]]
    hidden, weight, bias = inputs = [everywhere(tensors[0]).requires_grad_(), *(t.requires_grad_(not frozen) for t in sharded)]
    group, target = mesh.get_group() if local else None, everywhere(target)
    upstream = [everywhere(u) for u in upstream]
    with CommDebugMode() as forward:
        found = T.linear_logprob(hidden, weight, target, bias, group=group, **options)
        gathers = forward.get_total_counts()
    outputs = [t for t in found if t is not None]
    with CommDebugMode() as backward:
        torch.autograd.backward(outputs, upstream[: len(outputs)])
        sums = backward.get_total_counts()
    assert all(isinstance(t, DTensor) != local and (local or t.placements == (Replicate(),)) for t in outputs)
    for t in inputs if not frozen else inputs[:1]:
        assert getattr(t.grad, "placements", None) == getattr(t, "placements", None)
    full = lambda t: t.full_tensor() if isinstance(t, DTensor) else t
    return [t if t is None else full(t.detach()) for t in found], [full(t.grad) for t in inputs], gathers, sums


def refusal(*arguments, **options):
    try:
        T.linear_logprob(*arguments, **options)
    except ValueError as refused:
        return str(refused)


def refused(rank, mesh):
    hidden, weight, bias, _ = head()
    world, one = dist.group.WORLD, dist.new_group([0])
    shard, across = (distribute_tensor(weight, mesh, [Shard(dim)]) for dim in (0, 1))
    odd = DTensor.from_local(weight[:4] if rank == 0 else weight[4:], mesh, [Shard(0)], shape=(12, 8), stride=(8, 1))
    return [
        refusal(*(distribute_tensor(t, mesh) for t in (hidden, weight, TARGET)), group=world),
        refusal(hidden, across, TARGET, group=world),
        refusal(hidden, shard, TARGET, bias, group=world),
        refusal(hidden, shard, TARGET, group=world, vocab=12, vocab_begin=0),
        refusal(hidden, odd, TARGET, group=world),
        refusal(hidden, shard, TARGET, group=one) if rank == 0 else None,
    ]


def run(rank, port, folder, device):
    global TARGET
    join(rank, port, device)
    torch.set_default_device(device)
    TARGET = TARGET.to(device)
    results = {(cut, name): shard(rank, cut, **options) for cut in CUTS for name, options in OPTIONS.items()}
    results["frozen"] = shard(rank, "uneven", frozen=True)
    results["flat"] = shard(rank, "uneven", flat=True, entropy=True)
    for dtype in (torch.bfloat16, torch.float16):
        results[dtype] = shard(rank, "uneven", dtype, entropy=True)
    results["compiled"] = compiled(rank)
    mesh = init_device_mesh(device, (2,))
    for vocab in VOCABS:
        for local in (False, True):
            results["dtensors", vocab, local] = dtensors(mesh, vocab, local, entropy=True)
    for tokens in TOKENS:
        results["compiled", tokens] = compiled_dtensors(mesh, tokens)
    results["scaled"] = scaled(rank)
    results["dtensors", "bf16"] = dtensors(mesh, 11, False, torch.bfloat16)
    results["dtensors", "frozen"] = dtensors(mesh, 11, True, frozen=True)
    results["refused"] = refused(rank, mesh)
    hidden, weight, _, _ = head()
    results["trl"] = trl_head._takes(hidden, distribute_tensor(weight, mesh, [Shard(0)]), None, 1.0, 1)
    leave(rank, folder, results)
