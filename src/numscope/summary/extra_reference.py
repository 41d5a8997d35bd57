"""Extra columns in plain torch: the reference for the native kernel, and the backend on devices.

*Cost:* some ten passes over memory, for blocks in the tensor's own dtype; no host sync.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from numscope.summary.extras import NUM_EXPONENTS, Layout
from numscope.summary.reference import PIECE


def observe_into(tensor: Tensor, cells: Tensor, layout: Layout) -> None:
    """Merge a strided, real tensor's extra columns into cells, float64[layout.width] on its device.

    Blocks are of its two-dimensional view, last dimension by all others. Extras that do not describe a tensor's values are skipped.
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
        elif extra.kind == "blockwise":
            rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
            mine.copy_(torch.maximum(mine, _block_range(rows, *extra.settings)))


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
