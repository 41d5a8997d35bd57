"""How an operand is scaled before it is rounded: over which elements one scale reaches, and how it follows from their amax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of

__all__ = ["PER_ROW", "PER_TENSOR", "How", "Rounding", "Scaling", "amax_of", "block_scales", "scale_of"]

Rounding = Literal["nearest_even", "stochastic"]
_KINDS = ("tensor", "row", "block")
_ROUNDINGS = ("nearest_even", "stochastic")
_FLOAT32 = torch.finfo(torch.float32)
_E4M3 = format_of("e4m3fn")
_MAX_MARGIN = 126  # powers of two on either side of 1 that float32 has


@dataclass(frozen=True, slots=True)
class Scaling:
    """Over which elements one scale reaches, and what scale it may be.

    Args:
        kind: one scale for the whole tensor, for each row (all of the last dimension), or for each block.
        block: rows and columns of a block of the tensor as a matrix, last dimension by all others; (1, 32) lies along the rows.
        power_of_two: round scales down to a power of two.
        scale_format: what a block's scale is kept in: ``e8m0`` (powers of two, the microscaling rule), ``e4m3fn`` (under one float32 scale
            of the tensor, as NVFP4 has it), or None, float32.
    """

    kind: Literal["tensor", "row", "block"] = "tensor"
    block: tuple[int, int] = (1, 1)
    power_of_two: bool = False
    scale_format: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UsageError(f"Scaling: kind: got {self.kind!r}, expected one of {', '.join(_KINDS)}.")
        sizes = self.block
        if not (isinstance(sizes, tuple) and len(sizes) == 2 and all(isinstance(n, int) and n >= 1 for n in sizes)):
            raise UsageError(f"Scaling: block: got {sizes!r}, expected two whole numbers from 1, rows by columns, such as (1, 32).")
        if self.scale_format is not None:
            name = format_of(self.scale_format, "Scaling: scale_format").name
            if name not in ("e8m0fnu", "e4m3fn"):
                raise UsageError(f"Scaling: scale_format: got {self.scale_format!r}, expected e8m0, e4m3fn or None (float32).")
            if self.kind != "block":
                raise UsageError(f"Scaling: scale_format: got {self.scale_format!r} for {self.kind}, expected None: only blocks have one.")
            object.__setattr__(self, "scale_format", "e8m0" if name == "e8m0fnu" else name)


PER_TENSOR = Scaling("tensor")
PER_ROW = Scaling("row")


@dataclass(frozen=True, slots=True)
class How:
    """How one operand is quantized.

    Args:
        format: what it is rounded to.
        scaling: over which elements one scale reaches.
        margin: scales are divided by 2 to this power.
        delayed: the scale comes from the history of amaxes, not from the tensor at hand; whoever casts gives it.
        rounding: to the nearest number, ties to even; or to either neighbor, the nearer the likelier.
        saturate: what rounds above the format's maximum becomes the maximum; else infinity where the format has one, else NaN.
    """

    format: Format
    scaling: Scaling = PER_TENSOR
    margin: int = 0
    delayed: bool = False
    rounding: Rounding = "nearest_even"
    saturate: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", format_of(self.format, "How: format"))
        if self.rounding not in _ROUNDINGS:
            raise UsageError(f"rounding: got {self.rounding!r}, expected one of {', '.join(_ROUNDINGS)}.")
        if isinstance(self.margin, bool) or not isinstance(self.margin, int) or abs(self.margin) > _MAX_MARGIN:
            raise UsageError(f"margin: got {self.margin!r}, expected a whole number from {-_MAX_MARGIN} to {_MAX_MARGIN}.")
        if not self.saturate and not (self.format.has_inf or self.format.has_nan):
            raise UsageError(f"saturate: got False for {self.format.name}, expected True: it has neither infinity nor NaN to overflow to.")
        if self.delayed and self.scaling.kind != "tensor":
            raise UsageError(f"delayed: got True for scaling of kind {self.scaling.kind!r}, expected one scale for the whole tensor.")

    def replace(self, **changes: Any) -> How:
        """The same with some fields changed."""
        return replace(self, **changes)

    def text(self) -> str:
        """In a few words, for logs and tables, such as ``e4m3fn 1x32 e8m0``."""
        words = [self.format.name]
        scaling = self.scaling
        if scaling.kind == "block":
            words.append(f"{scaling.block[0]}x{scaling.block[1]}")
        words.append("delayed" if self.delayed else "current" if scaling.kind == "tensor" else scaling.kind)
        words += [word for word in (scaling.scale_format, "power-of-two" if scaling.power_of_two else None) if word]
        words += [f"margin {self.margin}"] if self.margin else []
        words += ["stochastic"] if self.rounding == "stochastic" else []
        words += [] if self.saturate else ["not saturating"]
        return " ".join(word for word in words if word != "block")


def scale_of(
    amax: Tensor, format_max: float | Tensor, margin: int = 0, power_of_two: bool = False, previous: Tensor | None = None
) -> Tensor:
    """The scale that takes an amax to a format's maximum: ``format_max / amax / 2^margin``.

    Args:
        amax: float32, any shape, not negative.
        format_max: largest finite number of the format, or one for each amax.
        margin: powers of two left free below it.
        power_of_two: round the scale down to a power of two.
        previous: float32, of a shape that goes with ``amax``: kept where an amax is zero, infinite or NaN; 1 where there is none.

    Returns:
        float32 of the shape of ``amax``; never zero and never infinite: kept within [2^-126, float32's maximum].

    *Source:* Transformer Engine's ``_default_sf_compute``; the lower bound is ours, so that an inverse is finite too.
    """
    if not isinstance(format_max, Tensor):  # number / tensor would round twice: torch takes the reciprocal first
        format_max = torch.full_like(amax, min(format_max, _FLOAT32.max))
    scale = (format_max / amax) / 2.0**margin
    scale = scale.clamp(_FLOAT32.smallest_normal, _FLOAT32.max)
    if power_of_two:
        scale = floor_to_power_of_two(scale)
    kept: Tensor | float = 1.0 if previous is None else previous
    return torch.where((amax > 0) & (amax < torch.inf), scale, kept)


def floor_to_power_of_two(x: Tensor) -> Tensor:
    """Positive normal float32 numbers rounded down to a power of two."""
    return (x.view(torch.int32) & 0x7F800000).view(torch.float32)


def amax_of(magnitude: Tensor, rows: int, columns: int) -> Tensor:
    """The largest magnitude of each block of a matrix, NaN where there is one.

    Args:
        magnitude: [M, K], not empty.
        rows, columns: of a block; blocks at the ends may be smaller.

    Returns:
        [ceil(M / rows), ceil(K / columns)]
    """
    return blocked(magnitude, rows, columns).amax((1, 3))


def blocked(x: Tensor, rows: int, columns: int) -> Tensor:
    """A matrix as [block rows, rows, block columns, columns]; ragged ends are filled up with zeros.

    *Cost:* a view, or a copy where ends are ragged.
    """
    num_rows, num_columns = x.shape
    ragged = (-num_columns % columns, -num_rows % rows)
    if any(ragged):
        x = torch.nn.functional.pad(x, (0, ragged[0], 0, ragged[1]))
    return x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)


def block_scales(amax: Tensor, how: How, tensor_amax: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scales and their inverses of blocks with these amaxes, as the scale's format has them.

    Args:
        amax: float32, any shape; NaN where a block's scale is to be NaN.
        how: format, margin and scale format.
        tensor_amax: float32[], of all blocks; for e4m3 scales only.

    Returns:
        float32 scale and scale_inv of the shape of ``amax``.

    *Source:* OCP Microscaling Formats 1.0, section 6.3 (e8m0); NVIDIA, "Pretraining Large Language Models with NVFP4", 2025 (e4m3).
    """
    form, name = how.format, how.scaling.scale_format
    if name == "e8m0":
        # Exponent bits alone: subnormal amaxes would end below the smallest scale anyway.
        exponent = ((amax.view(torch.int32) >> 23) & 0xFF) - 127 - form.max_exponent + how.margin
        exponent = torch.where(amax == torch.inf, 127, exponent).clamp(-127, 127).to(torch.int64)
        scale, scale_inv = (((1023 + e) << 52).view(torch.float64).to(torch.float32) for e in (-exponent, exponent))
    elif name == "e4m3fn":
        assert tensor_amax is not None
        outer = scale_of(tensor_amax, form.max * _E4M3.max, how.margin)
        wanted = (amax / form.max) * outer
        inner = wanted.clamp(max=_E4M3.max).to(torch.float8_e4m3fn).to(torch.float32)
        # A block so far below the tensor's amax that its scale is zero is zero as a whole.
        scale = torch.where(inner == 0, 0.0, (outer / inner).clamp(max=_FLOAT32.max))
        scale_inv = inner * (1.0 / outer)
    else:
        scale = scale_of(amax, form.max, how.margin, how.scaling.power_of_two)
        scale_inv = 1.0 / scale
    lost = torch.isnan(amax)
    return torch.where(lost, torch.nan, scale), torch.where(lost, torch.nan, scale_inv)
