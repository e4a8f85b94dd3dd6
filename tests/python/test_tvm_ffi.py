"""The library's TVM-FFI symbols, called from NumPy, PyTorch and JAX on the CPU."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
tvm_ffi = pytest.importorskip("tvm_ffi")

SOURCE = Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("TIGON_LIBRARY", str(SOURCE / "build" / "libtigon.so"))
MODULE = tvm_ffi.load_module(LIBRARY)
RANDOM = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def workspace_for(entry, *arguments):
    return np.empty(MODULE[f"{entry}_workspace"](*arguments), np.uint8)


def close(got, must, bound=2e-6):
    must = np.asarray(must)
    assert got.shape == must.shape
    assert np.all(np.abs(got - must) <= bound * max(1.0, np.abs(must).max()))


# ---- the list of entries, and the layout of values ----


HEADERS = "".join(path.read_text() for path in sorted((SOURCE / "include/tigon/op").glob("*.h")))
STRUCTS = dict((name, body) for body, name in re.findall(r"typedef struct \w+ \{\n(.*?)\n\} (\w+);", HEADERS, re.S))
MUST = {"tigon_tensor": "a tensor or None", "void": "a tensor or None", "double": "a number or None"}


def arguments(struct, prefix=""):
    """[(name, what it must be)] of a struct's fields, in the struct's order."""
    listed = []
    for kind, pointer, name in re.findall(r"^  (?:const )?(\w+) (\*?)(\w+);", STRUCTS[struct], re.M):
        if kind in STRUCTS:
            listed += arguments(kind, "" if pointer else f"{prefix}{name}.")
        elif name not in ("workspace_bytes", "count"):
            listed.append((prefix + name, MUST.get(kind, "an int, a bool or None")))
    return listed


def declarations():
    """[(symbol, entry, its arguments)] of every function of include/tigon/op."""
    found = []
    function = r"tigon_status tigon_(\w+)\(\s*tigon_context \*context,\s+const (\w+) \*args"
    for name, struct in re.findall(function, HEADERS):
        listed = arguments(struct)
        entry = re.sub("_workspace$", "_fwd" if name.startswith("fused_linear_cross_entropy") else "", name)
        tensors_first = sorted(listed, key=lambda argument: argument[1] != MUST["tigon_tensor"])
        found.append((f"tigon_{name}", entry, tensors_first))
    return found


def test_every_entry_is_declared():
    listed = re.findall(r"^TIGON_\w+\((\w+), (\w+)\)", (SOURCE / "src" / "ops.def").read_text(), re.M)
    assert {f"tigon_{op}_{entry}" for op, entry in listed} < {symbol for symbol, *_ in declarations()}


@pytest.mark.parametrize("symbol, entry, names", declarations(), ids=[symbol for symbol, *_ in declarations()])
def test_arguments_are_the_structs_fields(symbol, entry, names):
    """A string is nowhere right, so what each place says about one tells which argument it is."""
    for place, (name, must) in enumerate(names):
        with pytest.raises(TypeError) as error:
            MODULE[symbol](*[None] * place, "text")
        assert str(error.value) == f"{entry}: {name} is a string, must be {must}"
    with pytest.raises(TypeError) as error:
        MODULE[symbol](*[None] * (len(names) + 1))
    assert str(error.value) == f"{entry}: {len(names) + 1} arguments are given, must be {len(names)} or less"


LAYOUT = r"""
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include "ffi/ffi.h"
#define SAME(ours, our_field, theirs, their_field) \
  _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                     sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field), #our_field)
SAME(ffi_value, type, TVMFFIAny, type_index);
SAME(ffi_value, padding, TVMFFIAny, zero_padding);
SAME(ffi_value, integer, TVMFFIAny, v_int64);
SAME(ffi_value, number, TVMFFIAny, v_float64);
SAME(ffi_value, pointer, TVMFFIAny, v_ptr);
SAME(ffi_object, references, TVMFFIObject, combined_ref_count);
SAME(ffi_object, type, TVMFFIObject, type_index);
SAME(ffi_object, deleter, TVMFFIObject, deleter);
_Static_assert(sizeof(ffi_value) == sizeof(TVMFFIAny), "value");
_Static_assert(offsetof(ffi_tensor, view) == sizeof(TVMFFIObject), "tensor");
_Static_assert(offsetof(ffi_sequence, values) == sizeof(TVMFFIObject) + offsetof(TVMFFISeqCell, data), "values");
_Static_assert(offsetof(ffi_sequence, count) == sizeof(TVMFFIObject) + offsetof(TVMFFISeqCell, size), "count");
_Static_assert(FFI_NONE == kTVMFFINone && FFI_INT == kTVMFFIInt && FFI_BOOL == kTVMFFIBool &&
                   FFI_FLOAT == kTVMFFIFloat && FFI_DLTENSOR == kTVMFFIDLTensorPtr &&
                   FFI_RAW_STRING == kTVMFFIRawStr && FFI_SMALL_STRING == kTVMFFISmallStr &&
                   FFI_STRING == kTVMFFIStr && FFI_TENSOR == kTVMFFITensor && FFI_ARRAY == kTVMFFIArray &&
                   FFI_LIST == kTVMFFIList, "types");
int __tvm_ffi_tigon_rms_norm_fwd(void *, const ffi_value *, int32_t, ffi_value *);
int main(void) {
  const TVMFFISafeCallType call = (TVMFFISafeCallType)__tvm_ffi_tigon_rms_norm_fwd;
  void (*raise)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
  void *(*stream)(int32_t, int32_t) = TVMFFIEnvGetStream;
  return !call + !raise + !stream;
}
"""


def test_layout_is_upstreams(tmp_path):
    """C11, against the headers of the installed apache-tvm-ffi, prototypes of both functions included."""
    from tvm_ffi import libinfo

    (tmp_path / "layout.c").write_text(LAYOUT)
    includes = [libinfo.find_include_path(), libinfo.find_dlpack_include_path(), SOURCE / "include", SOURCE / "src"]
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=c11", "-Werror", "-fsyntax-only"]
    subprocess.run([compiler, *flags, *(f"-I{path}" for path in includes), "layout.c"], cwd=tmp_path, check=True)


# ---- values ----


def rms_norm_reference(x, w, eps):
    x, w = x.astype(np.float64), w.astype(np.float64)
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return x * rstd * w, rstd


def test_rms_norm_strided():
    """x and dx are columns of wider arrays; no copy is made, and what lies beside dx stays as it is."""
    wide = normal(3, 5, 100)
    x, w, dy = wide[..., 20:60], normal(40), normal(3, 5, 40)
    y, rstd = np.empty((3, 5, 40), np.float32), np.empty(15, np.float32)
    assert MODULE.tigon_rms_norm_fwd(x, w, y, rstd, None, 1e-6) is None
    must, must_rstd = rms_norm_reference(x, w, 1e-6)
    close(y, must)
    close(rstd, must_rstd.reshape(-1))

    wide_dx, dw = np.full((3, 5, 100), 7, np.float32), np.empty(40, np.float32)
    dx = wide_dx[..., 20:60]
    workspace = workspace_for("tigon_rms_norm_bwd", dy, x, w, rstd, dx, dw)
    MODULE.tigon_rms_norm_bwd(dy, x, w, rstd, dx, dw, None, None, workspace)
    xhat, g = x * must_rstd, dy.astype(np.float64) * w
    close(dx, must_rstd * (g - xhat * (g * xhat).mean(-1, keepdims=True)))
    close(dw, (dy * xhat).sum((0, 1)))
    assert np.all(wide_dx[..., :20] == 7) and np.all(wide_dx[..., 60:] == 7)


@pytest.mark.parametrize("label", [np.int32, np.int64])
def test_cross_entropy_with_dlogits(label):
    logits, labels = normal(9, 50), RANDOM.integers(0, 50, 9).astype(label)
    labels[4] = -100
    loss, dlogits, correct = np.empty(1, np.float32), np.empty_like(logits), np.empty(1, np.int64)
    outputs = [loss, None, None, None, None, None, correct, None]
    tensors = [logits, labels, None, None, None, *outputs, dlogits, None, None]
    workspace = workspace_for("tigon_cross_entropy_fwd", *tensors)
    MODULE.tigon_cross_entropy_fwd(*tensors, workspace, True, -100, 0.1)

    z = logits.astype(np.float64)
    lse = np.log(np.exp(z).sum(-1, keepdims=True))
    target = 0.9 * np.eye(50)[labels % 50] + 0.1 / 50
    counted = (labels != -100)[:, None]
    close(loss, [(counted * target * (lse - z)).sum() / 8])
    close(dlogits, counted * (np.exp(z - lse) - target) / 8)
    assert correct == (z.argmax(-1) == labels).sum()


@pytest.mark.parametrize("dtype, bound", [(np.float32, 2e-6), (np.float16, 1e-3)])
def test_swiglu(dtype, bound):
    a, b, dc = normal(4, 31, dtype=dtype), normal(4, 31, dtype=dtype), normal(4, 31, dtype=dtype)
    c, da, db = (np.empty_like(a) for _ in range(3))
    MODULE.tigon_swiglu_fwd(a, b, c)
    MODULE.tigon_swiglu_bwd(dc, a, b, da, db)
    u, v, g = (t.astype(np.float64) for t in (a, b, dc))
    sigma = 1 / (1 + np.exp(-u))
    close(c, u * sigma * v, bound)
    close(da, g * v * sigma * (1 + u * (1 - sigma)), bound)
    close(db, g * u * sigma, bound)


def test_adamw_takes_lists():
    params = [normal(3, 4), normal(7)]
    grads = [normal(3, 4), normal(7)]
    moments = [[np.zeros_like(p) for p in params] for _ in range(2)]
    must = [p - 1e-2 * (d * p + g / (np.abs(g) + 1e-8)) for p, g, d in zip(params, grads, (0.1, 0.0))]
    numbers = (1e-2, 0.9, 0.999, 1e-8, 1)
    single = [params[0].copy(), None, grads[0], np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)]
    MODULE.tigon_adamw_step(params, None, grads, *moments, None, [0.1, 0.0], *numbers)
    for p, m in zip(params, must):
        close(p, m, 1e-5)
    MODULE.tigon_adamw_step(*single, None, 0.1, *numbers)
    assert np.array_equal(single[0], params[0])
    with pytest.raises(ValueError, match=re.escape("adamw_step: grad has 1 elements, must have 2 (param)")):
        MODULE.tigon_adamw_step(params, None, grads[:1], *moments, None, 0.0, *numbers)


def test_bf16_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x, y = torch.randn(8, 65, dtype=torch.bfloat16), torch.empty(8, 65, dtype=torch.bfloat16)
    MODULE.tigon_relu_squared_fwd(x, y)
    assert torch.equal(y, (x.float().relu() ** 2).bfloat16())


def test_the_smaller_workspace_does_too():
    hidden, weight, labels = normal(6, 16), normal(40, 16), RANDOM.integers(0, 40, 6)
    loss = [np.empty(1, np.float32) for _ in range(2)]
    sizes = []
    for out, query in zip(loss, ("workspace_minimum", "workspace")):
        tensors = [hidden, weight, None, labels, None, None, None, out] + [None] * 12
        sizes.append(MODULE[f"tigon_fused_linear_cross_entropy_{query}"](*tensors))
        MODULE.tigon_fused_linear_cross_entropy_fwd(*tensors, np.empty(sizes[-1], np.uint8))
    assert 0 < sizes[0] <= sizes[1]
    logits = hidden.astype(np.float64) @ weight.astype(np.float64).T
    must = (np.log(np.exp(logits).sum(-1)) - logits[np.arange(6), labels]).mean()
    close(loss[0], [must])
    close(loss[1], [must])


def test_threads_get_the_same_bits():
    x, w = normal(64, 512), normal(512)
    results = [np.empty_like(x) for _ in range(8)]

    def work(y):
        for _ in range(20):
            MODULE.tigon_rms_norm_fwd(x, w, y, None, None, 1e-6)

    threads = [threading.Thread(target=work, args=(y,)) for y in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(results[0], rms_norm_reference(x, w, 1e-6)[0])
    assert all(np.array_equal(y, results[0]) for y in results)


# ---- errors ----

X, W, Y, RSTD = normal(4, 40), normal(40), normal(4, 40), normal(4)
LABELS = np.array([0, 1, 2, 40])
FORWARD = [
    (ValueError, "y.shape[1] is 39, must be 40 (x.shape[1])", (X, W, Y[:, :39])),
    (ValueError, "x.strides[1] is 2, must be 1", (X[:, ::2], W[:20], Y[:, :20])),
    (ValueError, "y is absent", (X, W)),
    (ValueError, "casting is 5, must be 0 to 2", (X, W, Y, None, None, 1e-6, 0, 5)),
    (TypeError, "x.dtype is i64, must be f32, f16, bf16", (LABELS, W, Y)),
    (TypeError, "w.dtype is f16, must be f32 (x.dtype)", (X, W.astype(np.float16), Y)),
    (
        TypeError,
        "x: tensor_from_dlpack: dtype is code 2, 64 bits, 1 lanes, must be f32, f16, bf16, i32, i64, f8e4m3 or i8 with 1 lane",
        (X.astype(np.float64), W, Y),
    ),
    (TypeError, "9 arguments are given, must be 8 or less", (X, W, Y, None, None, 1e-6, 0, 0, 0)),
    (TypeError, "eps is a string, must be a number or None", (X, W, Y, None, None, "1e-6")),
    (TypeError, "casting is a float, must be an int, a bool or None", (X, W, Y, None, None, 1, 0, 0.5)),
    (TypeError, "x is a list, must be a tensor or None", ([X], W, Y)),
]
WRONG = [(kind, "rms_norm_fwd: " + sentence, "rms_norm_fwd", arguments) for kind, sentence, arguments in FORWARD] + [
    (
        ValueError,
        "rms_norm_bwd: workspace is NULL, must have 640 bytes",
        "rms_norm_bwd",
        (X, X, W, RSTD, Y, np.empty_like(W)),
    ),
    (
        ValueError,
        "cross_entropy_fwd: labels[3] is 40, must be 0 to 39 (logits.shape[1] - 1)",
        "cross_entropy_fwd",
        (X, LABELS, None, None, None, np.empty(1, np.float32), *[None] * 7, Y, None, None, np.empty(4096, np.uint8)),
    ),
]


@pytest.mark.parametrize("kind, sentence, entry, arguments", WRONG, ids=[sentence for _, sentence, *_ in WRONG])
def test_errors_are_the_librarys_sentence(kind, sentence, entry, arguments):
    before = Y.copy()
    with pytest.raises(kind) as error:
        MODULE["tigon_" + entry](*arguments)
    assert str(error.value) == sentence
    assert np.array_equal(Y, before)


def test_errors_reach_a_runtime_that_was_loaded_later():
    program = f"""
import ctypes
ctypes.CDLL({LIBRARY!r})
import tvm_ffi
try:
    tvm_ffi.load_module({LIBRARY!r}).tigon_rms_norm_fwd()
except ValueError as error:
    assert str(error) == "rms_norm_fwd: x is absent", error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# ---- JAX, and the documentation's examples ----


@pytest.fixture(scope="module")
def jax():
    """JAX on the CPU; without JAX or jax-tvm-ffi the test is skipped."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax_tvm_ffi")
    jax.config.update("jax_platforms", "cpu")
    return jax


def example(title):
    """What the Python blocks of a section of docs/other-frameworks.md define, run with this library."""
    text = (SOURCE / "docs" / "other-frameworks.md").read_text()
    section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)
    code = "".join(re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S))
    assert "build/libtigon.so" in code
    names = {}
    exec(compile(code.replace("build/libtigon.so", LIBRARY), f"other-frameworks.md: {title}", "exec"), names)
    return names


def test_numpy_example():
    names = example("NumPy")
    close(names["y"], rms_norm_reference(names["x"], names["w"], 1e-6)[0])
    assert names["dx"].shape == names["x"].shape and np.isfinite(names["dx"]).all()


def test_jax_custom_vjp(jax):
    """The documentation's rms_norm and softmax under jit, and rms_norm's gradients against JAX's own."""
    names = example("JAX")
    jnp, rms_norm = jax.numpy, names["rms_norm"]
    close(np.asarray(jax.jit(names["softmax"])(jnp.asarray(X))), jax.nn.softmax(X))
    x, w, dy = jnp.asarray(normal(3, 5, 40)), jnp.asarray(normal(40)), jnp.asarray(normal(3, 5, 40))

    def plain(x, w):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w

    close(np.asarray(jax.jit(rms_norm)(x, w)), rms_norm_reference(np.asarray(x), np.asarray(w), 1e-6)[0])
    got = jax.jit(jax.grad(lambda x, w: (rms_norm(x, w) * dy).sum(), (0, 1)))(x, w)
    must = jax.grad(lambda x, w: (plain(x, w) * dy).sum(), (0, 1))(x, w)
    for ours, theirs in zip(got, must):
        close(np.asarray(ours), theirs, 1e-5)


def test_jax_raises_the_librarys_sentence(jax):
    import jax_tvm_ffi

    jax_tvm_ffi.register_ffi_target("test_relu_squared_fwd", MODULE.tigon_relu_squared_fwd, ["args", "rets"])
    wrong = jax.ffi.ffi_call("test_relu_squared_fwd", jax.ShapeDtypeStruct((4, 39), np.float32))
    with pytest.raises(Exception, match=re.escape("relu_squared_fwd: y.shape[1] is 39, must be 40 (x.shape[1])")):
        jax.block_until_ready(wrong(jax.numpy.asarray(X)))
