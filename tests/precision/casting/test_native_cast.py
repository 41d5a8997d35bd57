"""The native cast against the reference, bit for bit: formats, scalings, layouts, codes, midpoints, what is not finite or denormal."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from numscope.precision.casting import native_cast, reference_cast
from numscope.precision.casting.cast import cast, empty_cells
from numscope.precision.casting.reference_cast import CastCall
from numscope.precision.casting.scaling import PER_ROW, PER_TENSOR, How, Scaling
from numscope.records.formats import FORMATS, Format, format_of
from numscope.summary import native as kernel

pytestmark = pytest.mark.skipif(kernel.module is None, reason="the native kernel was not built")

MX = Scaling("block", (1, 32), scale_format="e8m0")
NVFP4 = Scaling("block", (1, 16), scale_format="e4m3fn")
SCALINGS = [
    PER_TENSOR,
    Scaling("tensor", power_of_two=True),
    PER_ROW,
    MX,
    Scaling("block", (32, 1), scale_format="e8m0"),
    Scaling("block", (1, 32), scale_format="e8m0", e8m0_rounding="rceil"),
    Scaling("block", (1, 128)),
    Scaling("block", (128, 128)),
    Scaling("block", (1, 128), power_of_two=True),
    NVFP4,
    Scaling("block", (3, 7)),
    Scaling("block", (300, 1)),  # columns higher than a tile
    Scaling("block", (1, 3000)),  # wider than a piece
]
SIGNED = [form for form in FORMATS.values() if form.signed]
WIDE = [torch.float32, torch.bfloat16, torch.float16]
GIVEN = torch.tensor(3.7)


def isas() -> list[str]:
    if kernel.module is None:
        return ["none"]
    before = kernel.module.isa()
    found = [isa for isa in ("baseline", "avx2", "avx512") if kernel.module.choose_isa(isa)]
    kernel.module.choose_isa(before)
    return found


@pytest.fixture(params=isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    assert kernel.module is not None
    before = kernel.module.isa()
    kernel.module.choose_isa(request.param)
    yield request.param
    kernel.module.choose_isa(before)


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, but that any nan is like any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    if torch.equal(a.reshape(-1).contiguous().view(torch.uint8), b.reshape(-1).contiguous().view(torch.uint8)):
        return True
    x, y = a.to(torch.float64), b.to(torch.float64)
    signs = torch.signbit(x) == torch.signbit(y)
    return bool((torch.isnan(x) & torch.isnan(y) | (x == y) & signs).all())


def check(
    x: Tensor, how: How, scale: Tensor | None = None, columnwise: bool = False, error: float = 1e-11, among: Sequence[str] = ("",)
) -> None:
    """Native and reference give the same values, codes, scales, counts and amax.

    Args:
        among: the instruction sets to try, if not the one that is chosen; the first of them without some of the outputs, too.
    """
    expected_cells, expected_amax = empty_cells(), torch.zeros(())
    expected = reference_cast.cast_matrix(x, CastCall(how, scale, columnwise, True, True, expected_cells, expected_amax))
    for isa in among:
        if isa:
            assert kernel.module is not None and kernel.module.choose_isa(isa)
        _compare(x, how, scale, columnwise, error, expected, expected_cells, expected_amax, in_part=isa == among[0])


def _compare(
    x: Tensor,
    how: How,
    scale: Tensor | None,
    columnwise: bool,
    error: float,
    expected: tuple[Tensor | None, Tensor | None, Tensor],
    expected_cells: Tensor,
    expected_amax: Tensor,
    in_part: bool,
) -> None:
    cells, amax = empty_cells(), torch.zeros(())
    got = native_cast.cast_matrix(x, CastCall(how, scale, columnwise, True, True, cells, amax))
    assert got is not None, how.text()
    for name, a, b in zip(("values", "codes", "scale_inv"), got, expected, strict=True):
        assert a is not None and b is not None and same(a, b), f"{name} of {how.text()}, columnwise {columnwise}: {a}, expected {b}"
    counts = [0, 1, 2, 4, 5]
    assert cells[counts].tolist() == expected_cells[counts].tolist(), how.text()
    assert float(cells[3]) == pytest.approx(float(expected_cells[3]), rel=error, abs=0), how.text()
    assert same(amax, expected_amax)
    if not in_part:
        return
    # The same without what was not asked for, counted into cells that hold something.
    again = native_cast.cast_matrix(x, CastCall(how, scale, columnwise, False, False, cells))
    assert again is not None and again[0] is None and again[1] is None and same(again[2], expected[2])
    assert cells[:3].tolist() == (2 * expected_cells[:3]).tolist() and cells[4:].tolist() == expected_cells[4:].tolist()
    only_values = native_cast.cast_matrix(x, CastCall(how, scale, columnwise, True, False))
    assert only_values is not None and only_values[0] is not None and expected[0] is not None and same(only_values[0], expected[0])


def hows(form: Format, dtype: torch.dtype) -> Iterator[How]:
    """Each scaling with either saturation and with either margin; over the dtypes, with both of both."""
    for (turn, scaling), saturate in itertools.product(enumerate(SCALINGS, WIDE.index(dtype)), (True, False)):
        margin = (turn + saturate) % 2
        if scaling is NVFP4 and form.exponent_bits == 8:
            continue  # the outer scale would be beyond float32: of no use
        if saturate or form.has_inf or form.has_nan:
            yield How(form, scaling, margin=margin, saturate=saturate)


def samples(dtype: torch.dtype) -> list[Tensor]:
    made = torch.Generator().manual_seed(0)
    wide = torch.randn(35, 97, generator=made)
    wide.view(-1)[:16] = torch.tensor(
        [0.0, -0.0, 1e-45, -1e-40, 1e-38, 448.0, 464.0, 465.0, 240.0, 1e30, 3e38, -57344.0, 65520.0, 1e-8, -6.1e-5, 127.5]
    )
    nan = torch.randn(40, 70, generator=made)
    nan[3, 5], nan[25, 43] = math.nan, -math.nan
    infinite = nan.clone()
    infinite[20, 40], infinite[7, 7] = math.inf, -math.inf
    tall = torch.randn(610, 20, generator=made) * 1e-3
    return [
        x.to(dtype) for x in (wide, nan, infinite, tall, torch.randn(3, 3100, generator=made).exp(), torch.zeros(2, 33), torch.ones(1, 1))
    ]


@pytest.fixture
def all_isas() -> Iterator[list[str]]:
    assert kernel.module is not None
    before = kernel.module.isa()
    yield isas()
    kernel.module.choose_isa(before)


@pytest.mark.parametrize("form", SIGNED, ids=lambda form: form.name)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_native_is_the_reference_bit_for_bit(all_isas: list[str], form: Format, dtype: torch.dtype) -> None:
    # fp32 is exact but for the scale's own rounding: nothing that a sum of squares could be exact about.
    error = 1e-11 if form.fraction_bits < 23 else 1e-6
    pairs = itertools.product(enumerate(hows(form, dtype)), enumerate(samples(dtype), WIDE.index(dtype)))
    # Of float32 and float16 the one half, of bfloat16 the other one.
    for turn, (how, x) in enumerate((how, x) for (i, how), (j, x) in pairs if (i + j) % 2):
        first = turn % len(all_isas)
        check(x, how, columnwise=how.margin == 1, error=error, among=all_isas[first:] + all_isas[:first])
    for saturate in (True, False) if form.has_nan else (True,):
        for x in samples(dtype):
            check(x, How(form, saturate=saturate), GIVEN, error=error, among=all_isas)


@pytest.mark.parametrize("form", [form for form in SIGNED if form.bits <= 16], ids=lambda form: form.name)
def test_every_code_and_every_midpoint_rounds_as_the_reference_does(isa: str, form: Format) -> None:
    magnitudes = torch.arange(1 << (form.bits - 1), dtype=torch.int32)
    if form.torch_name is None:
        numbers = reference_cast.decode(magnitudes.to(torch.uint8), form)
    else:
        dtype = reference_cast.dtype_of(form)
        numbers = magnitudes.to(torch.uint8 if form.bits == 8 else torch.int16).view(dtype).to(torch.float32)
    numbers = numbers[torch.isfinite(numbers) & (numbers >= 0)].sort().values
    beyond = 2 * numbers[-1] - numbers[-2]
    steps = torch.cat([numbers, beyond.reshape(1) if torch.isfinite(beyond) else numbers[-1:]]).to(torch.float64)
    middle = ((steps[1:] + steps[:-1]) / 2).to(torch.float32)
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    near = [middle, torch.nextafter(middle, up), torch.nextafter(middle, down)]
    line = torch.cat([numbers, *near])
    line = torch.cat([line, -line]).reshape(1, -1)
    check(line, How(form), torch.tensor(1.0))
    values = cast(numbers, How(form), scale=1.0).values
    assert values is not None and torch.equal(values, numbers)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: f"{scaling.kind}{scaling.block}{scaling.scale_format or ''}")
def test_threads_change_nothing(threads: int, scaling: Scaling) -> None:
    x = torch.randn(700, 301, generator=torch.Generator().manual_seed(1))
    how = How(format_of("fp4" if scaling is NVFP4 else "e4m3"), scaling)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for columnwise in (False, True):
            check(x, how, columnwise=columnwise)
            once, twice = empty_cells(), empty_cells()
            native_cast.cast_matrix(x, CastCall(how, None, columnwise, False, False, once))
            torch.set_num_threads(3)
            native_cast.cast_matrix(x, CastCall(how, None, columnwise, False, False, twice))
            torch.set_num_threads(threads)
            assert torch.equal(once, twice)  # the square error too, to its last bit
    finally:
        torch.set_num_threads(before)


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 150),
    st.sampled_from(SIGNED),
    st.sampled_from(SCALINGS),
    st.booleans(),
    st.sampled_from(WIDE),
    st.integers(0, 2**31),
    st.integers(-40, 40),
)
def test_any_bits_of_any_shape(
    rows: int, columns: int, form: Format, scaling: Scaling, columnwise: bool, dtype: torch.dtype, seed: int, size: int
) -> None:
    made = torch.Generator().manual_seed(seed)
    if seed % 3 == 0:  # any bits at all: denormal, infinite, nan
        bits = torch.randint(0, 2**31, (rows, columns), generator=made, dtype=torch.int64)
        signs = torch.randint(0, 2, (rows, columns), generator=made) * 2 - 1
        x = (bits.to(torch.int32).view(torch.float32) * signs).to(dtype)
        x = torch.where(torch.isnan(x) & (torch.rand(x.shape, generator=made) < 0.9), torch.ones_like(x), x)
    else:
        x = (torch.randn(rows, columns, generator=made) * 2.0**size).to(dtype)
    if scaling is NVFP4 and form.exponent_bits == 8:
        form = format_of("e2m1")
    check(x, How(form, scaling), columnwise=columnwise, error=1e-6)


def test_cast_takes_the_native_way_whatever_the_layout() -> None:
    x = torch.randn(6, 5, 64, generator=torch.Generator().manual_seed(2))
    how = How(format_of("e4m3"), MX)
    for given_x in (x, x.transpose(0, 1), x[:, ::2], torch.nn.Parameter(x), x[0, 0], x[..., 0]):
        got = cast(given_x, how, codes=True)
        matrix = given_x.detach().reshape(-1, given_x.shape[-1])
        expected = reference_cast.cast_matrix(matrix, CastCall(how, None, False, True, True))
        assert got.values is not None and got.codes is not None and expected[0] is not None and expected[1] is not None
        assert got.values.shape == given_x.shape and same(got.values, expected[0].reshape(given_x.shape))
        assert same(got.codes, expected[1].reshape(given_x.shape)) and same(got.scale_inv, expected[2])


def serves(x: torch.Tensor, how: How) -> bool:
    return native_cast.cast_matrix(x, CastCall(how)) is not None


def test_what_it_does_not_serve_is_left_to_the_reference() -> None:
    x = torch.randn(4, 64)
    e4m3 = format_of("e4m3")
    assert serves(x, How(e4m3))
    assert not serves(x.double(), How(e4m3))
    assert not serves(x.to(torch.int32), How(e4m3))
    assert not serves(x, How(e4m3, rounding="stochastic"))
    assert not serves(x, How(format_of("e8m0")))
    assert not serves(x[:0], How(e4m3))
    assert not serves(x.to("meta"), How(e4m3))
    tall_and_wide = Scaling("block", (300, 300))
    assert native_cast.cast_matrix(torch.randn(601, 601), CastCall(How(e4m3, tall_and_wide), None, False, True, False)) is None
    values = cast(torch.randn(601, 601), How(e4m3, tall_and_wide)).values
    assert values is not None and values.shape == (601, 601)


def test_the_kernel_refuses_what_is_no_memory() -> None:
    assert kernel.module is not None
    with pytest.raises(TypeError, match=r"cast_quantize\(address, rows, .*got 1 arguments, expected 12"):
        kernel.module.cast_quantize(1)
    with pytest.raises(ValueError, match="expected memory, elements, float32, bfloat16 or float16"):
        kernel.module.cast_quantize(0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    with pytest.raises(ValueError, match="expected float32, bfloat16 or float16"):
        kernel.module.cast_amax(64, 1, 1, 1)


def test_threads_of_python_cast_side_by_side() -> None:
    x = torch.randn(512, 512, generator=torch.Generator().manual_seed(3))
    expected = cast(x, How(format_of("e4m3"))).values
    found: list[bool] = []

    def work() -> None:
        for _ in range(10):
            values = cast(x, How(format_of("e4m3"))).values
            found.append(values is not None and expected is not None and torch.equal(values, expected))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 30
