"""Every operator, forward and backward, against the float64 oracle; through torch's dispatcher; compiled."""

import pytest
import torch
from op_cases import CASES, against_oracle, make_inputs, outputs, run
from torch.utils._python_dispatch import TorchDispatchMode

from tigon.torch import _scale, functional as T
from tigon.torch._op import OPS
from tigon.torch.operators import divergence, losses

by_name = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@by_name
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "padded", "turned"])
def test_oracle(case, dtype, layout):
    against_oracle(case, dtype, layout)


@by_name
def test_compiled(case):
    """torch.compile finds one graph, and the same bits come out."""
    leaves, views = make_inputs(case, torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(case.run, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(run(compiled, leaves, views), run(case.run, leaves, views)):
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@by_name
def test_without_gradients(case):
    """Where no graph is kept the same bits come out, and nothing that wants a gradient."""
    leaves, views = make_inputs(case, torch.float32)
    with torch.no_grad():
        found = outputs(case.run, leaves, views)
    assert not any(y.requires_grad for y in found)
    wanted = outputs(case.run, leaves, views)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


LOSS = False, 0, 0.0, 0.0, 0.0, 1.0, False, 0  # the options of a mean


class Recorder(TorchDispatchMode):
    """Keeps the first arguments that each of our operators is called with."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "tigon":
            self.seen.setdefault(function, args)
        return function(*args, **(kwargs or {}))


def test_every_operator_as_torch_sees_it():
    """torch.library.opcheck on each registered operator, with the arguments that the cases hand it."""
    with Recorder() as recorder:
        for case in CASES:
            run(case.run, *make_inputs(case, torch.float32))
        T.rms_norm_quantised(torch.randn(3, 8), torch.ones(8))  # without a gradient, and so without a case
        loss = losses._with_gradient(torch.randn(3, 8), torch.arange(3), *[None] * 3, *LOSS, True)[0]
        _scale._scale(torch.randn(3, 8), loss)
        divergence._with_gradient(torch.randn(3, 8), torch.randn(3, 8), *[None] * 3, 0, 0, 0, 0.5, 1.0, -100, 0, False, True)
    assert set(recorder.seen) == {op.torch_op for op in OPS.values()}
    for function, args in recorder.seen.items():
        torch.library.opcheck(function, [a.detach() if isinstance(a, torch.Tensor) else a for a in args])


SCHEMAS = (  # an option for each gradient that may be absent; an extent that no argument has; a renamed field
    "tigon::rms_norm_fwd(Tensor x, Tensor? w, Tensor? z, float eps, float w_offset, int casting)"
    " -> (Tensor y, Tensor rstd)",
    "tigon::layer_norm_bwd(Tensor dy, Tensor x, Tensor? w, Tensor stats, bool need_dw, ScalarType? db_dtype)"
    " -> (Tensor dx, Tensor dw, Tensor db)",
    "tigon::embedding_bwd(Tensor dy, Tensor idx, int vocab, bool has_padding_idx, int padding_idx) -> Tensor dtable",
    "tigon::swiglu_packed_bwd(Tensor dc, Tensor ab, float gate_mult, float down_mult, float clamp, float up_offset)"
    " -> Tensor dab",
    "tigon::attention_fwd(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k,"
    " float scale, bool causal, bool exact, int window, float softcap, int dilation) -> (Tensor o, Tensor lse)",
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_from_descriptions(schema):
    name = schema[len("tigon::") : schema.index("(")]
    assert str(torch._C.parse_schema(schema)) == str(OPS[name].torch_op._schema)
