"""Extra columns in plain torch: the reference for the native kernel, and the backend on devices.

*Cost:* per format some twenty passes over memory in float64, per block shape some ten in the tensor's own dtype; no host sync.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from numscope.records.formats import Format
from numscope.summary.extras import CASTS, NUM_EXPONENTS, Layout
from numscope.summary.reference import PIECE
from numscope.summary.rounding import rounded

_CAST_OF_CODE = {cast.code: cast for cast in CASTS.values()}
_FLOAT32 = torch.finfo(torch.float32)


def observe_into(tensor: Tensor, cells: Tensor, layout: Layout) -> None:
    """Merge a tensor's extra columns into cells.

    Args:
        tensor: strided and real, of any shape; blocks are of its two-dimensional view, last dimension by all others.
        cells: float64[layout.width] on the tensor's device.
        layout: extras that do not describe a tensor's values are skipped.
    """
    if tensor.numel() == 0:
        return
    tensor = tensor.detach()
    flat = tensor.reshape(-1)
    for extra in layout.extras:
        offset = layout.offsets[extra.key]
        mine = cells[offset : offset + extra.width]
        if extra.kind == "exponents":
            for piece in torch.split(flat, PIECE):
                mine += _exponents(piece)
        elif extra.kind == "format":
            cast = _CAST_OF_CODE[extra.settings[0]]
            form = cast.format
            scale = scale_of(flat, form) if cast.scaled else None
            for piece in torch.split(flat, PIECE):
                mine += _cast_counts(piece, form, scale)
        elif extra.kind == "blockwise":
            rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
            mine.copy_(torch.maximum(mine, _block_range(rows, *extra.settings)))


def scale_of(tensor: Tensor, form: Format) -> Tensor:
    """The scale that maps a tensor's largest finite magnitude to a format's maximum: float64[] with the value of a float32.

    It is 1 for a tensor of zeros, and clamped to float32's normal numbers.
    """
    amax = torch.stack([_finite(piece).abs().amax() for piece in torch.split(tensor.reshape(-1), PIECE)]).amax()
    scale = (form.max / amax).clamp(_FLOAT32.smallest_normal, _FLOAT32.max).to(torch.float32).to(torch.float64)
    return torch.where(amax == 0, 1.0, scale)


def _finite(piece: Tensor) -> Tensor:
    """The elements as float64, with zeros for those that are not finite."""
    x = _readable(piece).to(torch.float64)
    return torch.where(torch.isfinite(x), x, 0.0)


def _readable(tensor: Tensor) -> Tensor:
    # not every device can cast fp8 to float64 or compute its extrema; float32 represents all of it
    return tensor.to(torch.float32) if tensor.element_size() == 1 and tensor.is_floating_point() else tensor


def _exponents(piece: Tensor) -> Tensor:
    x = _readable(piece).to(torch.float64)
    exponent = (torch.frexp(x).exponent + 126).clamp(0, NUM_EXPONENTS - 1)  # frexp's significand is below 1
    exponent = torch.where(x == 0, 0, exponent)
    exponent = torch.where(torch.isfinite(x), exponent, NUM_EXPONENTS).to(torch.int16)
    # Sorting counts without atomics, which deterministic mode forbids, and without the sync of bincount.
    edges = torch.arange(NUM_EXPONENTS + 1, device=x.device, dtype=torch.int16)
    return torch.searchsorted(exponent.sort().values, edges).diff().to(torch.float64)


def _cast_counts(piece: Tensor, form: Format, scale: Tensor | None) -> Tensor:
    x = _finite(piece)
    exact = x if scale is None else x * scale
    is_narrow = piece.is_floating_point() and piece.dtype is not torch.float64
    y = exact.to(torch.float32).to(torch.float64) if scale is not None and is_narrow else exact
    cast = rounded(y, form)
    over = cast.abs() > form.max
    error = torch.where(over, 0.0, exact - cast) if scale is None else exact - cast.clamp(-form.max, form.max)
    square_error = (error * error).sum()
    if scale is not None:
        square_error = square_error / scale / scale  # the error was taken of scaled numbers
    return torch.stack([((cast == 0) & (x != 0)).sum().to(torch.float64), over.sum().to(torch.float64), square_error])


def _block_range(rows: Tensor, size: int, orientations: int) -> Tensor:
    magnitude = _readable(rows)
    magnitude = magnitude.abs() if magnitude.is_floating_point() else magnitude.to(torch.float64).abs()
    widest = torch.zeros((), dtype=torch.float64, device=rows.device)
    # in bands of whole blocks, about a piece at a time
    for band in torch.split(magnitude, max(1, PIECE // (size * rows.shape[1])) * size):
        high = torch.where(torch.isfinite(band), band, 0.0)
        low = torch.where(high == 0, math.inf, high)
        num_rows, num_columns = band.shape
        pad = (0, -num_columns % size, 0, -num_rows % size)
        high, low = torch.nn.functional.pad(high, pad), torch.nn.functional.pad(low, pad, value=math.inf)
        squares = (high.shape[0] // size, size, high.shape[1] // size, size)
        for bit, dims in ((1, 3), (2, 1), (4, (1, 3))):
            if orientations & bit:
                most, least = high.view(squares).amax(dims), low.view(squares).amin(dims)
                span = torch.log2(most.to(torch.float64)) - torch.log2(least.to(torch.float64))
                widest = torch.maximum(widest, torch.where(most > 0, span, 0.0).amax())
    return widest
