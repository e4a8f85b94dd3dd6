"""One of two processes of test_distributed.py: trains patched models on half a batch each, and reports."""

import torch
from ranks import join, leave
from tiny_models import batch, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tigon
from tigon.huggingface import trl_head
from tigon.torch import functional as F

try:
    from trl.trainer import utils
except ImportError:
    utils = None


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def patched(family, mesh, **kinds):
    made = model(family).to(mesh.device_type)
    tigon.patch(made, **kinds)
    return made


def train(wrapped, mesh, **options):
    """(loss, gradients) of this rank's row; gradients are means over the ranks."""
    ids, labels = (t[mesh.get_rank() :][:1].to(mesh.device_type) for t in batch())
    outputs = wrapped(input_ids=ids, labels=labels, use_cache=False, **options)
    assert getattr(outputs, "logits", None) is None
    outputs.loss.backward()
    gradients = {name.removeprefix("module."): whole(p.grad) for name, p in wrapped.named_parameters()}
    return outputs.loss.item(), gradients


def ddp(mesh):
    return train(DistributedDataParallel(patched("Llama", mesh)), mesh)


def ddp_tiled(mesh):
    """Each parameter's gradient comes once, as DDP counts on."""
    wrapped = DistributedDataParallel(patched("Llama", mesh, mlp="tiled"))
    came = dict.fromkeys(wrapped.parameters(), 0)

    def count(parameter):
        came[parameter] += 1

    for parameter in came:
        parameter.register_post_accumulate_grad_hook(count)
    trained = train(wrapped, mesh)
    assert set(came.values()) == {1}
    return trained


def expect_own_placements(rows, *parameters):
    """PyTorch 2.11 replicates a gradient whose shards are uneven, of its own operators, too."""
    least = (rows, *parameters) if torch.__version__ >= "2.13" else parameters
    assert all(t.grad.placements == t.placements for t in least)


def sharded_mlp(rows, part, mesh):
    """(y, gradients) of mlp on DTensors; the odd ranks' shares are smaller."""
    inputs = [t.to(mesh.device_type) for t in mlp_inputs()]
    *leaves, upstream = (distribute_tensor(t, mesh, [rows if i in (0, 5) else part]) for i, t in enumerate(inputs))
    leaves = [t.detach().requires_grad_() for t in leaves]
    y = F.mlp(*leaves[:4], down_bias=leaves[4])
    y.backward(upstream)
    expect_own_placements(*leaves)
    return [whole(t) for t in (y, *(leaf.grad for leaf in leaves))]


def mlp_inputs():
    """x, three weights, down's bias, and y's gradient."""
    generator = torch.Generator().manual_seed(4)
    shapes = (3, 5, 8), (11, 8), (11, 8), (8, 11), (8,), (3, 5, 8)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def fsdp(family, own_head, mesh, **kinds):
    """own_head: lm_head is a unit of its own, whose weight is gathered in its forward and freed behind it."""
    made = patched(family, mesh, **kinds)
    for layer in made.model.layers:
        fully_shard(layer, mesh=mesh)
    if own_head:
        fully_shard(made.lm_head, mesh=mesh, reshard_after_forward=True)
    fully_shard(made, mesh=mesh)
    assert isinstance(made.lm_head.weight, DTensor)
    return train(made, mesh)


def trl_fsdp(mesh):
    """TRL's forward of a patched model. (A head that is a unit of its own stays sharded, as its forward is not called;
    TRL 1.16 then leaves each rank the gradient of its own tokens.)"""
    made, counted = patched("Llama", mesh), []
    utils.add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    fully_shard(made, mesh=mesh)
    project = trl_head.project
    trl_head.project = lambda hidden, weight, *others: counted.append(weight) or project(hidden, weight, *others)
    try:
        trained = train(made, mesh, fused_lm_head=True)
    finally:
        trl_head.project = project
    assert any(weight.shape == (131, 64) and not isinstance(weight, DTensor) for weight in counted)
    return trained


def sequence_sharded_norm(mesh):
    """(y, dx, dw, collectives) of a norm whose input is sharded along the sequence."""
    norm = parallelize_module(patched("Llama", mesh).model.norm, mesh, SequenceParallel())
    generator = torch.Generator().manual_seed(2)
    x, dy = (torch.randn(2, 6, 64, generator=generator) for _ in range(2))
    x, dy = (distribute_tensor(t, mesh, [Shard(1)]) for t in (x, dy))
    x.requires_grad_()
    with CommDebugMode() as communication:
        y = norm(x)
        y.backward(dy)
        collectives = communication.get_total_counts()
    assert y.placements == x.grad.placements == (Shard(1),) and norm.weight.placements == (Replicate(),)
    return whole(y), whole(x.grad), whole(norm.weight.grad), collectives


HEADS = [(Shard(dim), part) for dim in range(3) for part in (Shard(0), Shard(1), Replicate())]
HEADS += [(Replicate(), part) for part in (Shard(0), Shard(1), Replicate())]


MLPS = [(Shard(dim), part) for dim in range(2) for part in (Shard(0), Replicate())] + [(Replicate(), Shard(0))]


def head_inputs():
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in ((3, 4, 8), (11, 8), (11,)))
    target = torch.randint(11, (3, 4), generator=generator)
    target[1, 2] = -100
    return hidden, weight, target, bias, torch.randn(2, 3, 4, generator=generator)


def sharded_head(rows, part, mesh):
    """(log-probabilities, entropy, how many are right, gradients) of DTensors; the odd ranks' shares are smaller."""
    hidden, weight, target, bias, upstream = (t.to(mesh.device_type) for t in head_inputs())
    of_target = rows if rows.is_shard() and rows.dim < 2 else Replicate()
    placed = zip((hidden, weight, bias, target), (rows, part, Replicate(), of_target))
    *leaves, target = (distribute_tensor(t, mesh, [place]) for t, place in placed)
    leaves = [t.detach().requires_grad_() for t in leaves]
    hidden, weight, bias = leaves
    found = F.linear_logprob(hidden, weight, target, bias, temperature=0.8, entropy=True)
    upstream = [distribute_tensor(u, mesh, found.logprob.placements) for u in upstream]
    torch.autograd.backward(found[:2], upstream)
    expect_own_placements(*leaves)
    return [whole(t) for t in (found.logprob, found.entropy, found.correct, *(leaf.grad for leaf in leaves))]


def refused_head(mesh):
    hidden, weight, target, _, _ = head_inputs()
    try:
        F.linear_logprob(hidden, distribute_tensor(weight, mesh, [Shard(0)]), target)
    except ValueError as refusal:
        return str(refusal)


def tensor_parallel_ends(mesh):
    """The loss where embedding and lm_head are split along the vocabulary: the stock ones, of logits that are
    gathered."""
    made = patched("Llama", mesh)
    parallelize_module(made.model.embed_tokens, mesh, RowwiseParallel(input_layouts=Replicate()))
    parallelize_module(made.lm_head, mesh, ColwiseParallel(output_layouts=Replicate()))
    ids, labels = (t.to(mesh.device_type) for t in batch())
    outputs = made(input_ids=ids, labels=labels, use_cache=False)
    assert outputs.logits is not None
    return outputs.loss.item()


def run(rank, port, folder, device):
    join(rank, port, device)
    mesh = init_device_mesh(device, (2,))
    results = dict(
        ddp=ddp(mesh),
        ddp_tiled=ddp_tiled(mesh),
        fsdp_root=fsdp("Llama", False, mesh),
        fsdp_mlp=fsdp("Llama", False, mesh, mlp="tiled"),
        fsdp_head=fsdp("Llama", True, mesh),
        fsdp_tied=fsdp("Qwen2", False, mesh),
        fsdp_scaled=fsdp("Gemma3", False, mesh),
        trl_root=trl_fsdp(mesh) if utils else None,
        sequence=sequence_sharded_norm(mesh),
        tensor_parallel=tensor_parallel_ends(mesh),
        heads=[sharded_head(*places, mesh) for places in HEADS],
        refused=refused_head(mesh),
        mlps=[sharded_mlp(*places, mesh) for places in MLPS],
    )
    leave(rank, folder, results)
