"""A language-model head whose tokens or weight are DTensors.

Each rank makes the log-probabilities of its own tokens with the whole weight, which is gathered for the call. Its
gradient is a sum over the ranks that share out the tokens, and goes back to where the weight's parts are."""

_CALL = "linear_logprob"


def is_distributed(*tensors):
    """Whether one is a DTensor, whose import is slow."""
    return any(hasattr(t, "placements") for t in tensors)


def over_ranks(local, hidden, weight, target, bias):
    """`local` of the rank's own hidden, weight, target and bias, whose outputs are one for each token, or None, and a
    count; as DTensors."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    given = dict(hidden=hidden, weight=weight, target=target, bias=bias)
    for name, t in given.items():
        if t is None:
            continue
        if not isinstance(t, DTensor):
            raise ValueError(f"{_CALL}: {name} is no DTensor, must be one where another argument is")
        if t.device_mesh != hidden.device_mesh:
            raise ValueError(f"{_CALL}: {name}.device_mesh is {t.device_mesh}, must be {hidden.device_mesh} (hidden's)")
    if target.shape != hidden.shape[:-1]:
        must = list(hidden.shape[:-1])
        raise ValueError(f"{_CALL}: target.shape is {list(target.shape)}, must be {must}, as hidden is a DTensor")
    mesh, last = hidden.device_mesh, hidden.ndim - 1
    rows = [p if isinstance(p, Shard) and p.dim % hidden.ndim != last else Replicate() for p in hidden.placements]
    whole = [Replicate()] * mesh.ndim
    sums = [Partial() if p.is_shard() else p for p in rows]

    def parameter(t):
        return t if t is None else t.redistribute(placements=whole).to_local(grad_placements=sums)

    outputs = local(
        hidden.redistribute(placements=rows).to_local(grad_placements=rows),
        parameter(weight),
        target.redistribute(placements=rows).to_local(),
        parameter(bias),
    )
    options = dict(run_check=False, shape=target.shape, stride=_contiguous(target.shape))
    each = lambda t: t if t is None else DTensor.from_local(t, mesh, rows, **options)
    *tokens, count = outputs
    return type(outputs)(*map(each, tokens), DTensor.from_local(count, mesh, sums, run_check=False))


def _contiguous(shape):
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])
