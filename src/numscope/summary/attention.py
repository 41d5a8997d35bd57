"""Entropies and largest elements of the rows of attention probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

_PIECE_NUMEL = 1 << 20  # elements in float64 at a time


def attention_cells(tensor: Tensor) -> Tensor:
    """The ``attention`` columns of a plain tensor whose last dimension holds probabilities.

    Each row is divided by its sum, which dropout has moved from one. A row with a negative element, one that is not finite, or the sum zero
    holds no probabilities and is not counted.

    Returns: float64[3], on the tensor's device: rows counted, the sum of their entropies in nats, the largest probability.

    *Cost:* some six passes over pieces in float64; no sync.
    """
    cells = torch.zeros(3, dtype=torch.float64, device=tensor.device)
    if not tensor.numel() or not tensor.is_floating_point():
        return cells
    rows = tensor.reshape(-1, tensor.shape[-1])
    for piece in torch.split(rows, max(_PIECE_NUMEL // rows.shape[1], 1)):
        exact = piece.double()
        total = exact.sum(-1, keepdim=True)
        counted = (exact >= 0).all(-1, keepdim=True) & total.isfinite() & (total > 0)
        probabilities = torch.where(counted, exact / total, 0.0)
        cells[0] += counted.sum()
        cells[1] += torch.special.entr(probabilities).sum()
        cells[2] = torch.maximum(cells[2], probabilities.amax())
    return cells
