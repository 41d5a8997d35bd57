"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, angles: Tensor, layout: str, interleaved: bool = False) -> Tensor:
    """Turn pairs of channels by angles that grow with the position.

    Args:
        x: shape ``(sequence, batch, heads, channels)``, or batch first as ``layout`` says.
        angles: shape ``(positions, 1, 1, rotated)``, each angle twice, in radians; channels beyond ``rotated`` stay as they are.
        interleaved: a pair is two neighbors; else a channel and the one half of ``rotated`` further.

    Returns: shape and dtype of ``x``.

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
    """Each pair turned by 90 degrees."""
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)
