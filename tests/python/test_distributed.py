"""DDP, FSDP2 and sequence sharding of patched models: two processes, by gloo on the CPU and by NCCL on two GPUs, give
what one stock model gives on the CPU."""

import pathlib
import subprocess
import sys

import distributed_worker
import pytest
import torch
from ranks import DEVICES, results_of
from tiny_models import batch, model

from tigon.torch import functional


@pytest.fixture(scope="module", params=DEVICES)
def ranks(request, tmp_path_factory):
    """The results of both processes, by rank."""
    return results_of(distributed_worker.run, request.param, tmp_path_factory)


@pytest.mark.parametrize(
    "how, family",
    [
        ("ddp", "Llama"),
        ("ddp_tiled", "Llama"),
        ("fsdp_root", "Llama"),
        ("fsdp_mlp", "Llama"),
        ("fsdp_head", "Llama"),
        ("fsdp_tied", "Qwen2"),
        ("fsdp_scaled", "Gemma3"),
        ("trl_root", "Llama"),
    ],
)
def test_loss_and_gradients(ranks, how, family):
    if ranks[0][how] is None:
        pytest.skip("trl is not there")
    stock = model(family)
    ids, labels = batch()
    losses = [stock(input_ids=ids[row : row + 1], labels=labels[row : row + 1]).loss for row in range(2)]
    (sum(losses) / 2).backward()
    for rank, loss in enumerate(losses):
        assert ranks[rank][how][0] == pytest.approx(loss.item(), rel=1e-6)
    for name, parameter in stock.named_parameters():
        first, second = (ranks[rank][how][1][name] for rank in range(2))
        assert torch.equal(first, second), name
        assert (first - parameter.grad).norm() <= 1e-5 * parameter.grad.norm(), name


def test_sequence_sharded_norm_gathers_nothing(ranks):
    norm = model("Llama").model.norm
    generator = torch.Generator().manual_seed(2)
    x, dy = (torch.randn(2, 6, 64, generator=generator) for _ in range(2))
    x.requires_grad_()
    y = norm(x)
    y.backward(dy)
    for rank in range(2):
        *tensors, collectives = ranks[rank]["sequence"]
        assert collectives == 0
        for ours, theirs in zip(tensors, (y, x.grad, norm.weight.grad)):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_ends_split_along_the_vocabulary_run_stock(ranks):
    ids, labels = batch()
    loss = model("Llama")(input_ids=ids, labels=labels).loss.item()
    assert [rank["tensor_parallel"] for rank in ranks] == pytest.approx([loss, loss], rel=1e-6)


def test_heads_of_dtensors(ranks):
    hidden, weight, target, bias, upstream = distributed_worker.head_inputs()
    leaves = [t.requires_grad_() for t in (hidden, weight, bias)]
    found = functional.linear_logprob(hidden, weight, target, bias, temperature=0.8, entropy=True)
    torch.autograd.backward(found[:2], list(upstream))
    wanted = [found.logprob, found.entropy, found.correct, *(leaf.grad for leaf in leaves)]
    for rank in ranks:
        assert len(rank["heads"]) == len(distributed_worker.HEADS)
        for places, head in zip(distributed_worker.HEADS, rank["heads"]):
            for ours, theirs in zip(head, wanted, strict=True):
                torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6, msg=str(places))
        assert rank["refused"] == "linear_logprob: hidden is no DTensor, must be one where another argument is"


def test_mlps_of_dtensors(ranks):
    *leaves, upstream = distributed_worker.mlp_inputs()
    leaves = [t.requires_grad_() for t in leaves]
    y = functional.mlp(*leaves[:4], down_bias=leaves[4])
    y.backward(upstream)
    for rank in ranks:
        assert len(rank["mlps"]) == len(distributed_worker.MLPS)
        for places, found in zip(distributed_worker.MLPS, rank["mlps"]):
            for ours, theirs in zip(found, [y, *(leaf.grad for leaf in leaves)], strict=True):
                torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-5, msg=str(places))


def test_a_killed_process_ends_the_others():
    soak = pathlib.Path(__file__).resolve().parents[2] / "tools/soak"
    done = subprocess.run([sys.executable, soak, "ddp", "--steps", "4"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
