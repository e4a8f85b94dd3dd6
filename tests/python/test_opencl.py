"""tigon.opencl: arrays on an OpenCL device, and the operators on them through TVM-FFI."""

import gc
import threading

import pytest

np = pytest.importorskip("numpy")
tvm_ffi = pytest.importorskip("tvm_ffi")

import tigon  # noqa: E402
from tigon import opencl  # noqa: E402

try:
    opencl.device()
except RuntimeError as error:
    pytest.skip(str(error), allow_module_level=True)

OPERATORS = tvm_ffi.load_module(tigon.library_path())
RANDOM = np.random.default_rng(11)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "int8"])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 0, 4), (2, 3, 4, 5)])
def test_what_is_put_comes_back(dtype, shape):
    values = (10 * normal(*shape)).astype(dtype)
    array = opencl.put(values)
    assert array.shape == shape and array.dtype == dtype and array.nbytes == values.nbytes
    assert np.array_equal(array.numpy(), values)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = normal(4, 6).astype(ml_dtypes.bfloat16)
    out = opencl.empty((4, 6), "bfloat16")
    OPERATORS.tigon_relu_squared_fwd(opencl.put(values), out)
    on_host = np.maximum(values.astype(np.float32), 0) ** 2
    assert np.array_equal(out.numpy(), on_host.astype(ml_dtypes.bfloat16))


def test_slices_are_put_as_they_are():
    values = normal(6, 8)
    assert np.array_equal(opencl.put(values[::2, 1:5]).numpy(), values[::2, 1:5])
    assert np.array_equal(opencl.put(values.T).numpy(), values.T)


def test_operators_follow_each_other():
    """The second reads what the first wrote, and the copy what both did."""
    x = normal(64, 257)
    a, b = opencl.put(x), opencl.empty(x.shape)
    OPERATORS.tigon_relu_squared_fwd(a, b)
    OPERATORS.tigon_relu_squared_fwd(b, a)
    assert np.allclose(a.numpy(), np.maximum(x, 0) ** 4, rtol=1e-6)


def test_operators_from_many_threads():
    x = normal(33, 129)
    must = np.maximum(x, 0) ** 2

    def work(wrong):
        for _ in range(20):
            out = opencl.empty(x.shape)
            OPERATORS.tigon_relu_squared_fwd(opencl.put(x), out)
            if not np.allclose(out.numpy(), must, rtol=1e-6):
                wrong.append(out)

    wrong = []
    threads = [threading.Thread(target=work, args=(wrong,)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_host_and_device_do_not_mix():
    x = opencl.put(normal(2, 3))
    with pytest.raises(ValueError, match=r"^relu_squared_fwd: y is on cpu, must be on opencl:0 \(x\)$"):
        OPERATORS.tigon_relu_squared_fwd(x, np.empty((2, 3), np.float32))


def test_capsules_are_let_go():
    from tigon.opencl import _exported

    array = opencl.put(normal(2, 3))
    before = len(_exported)
    capsule = array.__dlpack__()
    view = tvm_ffi.from_dlpack(array)
    assert len(_exported) == before + 2
    del capsule, view
    gc.collect()
    assert len(_exported) == before


def test_mistakes():
    with pytest.raises(TypeError, match="^opencl: dtype is complex64, must be one of float32"):
        opencl.empty((2, 3), "complex64")
    with pytest.raises(ValueError, match="^opencl: shape is "):
        opencl.empty((2, -3))
    with pytest.raises(RuntimeError, match="opencl:99"):
        opencl.device(99)
    with pytest.raises(ValueError, match="^opencl: the array is in the device's own memory; "):
        opencl.empty((2, 3)).host()


def shared(*arguments):
    try:
        return opencl.shared(*arguments)
    except NotImplementedError as error:
        pytest.skip(str(error))


def test_shared_memory_is_the_hosts():
    x, y = shared((5, 7)), shared((5, 7))
    values = normal(5, 7)
    x.host()[...] = values
    OPERATORS.tigon_relu_squared_fwd(x, y)
    y.synchronize()
    assert np.allclose(y.host(), np.maximum(values, 0) ** 2, rtol=1e-6)


def test_shared_memory_outlives_its_array():
    x = shared((3, 4))
    view = x.host()
    view[...] = 7
    del x
    gc.collect()
    assert (view == 7).all()


def test_torch():
    torch = pytest.importorskip("torch")
    values = torch.randn(5, 7, dtype=torch.bfloat16)
    out = opencl.empty(values.shape, values.dtype)
    OPERATORS.tigon_relu_squared_fwd(opencl.put(values), out)
    x, y = shared((5, 7), torch.bfloat16), shared((5, 7), torch.bfloat16)
    x.torch().copy_(values)
    OPERATORS.tigon_relu_squared_fwd(x, y)
    y.synchronize()
    assert torch.equal(y.torch(), torch.relu(values.float()).square().bfloat16())
    with pytest.raises(NotImplementedError, match="^opencl: the tensor is on a device of DLPack's type 4, "):
        opencl.put(out)
