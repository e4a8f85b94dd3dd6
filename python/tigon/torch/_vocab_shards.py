"""The parts that all losses over shards of the vocabulary have, with one shard for each rank of a group.

They are stats of a shard, an all-gather of them, and merge, which makes the numbers of the whole vocabulary."""

import torch
import torch.distributed as dist

from tigon.torch._op import Op

STATS = 5  # TIGON_VOCAB_STATS
NONE = 2  # the code of reduction none


def each(given):
    """Is the loss one number for each token?"""
    return given["options_reduction"] == NONE


merge = Op(
    "vocab_parallel_cross_entropy_merge",
    options=("bool with_entropy",),
    when={
        "out_loss": lambda given: not each(given),
        "out_token_loss": each,
        "out_z_loss": lambda given: False,
        "out_entropy": lambda given: given["with_entropy"],
    },
)


def shard_of(call, group, classes, vocab, vocab_begin):
    """(vocab, the first class of this rank, its rank); without the numbers each rank has as many classes."""
    size, rank = 1, 0
    if group is not None:
        size, rank = dist.get_world_size(group), dist.get_rank(group)
    if (vocab is None) != (vocab_begin is None):
        given, missing = ("vocab", "vocab_begin") if vocab_begin is None else ("vocab_begin", "vocab")
        raise ValueError(f"{call}: {missing} is None, must be given with {given}")
    return (size * classes, rank * classes, rank) if vocab is None else (vocab, vocab_begin, rank)


def gathered(stats, group):
    """[R, rows, 5]: the stats of all ranks, by one collective."""
    if group is None:
        return stats.reshape(1, -1, STATS)
    if torch.compiler.is_compiling():
        import torch.distributed._functional_collectives as collectives

        every = collectives.all_gather_tensor(stats.reshape(-1, STATS), 0, group)
        return collectives.wait_tensor(every).reshape(dist.get_world_size(group), -1, STATS)
    every = stats.new_empty(dist.get_world_size(group), stats.numel() // STATS, STATS)
    dist.all_gather_into_tensor(every.flatten(0, 1), stats.reshape(-1, STATS), group=group)
    return every


def summed(part, group):
    """The sum of all ranks' parts, in `part` where nobody compiles."""
    if group is None:
        return part
    if torch.compiler.is_compiling():
        import torch.distributed._functional_collectives as collectives

        return collectives.wait_tensor(collectives.all_reduce(part, "sum", group))
    dist.all_reduce(part, group=group)
    return part
