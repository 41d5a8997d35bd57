"""Quantize a tensor and keep codes and scale: the public face of ``cast``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numscope.precision.casting.cast import cast, decode, empty_cells
from numscope.precision.casting.reference import scaled_back
from numscope.precision.casting.scaling import PER_TENSOR, How, Rounding, Scaling
from numscope.records.formats import Format, format_of

__all__ = ["Quantized", "quantize", "quantize_current"]


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized tensor.

    Args:
        data: codes, of the tensor's shape: the format's own torch dtype where there is one, ``uint8`` with one code an element for six and
            four bits, ``float32`` for tf32.
        scale_inv: float32, what numbers of codes are multiplied by: [] per tensor, one for each row or block else.
        format: of the codes.
        scaling: over which elements one scale reaches.
        dtype: of the tensor that was quantized.
        counts: float64[6], as ``empty_cells`` has them.
    """

    data: Tensor
    scale_inv: Tensor
    format: Format
    scaling: Scaling
    dtype: torch.dtype
    counts: Tensor

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers of the codes times ``scale_inv``.

        Args:
            dtype: of the result; None: of the tensor that was quantized.
        """
        numbers = decode(self.data, self.format)
        if self.dtype is torch.float64:
            numbers = numbers.to(torch.float64)
        return scaled_back(numbers, self.scale_inv, self.scaling).to(self.dtype if dtype is None else dtype)

    @property
    def num_underflow(self) -> int:
        """Finite non-zero elements that became zero. *Cost:* a host sync for a tensor on a device."""
        return int(self.counts[1])

    @property
    def num_overflow(self) -> int:
        """Elements that rounded above the format's maximum, infinities included. *Cost:* a host sync for a tensor on a device."""
        return int(self.counts[2])


def quantize(
    x: Tensor,
    format: str | Format,
    scale: Tensor | float = 1.0,
    rounding: Rounding = "nearest_even",
    saturate: bool = True,
    generator: torch.Generator | None = None,
) -> Quantized:
    """Round ``x × scale`` to a number format.

    Args:
        x: real, any shape.
        format: one of ``FORMATS`` or a name of it; ``e4m3`` is the fn one.
        scale: float32[] or a number.
        rounding: to the nearest number, ties to even; or stochastic, to either neighbor, the nearer the likelier.
        saturate: what rounds above the format's maximum becomes the maximum; else infinity where the format has one, else NaN.
        generator: of stochastic rounding.

    Returns:
        Codes, ``scale_inv`` and counts.

    Raises:
        UsageError: of an unknown format or rounding, or of a format that can't but saturate.
    """
    how = How(format_of(format, "quantize: format"), PER_TENSOR, rounding=rounding, saturate=saturate)
    return _quantize(x, how, scale, generator)


def quantize_current(
    x: Tensor,
    format: str | Format,
    scaling: Scaling = PER_TENSOR,
    margin: int = 0,
    rounding: Rounding = "nearest_even",
    saturate: bool = True,
    generator: torch.Generator | None = None,
) -> Quantized:
    """Round a tensor to a number format, scaled by its own amaxes.

    Args:
        x: real, any shape.
        format: one of ``FORMATS`` or a name of it.
        scaling: over which elements one scale reaches.
        margin: powers of two left free below the format's maximum.
        rounding, saturate, generator: as for ``quantize``.

    Returns:
        Codes, ``scale_inv`` and counts.

    Raises:
        UsageError: as for ``quantize``.
    """
    how = How(format_of(format, "quantize_current: format"), scaling, margin, rounding=rounding, saturate=saturate)
    return _quantize(x, how, None, generator)


def _quantize(x: Tensor, how: How, scale: Tensor | float | None, generator: torch.Generator | None) -> Quantized:
    counts = empty_cells(x.device if isinstance(x, Tensor) else "cpu")
    made = cast(x, how, scale=scale, values=False, codes=True, cells=counts, generator=generator)
    assert made.codes is not None
    return Quantized(made.codes, made.scale_inv, how.format, how.scaling, x.dtype, counts)
