"""The largest singular value of a weight, which a stable rank is made of."""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 512  # length of the shorter side up to which all singular values are computed
NUM_STEPS = 64  # Lanczos iterations for longer ones
_PIECE_NUMEL = 1 << 20  # elements in float64 at a time


def spectral_norm(tensor: Tensor) -> Tensor:
    """The largest singular value of a plain tensor's matrix: the first dimension by all others, one row for a vector.

    Args:
        tensor: of floating-point numbers. Any other one gives zero; with elements that are not finite the result means nothing.

    Returns: float64, on the tensor's device.

    For a shorter side n of up to ``EXACT`` elements it comes from all eigenvalues of the Gram matrix in float64, with a relative error
    below n · 1e-15. For longer ones it comes from ``NUM_STEPS`` steps of Lanczos iteration with full reorthogonalization, which does not
    overestimate but for the rounding of its products (float32 for tensors of at most that precision): 1e-5. From a random start, the
    expected relative error of its square is at most 0.103 (ln(n (k - 1)⁴) / (k - 1))² for k steps and any matrix: 2 % up to n = 65536. The
    start is the same at each call, and no generator of the process is used.

    *Cost:* a read and n · numel multiplications in float64, or 2 · ``NUM_STEPS`` reads; n² or ``NUM_STEPS`` · n float64 numbers of memory,
    and for a tensor below float32 a copy in float32; off the host a sync.
    *Source:* Kuczyński and Woźniakowski, Estimating the largest eigenvalue by the power and Lanczos algorithms, 1992, theorem 3.2.
    """
    if not tensor.numel() or not tensor.is_floating_point():
        return torch.zeros((), dtype=torch.float64, device=tensor.device)
    matrix = tensor if tensor.element_size() >= 4 else tensor.float()
    matrix = matrix.reshape(matrix.shape[0], -1) if matrix.dim() > 1 else matrix.reshape(1, -1)
    matrix = matrix.t() if matrix.shape[0] < matrix.shape[1] else matrix
    with torch.autocast(tensor.device.type, enabled=False):
        amax = torch.maximum(matrix.amax(), -matrix.amin()).double()
        scale = torch.where(amax > 0, amax, 1.0)  # squares neither overflow nor underflow
        gram = _gram(matrix, scale) if matrix.shape[1] <= EXACT else _tridiagonal(matrix, scale)
        largest: Tensor = torch.linalg.eigvalsh(gram.nan_to_num(0.0, 0.0, 0.0))[-1]
        return largest.clamp(min=0).sqrt() * scale


def _gram(matrix: Tensor, scale: Tensor) -> Tensor:
    n = matrix.shape[1]
    gram = torch.zeros(n, n, dtype=torch.float64, device=matrix.device)
    for rows in torch.split(matrix, max(_PIECE_NUMEL // n, 1)):
        piece = rows.double() / scale
        gram += piece.t() @ piece
    return gram


def _tridiagonal(matrix: Tensor, scale: Tensor) -> Tensor:
    """The Gram matrix projected on the Krylov space of a fixed start."""
    n, device, smallest = matrix.shape[1], matrix.device, torch.finfo(torch.float64).tiny
    steps = min(NUM_STEPS, n)
    vector = torch.randn(n, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float64, device="cpu").to(device)
    vector /= vector.norm()
    basis = torch.zeros(steps, n, dtype=torch.float64, device=device)
    projected = torch.zeros(steps, steps, dtype=torch.float64, device=device)
    for step in range(steps):
        basis[step] = vector
        known = basis[: step + 1]
        forth = (matrix @ vector.to(matrix.dtype)).double() / scale
        image = (matrix.t() @ forth.to(matrix.dtype)).double() / scale
        projected[step, step] = vector @ image
        image -= known.t() @ (known @ image)
        image -= known.t() @ (known @ image)
        length = image.norm()
        if step + 1 < steps:
            projected[step, step + 1] = projected[step + 1, step] = length
        vector = image / length.clamp(min=smallest)
        vector -= known.t() @ (known @ vector)  # where the space is exhausted, the image is rounding error of any direction
        vector /= vector.norm().clamp(min=smallest)
    return projected
