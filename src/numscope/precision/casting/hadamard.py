"""Hadamard rotations of an operand, in blocks along the dimension that its GEMM sums over."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

Rotation = Literal["hadamard", "random_hadamard"]
ROTATIONS: Final = ("hadamard", "random_hadamard")
_SEED: Final = 0  # of the signs, which are the same in all runs and layers, as Transformer Engine's are


def rotated(x: Tensor, rotation: Rotation, size: int, *, columnwise: bool, back: bool = False) -> Tensor:
    """A matrix with each block of ``size`` numbers along its summed dimension multiplied by an orthogonal matrix.

    The matrix is Sylvester's H / √size, which is its own inverse; ``random_hadamard`` changes the blocks' signs before it. A block at the
    end that is smaller is left as it is. With both operands of a GEMM rotated, their product is the same: (A R)(B R)ᵀ = A Bᵀ.

    Args:
        x: float32 or float64, [M, K].
        size: a power of two.
        columnwise: blocks lie along the columns, as for ``cast``.
        back: undo it.

    *Cost:* a GEMM with a ``size`` × ``size`` matrix, and a copy.

    *Source:* NVIDIA, "Pretraining Large Language Models with NVFP4", 2025, section 4.2; Tseng et al., "Training LLMs with MXFP4", 2025.
    """
    rows = x.t() if columnwise else x
    whole = rows.shape[1] // size * size
    factor = _matrix(rotation, size).to(x.device, x.dtype)
    blocks = rows[:, :whole].reshape(-1, size) @ (factor.t() if back else factor)
    turned = torch.cat([blocks.reshape(rows.shape[0], whole), rows[:, whole:]], 1)
    return turned.t().contiguous() if columnwise else turned


@cache
def _matrix(rotation: Rotation, size: int) -> Tensor:
    """float64[size, size], orthogonal."""
    with _disable_current_modes(), torch.inference_mode(False):
        made = torch.ones(1, 1, dtype=torch.float64, device="cpu")
        while made.shape[0] < size:
            made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)])
        if rotation == "random_hadamard":
            signs = torch.randint(0, 2, (size, 1), generator=torch.Generator().manual_seed(_SEED), device="cpu")
            made = made * (signs * 2 - 1)
        return made.div(size**0.5)
