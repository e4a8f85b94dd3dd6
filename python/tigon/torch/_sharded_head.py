"""A language-model head whose tokens or weight are DTensors.

A weight that one mesh dimension shards over the vocabulary is a tensor-parallel head where each rank has all tokens:
no rank needs another one's classes. Else each rank makes the log-probabilities of its own tokens with the whole weight,
which is gathered for the call. Its gradient is a sum over the ranks that share out the tokens, and goes back to where
the weight's parts are."""

from tigon.torch._sharding import check_mesh, contiguous, row_placements

_CALL = "linear_logprob"


def over_ranks(local, hidden, weight, target, bias):
    """`local` of the rank's own hidden, weight, target and bias, whose outputs are one for each token, or None, and a
    count, or None; as DTensors."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh = getattr(hidden, "device_mesh", None)
    check_mesh(_CALL, mesh, hidden=hidden, weight=weight, target=target, bias=bias)
    if target.shape != hidden.shape[:-1]:
        must = list(hidden.shape[:-1])
        raise ValueError(f"{_CALL}: target.shape is {list(target.shape)}, must be {must}, as hidden is a DTensor")
    everywhere = (Replicate(),)
    if is_tensor_parallel(weight, bias) and hidden.placements == target.placements == everywhere:
        outputs = over_vocabulary(local, hidden.to_local(grad_placements=everywhere), weight, target.to_local(), bias)
        each = lambda t: t if t is None else DTensor.from_local(t, mesh, everywhere, run_check=False)
        return type(outputs)(*map(each, outputs))
    rows, whole, sums = row_placements(hidden)

    def parameter(t):
        return t if t is None else t.redistribute(placements=whole).to_local(grad_placements=sums)

    outputs = local(
        hidden.redistribute(placements=rows).to_local(grad_placements=rows),
        parameter(weight),
        target.redistribute(placements=rows).to_local(),
        parameter(bias),
    )
    options = dict(run_check=False, shape=target.shape, stride=contiguous(target.shape))
    each = lambda t: t if t is None else DTensor.from_local(t, mesh, rows, **options)
    *tokens, count = outputs
    return type(outputs)(*map(each, tokens), DTensor.from_local(count, mesh, sums, run_check=False))


def is_tensor_parallel(weight, bias):
    """Whether they are DTensors, or bias None, that one mesh dimension shards over the vocabulary."""
    from torch.distributed.tensor import DTensor, Shard

    return all(
        isinstance(t, DTensor) and t.placements == (Shard(0),) and t.device_mesh == weight.device_mesh
        for t in (weight, *([] if bias is None else [bias]))
    )


def over_vocabulary(local, hidden, weight, target, bias):
    """`local` of the rank's shard of a tensor-parallel head; hidden and target are all ranks'."""
    mesh, vocab = weight.device_mesh, weight.shape[0]
    most = -(-vocab // mesh.size())  # as torch.chunk cuts
    begin = min(most * mesh.get_local_rank(), vocab)
    weight, bias = (t if t is None else t.to_local(grad_placements=t.placements) for t in (weight, bias))
    found, must = weight.shape[0], min(most, vocab - begin)
    if found != must:
        raise ValueError(f"{_CALL}: weight.to_local().shape[0] is {found}, must be {must}, as torch.chunk cuts {vocab}")
    return local(hidden, weight, target, bias, group=mesh.get_group(), vocab=vocab, vocab_begin=begin)


def check_group(group, weight):
    """Refuses another group than that of a tensor-parallel head."""
    from torch.distributed import get_process_group_ranks as ranks_of

    found, must = ranks_of(group), ranks_of(weight.device_mesh.get_group())
    if found != must:
        raise ValueError(f"{_CALL}: group has the ranks {found}, must have {must} (weight.device_mesh's)")
