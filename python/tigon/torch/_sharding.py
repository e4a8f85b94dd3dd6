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


def is_distributed(*tensors):
    """Whether one is a DTensor, whose import is slow."""
    return any(hasattr(t, "placements") for t in tensors)


def check_mesh(call, mesh, **given):
    """Refuses what is no DTensor of the mesh, which is that of the first one."""
    from torch.distributed.tensor import DTensor

    for name, t in given.items():
        if t is None:
            continue
        if not isinstance(t, DTensor):
            raise ValueError(f"{call}: {name} is no DTensor, must be one where another argument is")
        if t.device_mesh != mesh:
            raise ValueError(f"{call}: {name}.device_mesh is {t.device_mesh}, must be {mesh} ({next(iter(given))}'s)")


def row_placements(x):
    """Placements of rows x [..., C], of a weight, and of a sum over the rows.

    Rows stay sharded along their leading dimensions, and are replicated along the others. Each rank has the whole
    weight. The sum is over the ranks that share out the rows."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    last = x.ndim - 1
    rows = [p if isinstance(p, Shard) and p.dim % x.ndim != last else Replicate() for p in x.placements]
    return rows, [Replicate()] * x.device_mesh.ndim, [Partial() if p.is_shard() else p for p in rows]


def contiguous(shape):
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])


def by_rows(call, local, **given):
    """`local` of the rank's own rows of the first DTensor, and of whole parameters, the others; as a DTensor like the first."""
    from torch.distributed.tensor import DTensor

    (_, x), *parameters = given.items()
    check_mesh(call, x.device_mesh if isinstance(x, DTensor) else None, **given)
    rows, whole, sums = row_placements(x)
    each = lambda t: t if t is None else t.redistribute(placements=whole).to_local(grad_placements=sums)
    own = x.redistribute(placements=rows).to_local(grad_placements=rows)
    y = local(own, *[each(t) for _, t in parameters])
    return DTensor.from_local(y, x.device_mesh, rows, run_check=False, shape=x.shape, stride=contiguous(x.shape))


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
