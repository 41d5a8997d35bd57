"""Quantize a tensor and keep codes and scale: the public face of ``cast``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numscope.precision.casting.cast import Cast, cast, empty_cells, values_of
from numscope.precision.casting.scaling import PER_TENSOR, How, Rounding, Scaling
from numscope.records.formats import Format, format_of


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized tensor.

    Args:
        data: codes, of the tensor's shape: the format's torch dtype if it has one, ``uint8`` with one code per element for six and four
            bits, ``float32`` for tf32.
        scale_inv: float32 factors of the codes' numbers: [] per tensor, otherwise one for each row or block.
        format: of the codes.
        scaling: which elements share a scale.
        dtype: of the tensor that was quantized.
        counts: float64[6]: numel, num_underflow, num_overflow, square_error, largest scale, largest scale_inv.
    """

    data: Tensor
    scale_inv: Tensor
    format: Format
    scaling: Scaling
    dtype: torch.dtype
    counts: Tensor

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The codes' numbers times ``scale_inv``.

        Args:
            dtype: of the result; None: that of the tensor that was quantized.
        """
        made = Cast(None, self.data, self.scale_inv, How(self.format, self.scaling), columnwise=False)
        return values_of(made, self.dtype, self.dtype if dtype is None else dtype)

    @property
    def num_underflow(self) -> int:
        """Number of finite non-zero elements that became zero. *Cost:* a host sync for a tensor on a device."""
        return int(self.counts[1])

    @property
    def num_overflow(self) -> int:
        """Number of elements that rounded above the format's maximum, infinities included. *Cost:* as ``num_underflow``."""
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
        x: floating point, any shape.
        format: one of ``FORMATS`` or its name; ``e4m3`` is ``e4m3fn``.
        scale: float32[] or a number.
        rounding: ``nearest_even``, or ``stochastic`` to either neighbor, with the nearer one more likely.
        saturate: what rounds above the format's maximum becomes the maximum; else infinity if the format has it, else NaN.
        generator: for stochastic rounding.

    Raises: UsageError: an unknown format or rounding, or ``saturate=False`` for a format without infinity and NaN.
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
        x, format, rounding, saturate, generator: as for ``quantize``.
        scaling: which elements share a scale.
        margin: powers of two left free below the format's maximum.

    Raises: UsageError: as for ``quantize``.
    """
    how = How(format_of(format, "quantize_current: format"), scaling, margin, rounding=rounding, saturate=saturate)
    return _quantize(x, how, None, generator)


def _quantize(x: Tensor, how: How, scale: Tensor | float | None, generator: torch.Generator | None) -> Quantized:
    counts = empty_cells(x.device if isinstance(x, Tensor) else "cpu")
    made = cast(x, how, scale=scale, values=False, codes=True, cells=counts, generator=generator)
    assert made.codes is not None
    return Quantized(made.codes, made.scale_inv, how.format, how.scaling, x.dtype, counts)
