"""Operators on DTensors: each rank works on its own rows, heads or elements, and nothing is gathered.

A weight is replicated; its gradient is a sum over the ranks (Partial) that torch reduces where it is used. An input
that is sharded along what an operator reduces over is replicated first, as torch does for its own norms.

A rule is a function of an operator's arguments. It returns the ways to share out the work, each of which is a dimension
and the placements of those tensors, by name, that are not sharded along it."""

import functools

import torch


def rows(*parameters):
    """The rule of tensors [..., C] of which a rank has whole rows, and these parameters; rstd [rows] is its own."""

    def ways(x, *_):
        from torch.distributed.tensor import Partial, Replicate, Shard

        others = {name: Replicate() for name in parameters} | {f"d{name}": Partial() for name in parameters}
        return [(dim, others | {"rstd": Shard(0)}) for dim in range(x.ndim - 1)]

    return ways


def elements(x, *_):
    """The rule of tensors of one shape."""
    return [(dim, {}) for dim in range(x.ndim)]


@functools.cache
def register():
    """Tells DTensor how; once, and when the first DTensor comes, as the import takes a second."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    from tigon.torch import operators

    def add(op, rule):
        @register_sharding(op)
        def strategies(*args, schema=op._schema):
            sharded = [hasattr(a, "placements") for a in args]
            everywhere = [Replicate()] * len(schema.returns), [Replicate() if here else None for here in sharded]
            return [everywhere] + [
                (
                    [others.get(r.name, Shard(dim)) for r in schema.returns],
                    [others.get(a.name, Shard(dim)) if here else None for a, here in zip(schema.arguments, sharded)],
                )
                for dim, others in rule(*args)
            ]

    for file in operators.FILES:
        for name, rule in getattr(file, "SHARDING", {}).items():
            for direction in ("fwd", "bwd"):
                add(getattr(torch.ops.tigon, f"{name}_{direction}").default, rule)
