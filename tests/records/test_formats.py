"""The table of number formats, against the specifications' codes and torch's own."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from numscope.records.errors import UsageError
from numscope.records.formats import _ALIASES, FORMATS, Format, format_of
from tests.precision import oracle


@pytest.mark.parametrize("name", oracle.SMALL)
def test_properties_are_those_of_the_codes(name: str) -> None:
    form, table = FORMATS[name], [number for number, _ in oracle.magnitudes(name)]
    values = [oracle.value(name, code) for code in range(1 << form.bits)]
    assert form.max == table[-1]
    assert form.min_subnormal == next(number for number in table if number > 0)
    # the smallest normal number is where twice the distance between neighbors begins, or the smallest where that never changes
    if form.exponent_bits and form.fraction_bits:
        assert form.min_normal == table[1 << form.fraction_bits]
        assert table[2 << form.fraction_bits] - table[(2 << form.fraction_bits) - 1] == form.min_subnormal
        assert table[(2 << form.fraction_bits) + 1] - table[2 << form.fraction_bits] == 2 * form.min_subnormal
    else:
        assert form.min_normal == form.min_subnormal
    assert form.has_nan == any(math.isnan(number) for number in values)
    assert form.has_inf == any(math.isinf(number) for number in values)
    assert form.signed == any(number < 0 for number in values)
    assert form.has_zero == (0 in values)
    assert form.signed_zero == (sum(number == 0 for number in values) == 2)
    assert form.max_exponent == math.floor(math.log2(form.max))


@pytest.mark.parametrize("name", oracle.SMALL)
def test_overflow_limit_is_the_midpoint_above_the_maximum(name: str) -> None:
    form = FORMATS[name]
    assert form.overflow_limit == (oracle.magnitudes(name)[-1][0] + oracle.beyond(name)) / 2
    assert form.limit_overflows == oracle.nearest(name, Fraction(form.overflow_limit)).overflowed


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.torch_name is not None and name != "int8"])
def test_floating_formats_are_those_of_torch(name: str) -> None:
    form = FORMATS[name]
    dtype = getattr(torch, form.torch_name or "")
    info = torch.finfo(dtype)
    assert (form.bits, form.max, form.min_normal) == (info.bits, info.max, info.smallest_normal)
    # not info.eps: torch 2.13 gives 1/8 for e5m2fnuz, whose next number after 1 is 1.25
    after_one, between = torch.tensor([1 + 2.0**-form.fraction_bits, 1 + 2.0 ** -(form.fraction_bits + 1)], dtype=torch.float32)
    assert after_one.to(dtype).to(torch.float32) == after_one
    assert between.to(dtype).to(torch.float32) != between or name == "fp32"
    assert torch.tensor(form.min_subnormal).to(dtype).to(torch.float64).item() == form.min_subnormal


def test_tf32_is_fp32_with_the_fraction_of_fp16() -> None:
    tf32 = FORMATS["tf32"]
    assert (tf32.exponent_bits, tf32.bias, tf32.min_normal) == (8, 127, FORMATS["fp32"].min_normal)
    assert tf32.fraction_bits == FORMATS["fp16"].fraction_bits
    assert tf32.bits == 1 + tf32.exponent_bits + tf32.fraction_bits


def test_fields_fill_the_code() -> None:
    for form in FORMATS.values():
        assert form.bits == form.signed + form.exponent_bits + form.fraction_bits, form.name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("e4m3", "e4m3fn"), ("E4M3", "e4m3fn"), ("FP8E4M3", "e4m3fn"), ("FP8E5M2", "e5m2"), ("e8m0", "e8m0fnu"), ("fp6_e2m3", "e2m3fn"),
        ("fp6_e3m2", "e3m2fn"), ("fp4", "e2m1fn"), ("fp4_e2m1", "e2m1fn"), ("e2m1", "e2m1fn"), ("float8_e4m3fn", "e4m3fn"),
        ("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "fp32"), ("MXFP8-E4M3", "e4m3fn"),
        (torch.float8_e5m2, "e5m2"), (torch.bfloat16, "bf16"), (torch.int8, "int8"),
    ],
)  # fmt: skip
def test_a_format_is_known_by_its_other_names(name: str, expected: str) -> None:
    assert format_of(name) is FORMATS[expected]


def test_a_format_stands_for_itself() -> None:
    mine = Format("mine", 5, 2, 2, 1, 7.0, has_inf=False, has_nan=False)
    assert format_of(mine) is mine
    assert not set(_ALIASES) & set(FORMATS), "an alias must not hide a format"


def test_an_unknown_format_names_all_and_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        format_of("e4m4", "recipe: fp8_format")
    assert str(caught.value) == f"recipe: fp8_format: got 'e4m4', expected one of {', '.join(FORMATS)}. Did you mean 'e4m3'?"
    with pytest.raises(UsageError, match=r"^format: got 'zzz', expected one of [^?]*\.$"):
        format_of("zzz")


# ---- the document

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "precision-formats.md"


def number(text: str) -> float:
    """Of a cell such as 448, 2^-9 or (2 - 2^-7) × 2^127."""
    return float(eval(text.replace("^", "**").replace("×", "*")))  # our own document


def test_the_document_has_each_format_as_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == list(FORMATS)
    for name, cells in rows:
        form = FORMATS[name]
        *numbers, inf, nan = cells.split(" | ")
        assert [number(cell) for cell in numbers] == [
            form.bits, form.exponent_bits, form.fraction_bits, form.bias, form.max, form.min_normal, form.min_subnormal,
        ], name  # fmt: skip
        assert (inf, nan) == ("yes" if form.has_inf else "no", "yes" if form.has_nan else "no"), name


def test_the_documents_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
