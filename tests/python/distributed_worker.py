"""One of two gloo processes of test_distributed.py: trains patched models on half a batch each, and reports."""

import os

import torch
import torch.distributed as dist
from tiny_models import batch, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tigon


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(wrapped, rank):
    """(loss, gradients) of this rank's row; gradients are means over the ranks."""
    ids, labels = batch()
    outputs = wrapped(input_ids=ids[rank : rank + 1], labels=labels[rank : rank + 1], use_cache=False)
    assert outputs.logits is None
    outputs.loss.backward()
    gradients = {name.removeprefix("module."): whole(p.grad) for name, p in wrapped.named_parameters()}
    return outputs.loss.item(), gradients


def ddp(rank):
    patched = model("Llama")
    tigon.patch(patched)
    return train(DistributedDataParallel(patched), rank)


def fsdp(family, own_head, rank):
    """own_head: lm_head is a unit of its own, whose weight is gathered in its forward and freed behind it."""
    patched = model(family)
    tigon.patch(patched)
    for layer in patched.model.layers:
        fully_shard(layer)
    if own_head:
        fully_shard(patched.lm_head, reshard_after_forward=True)
    fully_shard(patched)
    assert isinstance(patched.lm_head.weight, DTensor)
    return train(patched, rank)


def sequence_sharded_norm(rank):
    """(y, dx, dw, collectives) of a norm whose input is sharded along the sequence."""
    patched = model("Llama")
    tigon.patch(patched)
    mesh = init_device_mesh("cpu", (2,))
    norm = parallelize_module(patched.model.norm, mesh, SequenceParallel())
    generator = torch.Generator().manual_seed(2)
    x, dy = (torch.randn(2, 6, 64, generator=generator) for _ in range(2))
    x, dy = (distribute_tensor(t, mesh, [Shard(1)]) for t in (x, dy))
    x.requires_grad_()
    with CommDebugMode() as communication:
        y = norm(x)
        y.backward(dy)
        collectives = communication.get_total_counts()
    assert y.placements == x.grad.placements == (Shard(1),) and norm.weight.placements == (Replicate(),)
    return y.full_tensor(), x.grad.full_tensor(), norm.weight.grad.full_tensor(), collectives


def tensor_parallel_head(rank):
    """The loss where lm_head is split along the vocabulary: the stock one, of logits that are gathered."""
    patched = model("Llama")
    tigon.patch(patched)
    parallelize_module(patched.lm_head, init_device_mesh("cpu", (2,)), ColwiseParallel(output_layouts=Replicate()))
    ids, labels = batch()
    outputs = patched(input_ids=ids, labels=labels, use_cache=False)
    assert outputs.logits is not None
    return outputs.loss.item()


def run(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = dict(
        ddp=ddp(rank),
        fsdp_root=fsdp("Llama", False, rank),
        fsdp_head=fsdp("Llama", True, rank),
        fsdp_tied=fsdp("Qwen2", False, rank),
        sequence=sequence_sharded_norm(rank),
        tensor_parallel=tensor_parallel_head(rank),
    )
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
