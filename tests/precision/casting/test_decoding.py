"""Values of kept codes are bitwise the cast's own, natively and by torch."""

from __future__ import annotations

import math

import pytest
import torch

from numscope.precision.casting.cast import cast, values_of
from numscope.precision.casting.scaling import PER_ROW, PER_TENSOR, How, Scaling
from numscope.records.formats import FORMATS
from numscope.summary import native

SCALINGS = {
    "tensor": PER_TENSOR,
    "row": PER_ROW,
    "1x32": Scaling("block", (1, 32), True, "e8m0"),
    "1x16": Scaling("block", (1, 16), scale_format="e4m3fn"),
    "16x16": Scaling("block", (16, 16), scale_format="e4m3fn"),
    "128x128": Scaling("block", (128, 128), True),
}


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "module", None)
    elif native.module is None:
        pytest.skip("the kernel was not built")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("columnwise", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.usefixtures("backend")
def test_decoded_values_are_the_casts_own(scaling: str, columnwise: bool, dtype: torch.dtype) -> None:
    x = torch.randn(5, 9, 37, generator=torch.Generator().manual_seed(0)).mul_(3).to(dtype)
    x[0, 0, 0], x[1], x[2, 0, 3] = 0.0, 0.0, math.inf
    for name, form in FORMATS.items():
        if form.bits > 8 or name == "e8m0fnu":
            continue
        made = cast(x, How(form, SCALINGS[scaling]), columnwise=columnwise, codes=True)
        assert made.values is not None
        got = values_of(made, x.dtype, dtype)
        assert got.dtype is dtype and got.shape == x.shape
        assert torch.equal(got.nan_to_num(7.0), made.values.nan_to_num(7.0)), name
        assert torch.equal(got.isnan(), made.values.isnan())


@pytest.mark.usefixtures("backend")
def test_nan_stays_nan_and_many_rows_take_many_tasks() -> None:
    x = torch.randn(700, 300)
    x[3, 4] = torch.nan
    for scaling in SCALINGS.values():
        made = cast(x, How(FORMATS["e4m3fn"], scaling), codes=True)
        got = values_of(made, x.dtype, torch.float32)
        assert made.values is not None and torch.equal(got.isnan(), made.values.isnan())
        assert torch.equal(got.nan_to_num(), made.values.nan_to_num())


def test_values_come_in_another_dtype_rounded_once() -> None:
    x = torch.randn(64, 64)
    for scaling in SCALINGS.values():
        made = cast(x, How(FORMATS["e4m3fn"], scaling), codes=True)
        assert made.values is not None
        assert torch.equal(values_of(made, x.dtype, torch.bfloat16), made.values.to(torch.bfloat16))


def test_kernel_refuses_what_has_no_room() -> None:
    if native.module is None:
        pytest.skip("the kernel was not built")
    with pytest.raises(ValueError, match=r"cast_decode: got 0 rows, 4 columns, numbers of 4 bytes; expected codes, a table, room"):
        native.module.cast_decode(1, 0, 4, 1, 4, 1, 0, 0, 0, 1)
