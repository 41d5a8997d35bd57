"""Summaries in plain torch: the reference, and the backend if no other applies.

*Cost:* some twenty passes over memory in float64; no host sync (but coalescing a sparse tensor syncs on CUDA).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from numscope.summary.native import CODES
from numscope.summary.state import EMPTY_ROW, Groups, moved

_CENTER_SAMPLE = 8  # elements by which a piece's center is chosen; mirrors csrc/summary.h
PIECE = 1 << 20  # elements summarized at a time: float64 copies of a large tensor would take several times its memory


def observe_into(tensor: Tensor, row: Tensor, groups: int = Groups.ALL) -> None:
    """Merge a tensor's summary into a row.

    A complex number is two elements. A sparse tensor's implied zeros are elements. Integers are converted to float64, exactly up to 2^53.

    Args:
        tensor: of any shape, layout (strided, COO, CSR, CSC, BSR, BSC) and real or complex dtype; not quantized, not meta.
        row: float64[16] on the tensor's device.

    Raises: TypeError: the dtype does not store numbers one by one (quantized, packed).
    """
    values, num_implied_zeros = _stored_values(tensor.detach())
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
        num_implied_zeros *= 2
    if values.is_quantized or values.dtype not in _SMALLEST_NORMAL:
        raise TypeError(f"observe_into: got dtype {tensor.dtype}, expected bool, an integer of 8 bits or more, a float or a complex dtype")
    if num_implied_zeros:
        _merge_zeros(row, num_implied_zeros, groups)
    if values.numel():
        for piece in torch.split(values.reshape(-1), PIECE):
            _merge_dense(piece, row, groups)


def _stored_values(tensor: Tensor) -> tuple[Tensor, int]:
    if tensor.layout is torch.strided:
        return tensor, 0
    if tensor.layout is torch.sparse_coo:
        values = tensor.coalesce().values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        values = tensor.values()
    else:
        return tensor.to_dense(), 0
    return values, tensor.numel() - values.numel()


_SMALLEST_NORMAL: dict[torch.dtype, float] = {
    dtype: torch.finfo(dtype).smallest_normal if dtype.is_floating_point else 0.0
    for dtype in (*CODES, torch.uint16, torch.uint32, torch.uint64)
} | {torch.float8_e8m0fnu: 0.0}  # only powers of two: nothing is subnormal


def _merge_zeros(row: Tensor, count: int, groups: int) -> None:
    if groups & Groups.MOMENTS:
        zero = row.new_zeros(())
        _merge_sums(row, zero + count, zero, row.new_zeros(5))
    row[0] += count
    row[4] += count
    row[6:10:2].copy_(torch.stack([row[6].clamp(max=0.0), row[8]]))
    row[7:10:2].clamp_(min=0.0)


def _merge_dense(values: Tensor, row: Tensor, groups: int) -> None:
    # not every device can cast fp8 to float64; float32 represents all of it
    exact = values.to(torch.float32) if values.element_size() == 1 and values.is_floating_point() else values
    x = exact.to(torch.float64)
    finite = torch.isfinite(x)
    magnitude = x.abs()
    is_zero = magnitude == 0
    counts = torch.stack(
        [
            torch.isnan(x).sum(),
            (x == math.inf).sum(),
            (x == -math.inf).sum(),
            is_zero.sum(),
            ((magnitude < _SMALLEST_NORMAL[values.dtype]) & ~is_zero).sum(),
        ]
    )
    if groups & Groups.MOMENTS:
        center = _center_of(exact)
        y = torch.where(finite, x - center, 0.0)
        square = y * y
        if groups & Groups.HIGHER:
            higher = [(square * y).sum(), (square * square).sum()]
        else:
            higher = [torch.where(finite.any(), math.nan, 0.0).to(torch.float64)] * 2
        sums = torch.stack([y.sum(), torch.where(finite, magnitude, 0.0).sum(), square.sum(), *higher])
        _merge_sums(row, finite.sum().to(torch.float64), center, sums)
    row[0] += values.numel()
    row[1:6].add_(counts.to(torch.float64))
    lowest = torch.stack([torch.where(finite, x, math.inf).amin(), torch.where(is_zero | ~finite, math.inf, magnitude).amin()])
    highest = torch.stack([torch.where(finite, x, -math.inf).amax(), torch.where(finite, magnitude, -math.inf).amax()])
    row[6:10:2].copy_(torch.minimum(row[6:10:2], lowest + 0.0))  # + 0.0 makes -0.0 plain 0.0
    row[7:10:2].copy_(torch.maximum(row[7:10:2], highest + 0.0))


def _center_of(values: Tensor) -> Tensor:
    """The provisional center of csrc/summary.h, float64[]."""
    sample = values[:: max(1, values.numel() // _CENTER_SAMPLE)][:_CENTER_SAMPLE].to(torch.float64)
    finite = torch.isfinite(sample)
    least, most = torch.where(finite, sample, math.inf).amin(), torch.where(finite, sample, -math.inf).amax()
    center = torch.where(least > 0, least, most)
    is_close = torch.where(least > 0, most / 2 <= least, (most < 0) & (least / 2 >= most)) & torch.isfinite(center)
    return torch.where(is_close, center, 0.0)


def _merge_sums(row: Tensor, num_finite: Tensor, center: Tensor, sums: Tensor) -> None:
    """Merge sums about a center into a row whose counts are still without them; that of fewer elements moves to the other's center."""
    before = row[0] - row[1] - row[2] - row[3]
    middle = torch.where(before < num_finite, center, row[15])
    row[10:15].copy_(_moved(row[10:15], before, row[15] - middle) + _moved(sums, num_finite, center - middle))
    row[15].copy_(middle)


def _moved(sums: Tensor, n: Tensor, d: Tensor) -> Tensor:
    s1, magnitudes, *others = sums.unbind()
    first, *rest = moved(n, (s1, *others), d)
    return torch.where((d == 0) | (n == 0), sums, torch.stack([first, magnitudes, *rest]))


def empty_block(num_rows: int, device: torch.device | str = "cpu") -> Tensor:
    """Rows to observe into: float64[num_rows, 16], each empty."""
    return torch.tensor(EMPTY_ROW, dtype=torch.float64, device=device).repeat(num_rows, 1)
