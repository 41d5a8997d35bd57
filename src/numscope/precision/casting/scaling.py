"""How an operand is scaled before it is rounded: which elements share a scale, and how it follows from their amax."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from numscope.precision.casting.hadamard import ROTATIONS, Rotation
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of

Rounding = Literal["nearest_even", "stochastic"]
Family = Literal["fp8", "nvfp4"]
FAMILIES: tuple[Family, ...] = ("fp8", "nvfp4")
_KINDS = ("tensor", "row", "block")
_ROUNDINGS = ("nearest_even", "stochastic")
E8M0Rounding = Literal["floor", "rceil"]
_E8M0_ROUNDINGS = ("floor", "rceil")
_FLOAT32 = torch.finfo(torch.float32)
_E4M3 = format_of("e4m3fn")
_MAX_MARGIN = 126  # powers of two on either side of 1 that float32 has


@dataclass(frozen=True, slots=True)
class Scaling:
    """The elements that share a scale, and the numbers that a scale may be.

    Args:
        kind: one scale for the whole tensor, for each row (all of the last dimension), or for each block.
        block: rows and columns of a block, with the tensor as a matrix of its last dimension by all others; (1, 32) runs along the rows.
        power_of_two: round scales down to a power of two.
        scale_format: format of a block's scale: ``e8m0`` (powers of two, the microscaling rule), ``e4m3fn`` (under one float32 scale
            for the tensor, as in NVFP4), or None for float32.
        e8m0_rounding: how an e8m0 scale follows from a block's amax: ``floor``, the microscaling rule, 2^(floor(log2 amax) - the exponent
            of the format's maximum), which saturates a block's largest elements; ``rceil``, as Transformer Engine and torchao's RCEIL
            round, the smallest power of two that is at least amax / the format's maximum, under which nothing saturates.

    Raises: UsageError: a setting is none of these.
    """

    kind: Literal["tensor", "row", "block"] = "tensor"
    block: tuple[int, int] = (1, 1)
    power_of_two: bool = False
    scale_format: str | None = None
    e8m0_rounding: E8M0Rounding = "floor"

    def __post_init__(self) -> None:
        check_one_of("Scaling: kind", self.kind, _KINDS)
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
        check_one_of("Scaling: e8m0_rounding", self.e8m0_rounding, _E8M0_ROUNDINGS)
        if self.e8m0_rounding != "floor" and self.scale_format != "e8m0":
            given = self.scale_format or "float32"
            raise UsageError(f"Scaling: e8m0_rounding: got {self.e8m0_rounding!r} for {given} scales, expected floor: others are not e8m0.")

    def sides(self, columnwise: bool) -> tuple[int, int]:
        """Rows and columns of a matrix that share a scale; 0 for all of them. Columnwise, rows and blocks run along the columns."""
        rows, columns = {"tensor": (0, 0), "row": (1, 0), "block": self.block}[self.kind]
        return (columns, rows) if columnwise else (rows, columns)


PER_TENSOR = Scaling("tensor")
PER_ROW = Scaling("row")
MX = Scaling("block", (1, 32), power_of_two=True, scale_format="e8m0")


@dataclass(frozen=True, slots=True)
class How:
    """How one operand is quantized.

    Args:
        format: the format of its codes.
        scaling: which elements share a scale.
        margin: scales are divided by 2 to this power.
        delayed: the scale comes from a history of amaxes, not from the tensor itself; the caller of ``cast`` passes it.
        rounding: ``nearest_even``, or ``stochastic`` to either neighbor, with the nearer one more likely.
        saturate: what rounds above the format's maximum becomes the maximum; else infinity if the format has it, else NaN.
        rotation: ``hadamard`` or ``random_hadamard``: scaled blocks are rotated before they are rounded, and their numbers are rotated
            back, which gives a GEMM of two such operands the product of the rotated ones. None: not rotated.

    Raises: UsageError: a setting is out of range, or the settings contradict each other.
    """

    format: Format
    scaling: Scaling = PER_TENSOR
    margin: int = 0
    delayed: bool = False
    rounding: Rounding = "nearest_even"
    saturate: bool = True
    rotation: Rotation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", format_of(self.format, "How: format"))
        check_one_of("rounding", self.rounding, _ROUNDINGS)
        if isinstance(self.margin, bool) or not isinstance(self.margin, int) or abs(self.margin) > _MAX_MARGIN:
            raise UsageError(f"margin: got {self.margin!r}, expected a whole number from {-_MAX_MARGIN} to {_MAX_MARGIN}.")
        if not self.saturate and not (self.format.has_inf or self.format.has_nan):
            raise UsageError(f"saturate: got False for {self.format.name}, expected True: it has neither infinity nor NaN.")
        if self.delayed and self.scaling.kind != "tensor":
            raise UsageError(f"delayed: got True for scaling of kind {self.scaling.kind!r}, expected one scale for the whole tensor.")
        if self.rotation is not None:
            check_one_of("rotation", self.rotation, ROTATIONS)
            if self.scaling.kind != "block" or any(side & (side - 1) for side in self.scaling.block):
                given = self.scaling.block if self.scaling.kind == "block" else self.scaling.kind
                raise UsageError(
                    f"rotation: got {self.rotation!r} for scaling by {given}, expected blocks with sides that are powers of two."
                )

    @property
    def family(self) -> Family:
        """Whose statistics describe its casts: ``nvfp4`` for e2m1 in blocks with e4m3 scales, ``fp8`` for all others."""
        return "nvfp4" if self.format.name == "e2m1fn" and self.scaling.scale_format == "e4m3fn" else "fp8"

    @property
    def is_same_both_ways(self) -> bool:
        """Whether a tensor's cast is the same for a GEMM that takes it transposed."""
        rows, columns = self.scaling.block
        return self.scaling.kind == "tensor" or (self.scaling.kind == "block" and rows == columns and self.rotation is None)

    def rotation_size(self, columnwise: bool) -> int:
        """The side of a scaled block along the dimension that is summed over."""
        return self.scaling.sides(columnwise)[0 if columnwise else 1]

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
        words += [scaling.e8m0_rounding] if scaling.e8m0_rounding != "floor" else []
        words += [f"margin {self.margin}"] if self.margin else []
        words += ["stochastic"] if self.rounding == "stochastic" else []
        words += [] if self.saturate else ["not saturating"]
        words += [self.rotation] if self.rotation else []
        return " ".join(word for word in words if word != "block")


def scale_of(
    amax: Tensor, format_max: float | Tensor, margin: int = 0, power_of_two: bool = False, previous: Tensor | None = None
) -> Tensor:
    """The scale that maps an amax to a format's maximum: ``format_max / amax / 2^margin``.

    Args:
        amax: float32, any shape, not negative.
        format_max: largest finite number of the format, or one for each amax.
        margin: powers of two left free below it.
        power_of_two: round the scale down to a power of two.
        previous: float32, broadcastable to ``amax``: the scale where an amax is zero, infinite or NaN; None: 1.

    Returns: float32 of the shape of ``amax``, within [2^-126, float32's maximum].

    *Source:* Transformer Engine's ``_default_sf_compute``. The lower bound is ours: the inverse has to be finite too.
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


def _fraction_of(number: float) -> int:
    """The fraction's bits of a float32."""
    return int.from_bytes(struct.pack("<f", min(number, _FLOAT32.max)), "little") & 0x7FFFFF


def amax_of(magnitude: Tensor, rows: int, columns: int) -> Tensor:
    """The largest magnitude in each block of a matrix, or NaN if the block has one: [ceil(M / rows), ceil(K / columns)].
    Blocks at the ends may be smaller; ``magnitude`` [M, K] is not empty."""
    return blocked(magnitude, rows, columns).amax((1, 3))


def blocked(x: Tensor, rows: int, columns: int) -> Tensor:
    """A matrix as [block rows, rows, block columns, columns], padded with zeros. *Cost:* a view, or a copy if padding is needed."""
    num_rows, num_columns = x.shape
    ragged = (-num_columns % columns, -num_rows % rows)
    if any(ragged):
        x = torch.nn.functional.pad(x, (0, ragged[0], 0, ragged[1]))
    return x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)


def block_scales(amax: Tensor, how: How, tensor_amax: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The scales of blocks, and their inverses, as the scale's format has them: two float32 tensors of the shape of ``amax``.

    Args:
        amax: float32, any shape; NaN makes a block's scale NaN.
        how: format, margin and scale format.
        tensor_amax: float32[], over all blocks; for e4m3 scales only.

    *Source:* OCP Microscaling Formats 1.0, section 6.3 (e8m0, floor); NVIDIA cuBLAS, "1D Block Scaling for FP8 and FP4" (e8m0, rceil);
    NVIDIA, "Pretraining Large Language Models with NVFP4", 2025 (e4m3).
    """
    form, name = how.format, how.scaling.scale_format
    if name == "e8m0":
        # From the exponent's bits: a subnormal amax would end below the smallest scale anyway.
        bits = amax.view(torch.int32)
        exponent = ((bits >> 23) & 0xFF) - 127 - form.max_exponent + how.margin
        if how.scaling.e8m0_rounding == "rceil":  # one more if amax's significand is above that of the format's maximum
            exponent = exponent + ((bits & 0x7FFFFF) > _fraction_of(form.max)).to(torch.int32)
        exponent = torch.where(amax == torch.inf, 127, exponent).clamp(-127, 127).to(torch.int64)
        scale, scale_inv = (((1023 + e) << 52).view(torch.float64).to(torch.float32) for e in (-exponent, exponent))
    elif name == "e4m3fn":
        assert tensor_amax is not None
        outer = scale_of(tensor_amax, form.max * _E4M3.max, how.margin)
        wanted = (amax / form.max) * outer
        inner = wanted.clamp(max=_E4M3.max).to(torch.float8_e4m3fn).to(torch.float32)
        # A block so far below the tensor's amax that its scale rounds to zero becomes zero.
        scale = torch.where(inner == 0, 0.0, (outer / inner).clamp(max=_FLOAT32.max))
        scale_inv = inner * (1.0 / outer)
    else:
        scale = scale_of(amax, form.max, how.margin, how.scaling.power_of_two)
        scale_inv = 1.0 / scale
    lost = torch.isnan(amax)
    return torch.where(lost, torch.nan, scale), torch.where(lost, torch.nan, scale_inv)
