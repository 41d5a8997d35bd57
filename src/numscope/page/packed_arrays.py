"""Numbers as a page carries them: typed arrays, compressed, in base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

KEPT_BITS = 11  # fraction bits of rounded numbers: each number of float16 and bfloat16 stays exact


def pack(values: Any) -> str:
    """A float32 array as text: its bytes by significance (all first bytes, then all second ones), deflated, in base64.

    Bytes of one significance are alike, so they compress well.
    """
    planes = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def as_float32(values: Any) -> Any:
    """Float64 numbers as float32: what is beyond its range becomes its largest or smallest number, neither infinite nor zero."""
    largest, least = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
    values = np.asarray(values, dtype=np.float64)
    inside = np.clip(values, -largest, largest)
    tiny = (inside != 0) & (np.abs(inside) < least)
    return np.where(tiny, np.copysign(least, inside), inside).astype(np.float32)


def rounded(values: Any) -> Any:
    """Float32 numbers with a fraction of ``KEPT_BITS`` bits, to nearest: off by 1/4096 at most, and far smaller when compressed."""
    drop = 23 - KEPT_BITS
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    finite = np.isfinite(values)
    up = (bits + np.uint32(1 << (drop - 1))) & ~np.uint32((1 << drop) - 1)
    near = up.view(np.float32)
    cut = (bits & ~np.uint32((1 << drop) - 1)).view(np.float32)
    return np.where(finite, np.where(np.isfinite(near), near, cut), values)
