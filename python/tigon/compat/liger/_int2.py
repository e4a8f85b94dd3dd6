"""Liger-Kernel's product with 2-bit weights: PyTorch's int8 product of some columns at a time, which are unpacked for it.

Four weights from -1 to 2 share a byte, each as one more than it is. Row j of R packed rows has those of rows j, R + j,
2 R + j and 3 R + j, from the lowest bits up."""

import torch
from torch.nn.functional import pad

_EACH = 4  # weights of a byte
_PANEL = 64 << 20  # bytes of unpacked weights


def _check_bits(call, bits):
    if bits != 2:
        raise ValueError(f"{call}: bits is {bits}, must be 2")


def _codes(packed):
    return torch.cat([packed >> 2 * i & 3 for i in range(_EACH)])


def unpack_weights(packed, bits=2):
    """i32 [4 R, ...] of u8 [R, ...]."""
    _check_bits("unpack_weights", bits)
    return _codes(packed).to(torch.int32) - 1


def pack_weights(intweights, bits=2):
    """u8 [ceil(n / 4), ...] of integers [n, ...] from -1 to 2. What a last row lacks is -1."""
    _check_bits("pack_weights", bits)
    rows = -(-intweights.shape[0] // _EACH)
    packed = torch.zeros((rows, *intweights.shape[1:]), dtype=torch.uint8, device=intweights.device)
    for i, part in enumerate((intweights + 1).to(torch.uint8).split(max(rows, 1))):
        packed[: part.shape[0]] |= part << 2 * i
    return packed


def matmul(a, b):
    """i32 [M, N] = a i8 [M, K] times the weights of b u8 [K / 4, N], exact; without a gradient."""
    if a.dtype != torch.int8 or b.dtype != torch.uint8:
        raise TypeError(f"matmul: a and b are {a.dtype} and {b.dtype}, must be torch.int8 and torch.uint8")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != _EACH * b.shape[0]:
        raise ValueError(f"matmul: shapes are {list(a.shape)} and {list(b.shape)}, must be [M, K] and [K / 4, N]")
    (rows, terms), columns = a.shape, b.shape[1]
    y = torch.zeros(rows, columns, dtype=torch.int32, device=a.device)
    if 0 in (rows, terms, columns):
        return y
    # The product of a GPU takes more than 16 rows, and multiples of 8 of what else there is.
    a = pad(a, (0, -terms % 8, 0, max(17 - rows, 0))).contiguous()
    width = max(_PANEL // a.shape[1] // 8 * 8, 8)
    for begin in range(0, columns, width):
        codes = _codes(b[:, begin : begin + width])
        weights = pad(codes.to(torch.int8) - 1, (0, -codes.shape[1] % 8, 0, -terms % 8))
        y[:, begin : begin + width] = torch._int_mm(a, weights)[:rows, : codes.shape[1]]
    return y
