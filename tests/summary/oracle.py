"""What a summary must be, in float64 NumPy, written apart from every backend."""

import math

import numpy as np
import torch

from numscope.summary.state import Summary

EXACT = ("numel", "num_nan", "num_pos_inf", "num_neg_inf", "num_zero", "num_subnormal", "min", "max", "abs_min", "abs_max")
SUMS = ("sum", "abs_sum", "square_sum", "cube_sum", "fourth_sum")
FLOATS = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip
FLOAT_IDS = [str(dtype).removeprefix("torch.") for dtype in FLOATS]


def values_of(tensor: torch.Tensor) -> np.ndarray:
    """All elements as one float64 array."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.is_floating_point() and tensor.dtype is not torch.float64:
        tensor = tensor.to(torch.float32)
    return tensor.detach().to(torch.float64).reshape(-1).numpy()


def summary_of(tensor: torch.Tensor) -> Summary:
    x = values_of(tensor)
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    finite = x[np.isfinite(x)]
    magnitudes = np.abs(finite)
    nonzero = magnitudes[magnitudes > 0]
    smallest_normal = torch.finfo(dtype).smallest_normal if dtype.is_floating_point else 0.0
    with np.errstate(over="ignore"):
        return Summary(
            numel=x.size,
            num_nan=int(np.isnan(x).sum()),
            num_pos_inf=int((x == math.inf).sum()),
            num_neg_inf=int((x == -math.inf).sum()),
            num_zero=int((x == 0).sum()),
            num_subnormal=int((nonzero < smallest_normal).sum()),
            min=float(finite.min()) if finite.size else None,
            max=float(finite.max()) if finite.size else None,
            abs_min=float(nonzero.min()) if nonzero.size else None,
            abs_max=float(magnitudes.max()) if finite.size else None,
            dev_sum=_fsum(finite),
            abs_sum=_fsum(magnitudes),
            dev_square_sum=_fsum(finite**2),
            dev_cube_sum=_fsum(finite**3),
            dev_fourth_sum=_fsum(finite**4),
        )


def _fsum(x: np.ndarray) -> float:
    if x.size <= 100_000:
        try:
            return math.fsum(x.tolist())
        except OverflowError:
            return math.inf
    return float(np.sum(x))  # pairwise


def assert_same(got: Summary, expected: Summary, *, moments: bool = True) -> None:
    """Counts and extrema exactly; sums to the rounding of float64, relative to the sum of the magnitudes added."""
    for name in EXACT:
        assert getattr(got, name) == getattr(expected, name), name
    if not moments:
        assert all(getattr(got, name) == 0.0 for name in SUMS)
        return
    odd = {"sum": expected.abs_sum, "cube_sum": math.sqrt(expected.square_sum) * math.sqrt(expected.fourth_sum)}  # Cauchy-Schwarz
    for name in SUMS:
        a, b = getattr(got, name), getattr(expected, name)
        assert a == b or abs(a - b) <= 1e-13 * odd.get(name, b) + 1e-300, (name, a, b)
