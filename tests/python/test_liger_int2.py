"""Liger-Kernel's product with 2-bit weights."""

import pytest
import torch

from tigon.compat.liger.ops.experimental import mm_int8int2 as int2
from tigon.compat.liger import _int2

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def weights_of(*shape):
    return torch.randint(-1, 3, shape, dtype=torch.int32)


@pytest.mark.parametrize("m, k, n", [(1, 4, 1), (17, 64, 8), (3, 20, 13), (40, 256, 100), (2, 8, 0), (0, 8, 3), (2, 0, 3)])
def test_product(monkeypatch, m, k, n):
    monkeypatch.setattr(_int2, "_PANEL", 256 * 16)  # several panels
    a, weights = torch.randint(-128, 128, (m, k), dtype=torch.int8), weights_of(k, n)
    y = int2.matmul(a.to(DEVICE), int2.pack_weights(weights.to(DEVICE)))
    assert y.dtype == torch.int32
    assert torch.equal(y.long().cpu(), a.long() @ weights.long())


@pytest.mark.parametrize("shape", [(8,), (4, 3), (6, 2), (1, 2), (0, 2), (5, 2, 3)])
def test_packed(shape):
    weights = weights_of(*shape)
    kept, packed = weights.clone(), int2.pack_weights(weights)
    assert packed.shape == (-(-shape[0] // 4), *shape[1:])
    unpacked = int2.unpack_weights(packed)
    assert torch.equal(unpacked[: shape[0]], weights) and (unpacked[shape[0] :] == -1).all()
    assert torch.equal(weights, kept)  # Liger-Kernel's has 1 added to it


def test_order_of_bits():
    assert int2.pack_weights(torch.tensor([-1, 0, 1, 2])).tolist() == [0b11_10_01_00]
    assert int2.unpack_weights(torch.tensor([[0b11_10_01_00, 0b00_00_00_01]], dtype=torch.uint8)).T.tolist() == [
        [-1, 0, 1, 2],
        [0, -1, -1, -1],
    ]


def test_refusals():
    a, b = torch.zeros(2, 8, dtype=torch.int8), torch.zeros(2, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"shapes are \[2, 8\] and \[3, 3\], must be \[M, K\] and \[K / 4, N\]"):
        int2.matmul(a, torch.zeros(3, 3, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"torch.float32 and torch.uint8, must be torch.int8 and torch.uint8"):
        int2.matmul(a.float(), b)
    with pytest.raises(ValueError, match="pack_weights: bits is 4, must be 2"):
        int2.pack_weights(b, bits=4)
