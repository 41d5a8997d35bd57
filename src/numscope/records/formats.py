"""Number formats as small values that read like their specification: from float32 down to four bits.

A number of a format is ``(-1)^sign × 2^(max(exponent field, 1) - bias) × (hidden bit + fraction / 2^fraction_bits)``; the hidden bit is 0
where the exponent field is 0 (zero and subnormals) and 1 elsewhere. Whole-number formats have no exponent field: all their numbers are
multiples of ``min_subnormal``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from numscope.records.errors import UsageError
from numscope.records.words import nearest

__all__ = ["FORMATS", "Format", "format_of"]


@dataclass(frozen=True, slots=True)
class Format:
    """A number format.

    Args:
        name: its key in ``FORMATS``.
        bits: of one code, the sign's included.
        exponent_bits: 0 of whole numbers.
        fraction_bits: stored bits of the significand.
        bias: taken from the exponent field.
        max: largest finite number.
        has_inf: has infinities.
        has_nan: has NaN.
        signed: has negative numbers.
        signed_zero: distinguishes -0 from +0.
        has_zero: has a zero; e8m0 has none: its smallest number is 2^-127.
        torch_name: attribute of ``torch`` that is the dtype of codes; None if torch has no dtype with one code per element.

    Attributes that follow from these:
        min_exponent: of the smallest normal number, as a power of two.
        max_exponent: of the largest number, as a power of two: ``emax`` of the microscaling specification.
        min_normal: smallest positive normal number; of whole numbers the smallest positive number.
        min_subnormal: smallest positive number.
        overflow_limit: halfway from ``max`` to the next number that the exponent's range leaves out.
        limit_overflows: whether ``overflow_limit`` itself rounds above ``max``: ties go to the even significand.
    """

    name: str
    bits: int
    exponent_bits: int
    fraction_bits: int
    bias: int
    max: float
    has_inf: bool
    has_nan: bool
    signed: bool = True
    signed_zero: bool = True
    has_zero: bool = True
    torch_name: str | None = None
    min_exponent: int = field(init=False, repr=False, compare=False)
    max_exponent: int = field(init=False, repr=False, compare=False)
    min_normal: float = field(init=False, repr=False, compare=False)
    min_subnormal: float = field(init=False, repr=False, compare=False)
    overflow_limit: float = field(init=False, repr=False, compare=False)
    limit_overflows: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once and stored as plain numbers, so that a compiler that traces a cast need not follow their arithmetic.
        min_exponent = (1 if self.has_zero else 0) - self.bias
        max_exponent = math.frexp(self.max)[1] - 1
        last_quantum = math.ldexp(1.0, max_exponent - self.fraction_bits if self.exponent_bits else 0)
        min_subnormal = math.ldexp(1.0, min_exponent - self.fraction_bits)
        derived = {
            "min_exponent": min_exponent,
            "max_exponent": max_exponent,
            "min_normal": math.ldexp(1.0, min_exponent) if self.exponent_bits else min_subnormal,
            "min_subnormal": min_subnormal,
            "overflow_limit": self.max + last_quantum / 2,
            "limit_overflows": (self.max / last_quantum) % 2 == 1,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


# Source: OCP 8-bit Floating Point Specification 1.0 (e4m3fn, e5m2), OCP Microscaling Formats 1.0 (e8m0, fp6, fp4), Noune et al. 2022,
# "8-bit numerical formats for deep neural networks" (fnuz), IEEE 754-2019 (binary16, binary32). bf16 and tf32 are fp32 with a
# shorter fraction. int8 is symmetric: it excludes -128, so that negation is exact.
_LIST = (
    Format("e4m3fn", 8, 4, 3, 7, 448.0, has_inf=False, has_nan=True, torch_name="float8_e4m3fn"),
    Format("e5m2", 8, 5, 2, 15, 57344.0, has_inf=True, has_nan=True, torch_name="float8_e5m2"),
    Format("e4m3fnuz", 8, 4, 3, 8, 240.0, has_inf=False, has_nan=True, signed_zero=False, torch_name="float8_e4m3fnuz"),
    Format("e5m2fnuz", 8, 5, 2, 16, 57344.0, has_inf=False, has_nan=True, signed_zero=False, torch_name="float8_e5m2fnuz"),
    Format("e8m0fnu", 8, 8, 0, 127, 2.0**127, False, True, signed=False, signed_zero=False, has_zero=False, torch_name="float8_e8m0fnu"),
    Format("e2m3fn", 6, 2, 3, 1, 7.5, has_inf=False, has_nan=False),
    Format("e3m2fn", 6, 3, 2, 3, 28.0, has_inf=False, has_nan=False),
    Format("e2m1fn", 4, 2, 1, 1, 6.0, has_inf=False, has_nan=False),
    Format("int8", 8, 0, 7, -6, 127.0, has_inf=False, has_nan=False, signed_zero=False, torch_name="int8"),
    Format("fp16", 16, 5, 10, 15, 65504.0, has_inf=True, has_nan=True, torch_name="float16"),
    Format("bf16", 16, 8, 7, 127, (2 - 2**-7) * 2.0**127, has_inf=True, has_nan=True, torch_name="bfloat16"),
    Format("tf32", 19, 8, 10, 127, (2 - 2**-10) * 2.0**127, has_inf=True, has_nan=True),
    Format("fp32", 32, 8, 23, 127, (2 - 2**-23) * 2.0**127, has_inf=True, has_nan=True, torch_name="float32"),
)
FORMATS: dict[str, Format] = {form.name: form for form in _LIST}

# Other names in lower case. Torch's own (float8_e4m3fn, torch.bfloat16) come from torch_name.
_ALIASES = {
    "e4m3": "e4m3fn", "fp8": "e4m3fn", "fp8e4m3": "e4m3fn", "fp8_e4m3": "e4m3fn", "fp8_e4m3fn": "e4m3fn", "float8_e4m3": "e4m3fn",
    "mxfp8": "e4m3fn", "mxfp8e4m3": "e4m3fn", "mxfp8_e4m3": "e4m3fn", "mxfp8e5m2": "e5m2", "mxfp8_e5m2": "e5m2",
    "fp8e5m2": "e5m2", "fp8_e5m2": "e5m2",
    "fp8_e4m3fnuz": "e4m3fnuz", "fp8_e5m2fnuz": "e5m2fnuz",
    "e8m0": "e8m0fnu", "fp8_e8m0": "e8m0fnu", "float8_e8m0": "e8m0fnu", "ue8m0": "e8m0fnu",
    "e2m3": "e2m3fn", "fp6_e2m3": "e2m3fn", "fp6e2m3": "e2m3fn", "float6_e2m3fn": "e2m3fn",
    "e3m2": "e3m2fn", "fp6_e3m2": "e3m2fn", "fp6e3m2": "e3m2fn", "float6_e3m2fn": "e3m2fn",
    "e2m1": "e2m1fn", "fp4": "e2m1fn", "fp4_e2m1": "e2m1fn", "fp4e2m1": "e2m1fn", "float4_e2m1fn": "e2m1fn",
    "nvfp4": "e2m1fn", "mxfp4": "e2m1fn",
    "half": "fp16", "float": "fp32", "e5m10": "fp16", "e8m7": "bf16", "e8m10": "tf32", "e8m23": "fp32",
}  # fmt: skip
_BY_NAME = {
    **FORMATS,
    **{alias: FORMATS[name] for alias, name in _ALIASES.items()},
    **{form.torch_name: form for form in _LIST if form.torch_name is not None},
}


def format_of(name: str | Format, where: str = "format") -> Format:
    """The format of a name.

    Args:
        name: a key of ``FORMATS`` or another name in use (``e4m3`` is the fn one, ``FP8E4M3``, ``torch.float8_e5m2``), in any case; a
            ``Format`` is returned unchanged; anything else, such as a torch dtype, is converted to text.
        where: beginning of the error message.

    Raises:
        UsageError: no format has the name.
    """
    if isinstance(name, Format):
        return name
    key = str(name).lower().removeprefix("torch.").replace("-", "_")
    form = _BY_NAME.get(key)
    if form is None:
        raise UsageError(f"{where}: got {name!r}, expected one of {', '.join(FORMATS)}.{nearest(key, _BY_NAME)}")
    return form
