"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, angles: Tensor, layout: str, interleaved: bool = False) -> Tensor:
    """Rotate pairs of channels by angles that depend on the position; the result has the shape and dtype of x.

    Args:
        x: shape ``(sequence, batch, heads, channels)``, or batch first, by ``layout``.
        angles: shape ``(positions, 1, 1, rotated)``, each angle twice, in radians. Channels beyond ``rotated`` are not changed.
        interleaved: whether a pair is two neighbors; else the channels of a pair are half of ``rotated`` apart.

    *Source:* Su et al., RoFormer, 2021.
    """
    length = x.shape[0] if layout == "sbhd" else x.shape[1]
    angles = angles[:length]
    if layout == "bshd":
        angles = angles.transpose(0, 1)
    rotated = angles.shape[-1]
    turned, rest = x[..., :rotated], x[..., rotated:]
    wide = torch.promote_types(x.dtype, torch.float32)
    angles = angles.to(wide)
    out = turned.to(wide) * angles.cos() + _quarter(turned.to(wide), interleaved) * angles.sin()
    return torch.cat((out.to(x.dtype), rest), -1)


def _quarter(x: Tensor, interleaved: bool) -> Tensor:
    """Each pair rotated by 90 degrees."""
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)
