"""Operators on DTensors: each rank works on its own rows, heads or elements, and nothing is gathered.

A weight is replicated; its gradient is a sum over the ranks (Partial) that torch reduces where it is used. An input
that is sharded along what an operator reduces over is replicated first, as torch does for its own norms."""

import functools

import torch


@functools.cache
def register():
    """Tells DTensor how; once, and when the first DTensor comes, as the import takes a second."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    # A placement is a function of a tensor's name in the schema; an operator has one for each way to share out work.
    def everywhere(name):
        return Replicate()

    def along(dim, **others):
        return lambda name: others.get(name, Shard(dim))

    def rows(x, *_):  # [..., C]; rstd [rows] is a rank's own
        return [along(dim, w=Replicate(), dw=Partial(), rstd=Shard(0)) for dim in range(x.ndim - 1)]

    def elements(x, *_):
        return [along(dim) for dim in range(x.ndim)]

    def rope(q, k, cos, *_):  # of q, k [B, H, T, D] and cos, sin [T, R], [1, T, R] or [B, T, R]
        one_table = cos.ndim == 2 or cos.shape[0] == 1
        tables = (Replicate() if one_table else Shard(0), Replicate(), Shard(cos.ndim - 2))
        return [along(dim, cos=table, sin=table) for dim, table in enumerate(tables)]

    def add(name, ways):
        for direction in ("fwd", "bwd"):
            op = getattr(torch.ops.tigon, f"{name}_{direction}").default

            @register_sharding(op)
            def strategies(*args, schema=op._schema):
                sharded = [hasattr(a, "placements") for a in args]
                return [
                    (
                        [placement(r.name) for r in schema.returns],
                        [placement(a.name) if here else None for a, here in zip(schema.arguments, sharded)],
                    )
                    for placement in (everywhere, *ways(*args))
                ]

    for name in ("rms_norm", "fused_add_rms_norm", "swiglu_packed", "geglu_packed"):
        add(name, rows)
    for name in ("swiglu", "geglu", "relu_squared"):
        add(name, elements)
    add("rope", rope)
