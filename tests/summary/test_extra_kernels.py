"""The extra columns against exact oracles: casts by tables of all codes, exponents and blocks by plain loops."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from numscope.summary import extra_reference, native
from numscope.summary.dispatch import observe_extras
from numscope.summary.extras import CASTS, DYNAMICS, EXPONENTS, Layout, PaperCast, blockwise, format_extra
from numscope.summary.rounding import rounded

DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp16": torch.float16, "bf16": torch.bfloat16}
SCALED = [name for name, cast in CASTS.items() if cast.scaled]
PLAIN = [name for name, cast in CASTS.items() if not cast.scaled]
WIDE = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ALL = Layout([EXPONENTS, *map(format_extra, CASTS), blockwise(), blockwise(16, 2), blockwise(8, 1, False), blockwise(5), blockwise(1024)])
Observe = Callable[[Tensor, Tensor, Layout], object]


def backends() -> list[str]:
    found = ["reference"]
    if native.module is not None:
        before = native.module.isa()
        found += [isa for isa in ("baseline", "avx2", "avx512") if native.module.choose_isa(isa)]
        native.module.choose_isa(before)
    return found


@pytest.fixture(params=backends())
def observe(request: pytest.FixtureRequest) -> Iterator[Observe]:
    if request.param == "reference":
        yield lambda tensor, cells, layout: extra_reference.observe_into(tensor, cells, layout)
        return
    assert native.module is not None
    before = native.module.isa()
    native.module.choose_isa(request.param)
    yield observe_extras
    native.module.choose_isa(before)


def cells_by(observe: Observe, tensor: Tensor, layout: Layout) -> list[float]:
    cells = torch.zeros(layout.width, dtype=torch.float64)
    observe(tensor, cells, layout)
    return cells.tolist()


# ---- casts


@cache
def codes(name: str) -> list[float]:
    """All non-negative finite numbers of a format, by code, from torch's own dtype; and where the next one would be."""
    dtype = DTYPES[name]
    bits = torch.arange(128, dtype=torch.uint8) if dtype.itemsize == 1 else torch.arange(2**15, dtype=torch.int16)
    numbers = [x for x in bits.view(dtype).to(torch.float64).tolist() if math.isfinite(x)]
    return [*numbers, 2 * numbers[-1] - numbers[-2]]


def nearest(x: Fraction, name: str) -> float:
    """A non-negative number rounded to the nearest code, to the even one between two; the first number beyond the last is its overflow."""
    table = codes(name)
    above = bisect.bisect_left(table, x)
    if above >= len(table):
        return table[-1]
    if above == 0 or table[above] == x:
        return table[above]
    low, high = Fraction(table[above - 1]), Fraction(table[above])
    if x - low == high - x:
        return table[above - above % 2]
    return float(low if x - low < high - x else high)


def cast_by_table(numbers: np.ndarray, paper: PaperCast) -> tuple[int, int, Fraction]:
    """Underflows, overflows and the exact sum of squared errors of a cast of float32 numbers."""
    finite = numbers[np.isfinite(numbers)]
    scale = np.float32(1)
    amax = np.abs(finite).max(initial=np.float32(0))
    if paper.scaled and amax:
        with np.errstate(over="ignore"):
            scale = np.minimum(np.float32(paper.format.max) / amax, np.finfo(np.float32).max)
    num_underflow = num_overflow = 0
    square_error = Fraction(0)
    for x in finite:
        exact = abs(Fraction(float(x))) * Fraction(float(scale))
        cast = nearest(Fraction(float(abs(x) * scale)), paper.name)
        num_underflow += cast == 0 and x != 0
        over = cast > paper.format.max
        num_overflow += over
        if not over or paper.scaled:
            square_error += (exact - Fraction(min(cast, paper.format.max))) ** 2 / Fraction(float(scale)) ** 2
    return num_underflow, num_overflow, square_error


def edges(name: str) -> np.ndarray:
    """All codes, all midpoints, and the float32 numbers next to these, of both signs."""
    table = np.array(codes(name))
    with np.errstate(over="ignore"):
        points = np.concatenate([table, (table[1:] + table[:-1]) / 2]).astype(np.float32)
        points = np.concatenate([points, np.nextafter(points, np.float32(math.inf)), np.nextafter(points, np.float32(0))])
    return np.concatenate([points, -points])


@pytest.mark.parametrize("name", CASTS)
def test_rounding_is_that_of_torchs_own_dtype(name: str) -> None:
    form, x = CASTS[name].format, torch.from_numpy(edges(name))
    x = x[torch.isfinite(x)]
    mine = rounded(x.to(torch.float64), form)
    over = mine.abs() > form.max
    theirs = x.to(DTYPES[name]).to(torch.float64)
    assert torch.equal(mine[~over], theirs[~over])
    beyond = theirs[over].abs()
    assert beyond.numel() and ((beyond == form.max) | ~torch.isfinite(beyond)).all()  # some versions of torch saturate e4m3, some make nan


@pytest.mark.parametrize("name", CASTS)
def test_rounding_is_to_the_nearest_code_and_to_the_even_one_between_two(name: str) -> None:
    x = edges(name).astype(np.float64)
    x = np.abs(x[np.isfinite(x)])[:: 1 if CASTS[name].scaled else 37]
    mine = rounded(torch.from_numpy(x), CASTS[name].format).tolist()
    top = codes(name)[-1]
    assert [min(y, top) for y in mine] == [nearest(Fraction(float(v)), name) for v in x]


@pytest.mark.parametrize("name", SCALED)
def test_each_code_and_midpoint_has_its_own_error(observe: Observe, name: str) -> None:
    form, layout = CASTS[name].format, Layout([format_extra(name)])
    points = edges(name)
    points = points[np.abs(points) <= form.max][::5]
    for point in points:
        pair = np.array([point, form.max], dtype=np.float32)  # the format's maximum makes the scale 1
        underflow, overflow, error = cast_by_table(pair, CASTS[name])
        assert cells_by(observe, torch.from_numpy(pair), layout) == [underflow, overflow, pytest.approx(float(error), rel=1e-12)]


@cache
def edges_cast(name: str) -> tuple[np.ndarray, tuple[int, int, Fraction]]:
    points = edges(name)
    points = np.concatenate([points[::23], points[np.abs(points) < 2 * codes(name)[1]], points[np.abs(points) >= CASTS[name].format.max]])
    return points, cast_by_table(points, CASTS[name])


@pytest.mark.parametrize("name", PLAIN)
def test_all_codes_and_midpoints_have_exact_counts_and_errors(observe: Observe, name: str) -> None:
    points, (underflow, overflow, error) = edges_cast(name)
    assert underflow and overflow
    got = cells_by(observe, torch.from_numpy(points), Layout([format_extra(name)]))
    assert got == [underflow, overflow, pytest.approx(float(error), rel=1e-12)]


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("fp16", 65519.99609375, (0, 0)),
        ("fp16", 65520.0, (0, 1)),
        ("fp16", -65520.0, (0, 1)),
        ("fp16", 2.0**-25, (1, 0)),  # the tie goes to zero, which is even
        ("fp16", math.nextafter(2.0**-25, 1) + 2.0**-48, (0, 0)),
        ("fp16", -(2.0**-26), (1, 0)),
        ("fp16", 0.0, (0, 0)),
        ("fp16", -0.0, (0, 0)),
        ("fp16", math.inf, (0, 0)),
        ("fp16", math.nan, (0, 0)),
        ("bf16", torch.finfo(torch.float32).max, (0, 1)),
        ("bf16", torch.finfo(torch.bfloat16).max, (0, 0)),
        ("bf16", 2.0**-134, (1, 0)),
        ("bf16", 2.0**-133, (0, 0)),
    ],
)
def test_a_plain_cast_underflows_and_overflows_where_the_dtype_does(
    observe: Observe, name: str, x: float, expected: tuple[int, int]
) -> None:
    one = torch.tensor([x])
    got = cells_by(observe, one, Layout([format_extra(name)]))
    assert tuple(got[:2]) == expected
    cast = one.to(DTYPES[name]).item()
    assert expected[0] == (cast == 0 and x != 0)
    assert expected[1] == (math.isinf(cast) and not math.isinf(x))


def test_what_overflows_a_plain_cast_is_left_out_of_its_error(observe: Observe) -> None:
    got = cells_by(observe, torch.tensor([1e6, 1.0 + 2.0**-12]), Layout([format_extra("fp16")]))
    assert got == [0.0, 1.0, 2.0**-24]


numbers32 = st.one_of(
    st.floats(width=32),
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -1e-39, 3.4e38, 448.0, 464.0, 57344.0, 65520.0]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers32, min_size=1, max_size=50))
def test_casts_are_those_of_the_table_of_codes(numbers: list[float]) -> None:
    x = np.array(numbers, dtype=np.float32)
    layout = Layout(map(format_extra, CASTS))
    native_cells = cells_by(observe_extras, torch.from_numpy(x), layout)
    reference_cells = cells_by(extra_reference.observe_into, torch.from_numpy(x), layout)
    for cells in (native_cells, reference_cells):
        for i, cast in enumerate(CASTS.values()):
            underflow, overflow, error = cast_by_table(x, cast)
            assert cells[3 * i : 3 * i + 2] == [underflow, overflow], cast.name
            assert cells[3 * i + 2] == pytest.approx(float(error), rel=1e-12, abs=1e-300), cast.name


def test_a_scale_takes_the_largest_magnitude_to_the_formats_maximum(observe: Observe) -> None:
    layout = Layout([format_extra("e4m3")])
    assert cells_by(observe, torch.tensor([1.0, -2.0, 2.0**-18]), layout) == [1.0, 0.0, 2.0**-36]  # 2^-18 * 224 is below 2^-10
    assert cells_by(observe, torch.zeros(3), layout) == [0.0, 0.0, 0.0]
    assert cells_by(observe, torch.tensor([1e-45]), layout)[:2] == [1.0, 0.0]  # the largest float32 scale does not lift it far enough


def test_a_float64_beyond_every_scale_saturates(observe: Observe) -> None:
    got = cells_by(observe, torch.tensor([1e60, 1.0], dtype=torch.float64), Layout([format_extra("e4m3")]))
    assert got[:2] == [1.0, 1.0]
    assert got[2] == pytest.approx(1e120, rel=1e-12)


def test_a_float64_is_rounded_once(observe: Observe) -> None:
    x = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)  # by way of float32 it would be a tie, and go down
    for name, tensor in (("fp16", x), ("bf16", 8 * (x - 1) + 1)):
        got = cells_by(observe, tensor, Layout([format_extra(name)]))
        up = 2.0**-11 - 2.0**-40 if name == "fp16" else 2.0**-8 - 2.0**-37
        assert got == [0.0, 0.0, up**2]


numbers64 = st.one_of(
    st.floats(), st.floats(-4, 4), st.sampled_from([0.0, math.nan, math.inf, 5e-324, 1e308, 1e-40, 65520.0, 65519.999999])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers64, min_size=1, max_size=30), st.sampled_from(PLAIN))
def test_casts_of_float64_are_those_of_the_table_of_codes(numbers: list[float], name: str) -> None:
    form = CASTS[name].format
    finite = [Fraction(x) for x in numbers if math.isfinite(x)]
    casts = [nearest(abs(x), name) for x in finite]
    kept = [(abs(x) - Fraction(cast)) ** 2 for x, cast in zip(finite, casts, strict=True) if cast <= form.max]
    expected = [sum(cast == 0 != x for x, cast in zip(finite, casts, strict=True)), sum(cast > form.max for cast in casts)]
    for observe in (observe_extras, extra_reference.observe_into):
        got = cells_by(observe, torch.tensor(numbers, dtype=torch.float64), Layout([format_extra(name)]))
        assert got[:2] == expected
        assert got[2] == pytest.approx(float(sum(kept)), rel=1e-12, abs=1e-300)


# ---- exponents


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_exponents_are_those_of_float32(observe: Observe, dtype: torch.dtype) -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0)).exp().pow(9).to(dtype)
    x[::97], x[1::97], x[2::97], x[3::97] = 0.0, math.inf, math.nan, -0.0
    finite = x[torch.isfinite(x)].to(torch.float32).numpy()
    expected = np.bincount(finite.view(np.uint32) >> 23 & 0xFF, minlength=256)
    if dtype is torch.float64:  # rounding to float32 may carry into the next exponent
        exact = x[torch.isfinite(x)].numpy()
        expected = np.bincount(np.where(exact == 0, 0, np.frexp(exact)[1] + 126).clip(0), minlength=256)
    assert cells_by(observe, x, Layout([EXPONENTS])) == expected.tolist()


def test_exponents_of_float64_end_in_the_outer_bins(observe: Observe) -> None:
    x = torch.tensor([1e-300, 5e-324, 2.0**-127, 2.0**-126, 1.0, 2.0**127, 2.0**128, 1e300, 0.0], dtype=torch.float64)
    cells = cells_by(observe, x, Layout([EXPONENTS]))
    assert {i: n for i, n in enumerate(cells) if n} == {0: 4, 1: 1, 127: 1, 254: 1, 255: 2}


def test_exponents_count_every_finite_element(observe: Observe) -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.0, -0.0, 1e-45])
    cells = cells_by(observe, x, Layout([EXPONENTS]))
    assert sum(cells) == 3
    assert cells[255] == 0


# ---- blocks


def range_by_loops(rows: np.ndarray, height: int, width: int) -> float:
    widest = 0.0
    for r in range(0, rows.shape[0], height):
        for c in range(0, rows.shape[1], width):
            block = np.abs(rows[r : r + height, c : c + width])
            block = block[np.isfinite(block) & (block > 0)]
            if block.size:
                widest = max(widest, math.log2(block.max()) - math.log2(block.min()))
    return widest


@cache
def ranges_by_loops(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[Tensor, dict[int, list[float]]]:
    """Numbers, nan and zeros; for each size of a block, the ranges along rows, along rows or columns, and in squares."""
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    x = (torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()).to(dtype)
    x[torch.rand(shape, generator=generator) < 0.03] = math.nan
    x[torch.rand(shape, generator=generator) < 0.03] = 0.0
    rows = x.reshape(-1, shape[-1]).to(torch.float64).numpy()
    expected = {}
    for size in (1, 8, 32, 13, 1024):
        along, across = range_by_loops(rows, 1, size), range_by_loops(rows, size, 1)
        expected[size] = [along, max(along, across), range_by_loops(rows, size, size)]
    return x, expected


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (100, 1), (33, 70), (64, 64), (3, 5, 37), (9, 1100)], ids=str)
def test_block_ranges_are_those_of_plain_loops(observe: Observe, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, ranges = ranges_by_loops(dtype, shape)
    for size, expected in ranges.items():
        layout = Layout([blockwise(size, 1, False), blockwise(size), blockwise(size, 2)])
        assert cells_by(observe, x, layout) == pytest.approx(expected, rel=1e-14)


def test_the_widest_block_is_found_wherever_it_lies(observe: Observe) -> None:
    layout = Layout([blockwise(32), blockwise(32, 2)])
    for row, column in ((0, 0), (31, 31), (32, 64), (69, 98), (69, 0)):
        x = torch.ones(70, 99)
        x[row, column] = 2.0**-140  # subnormal
        assert cells_by(observe, x, layout) == [140.0, 140.0]


def test_blocks_along_columns_see_what_blocks_along_rows_do_not(observe: Observe) -> None:
    x = (2.0 ** -torch.arange(32.0)).reshape(32, 1).expand(32, 40).contiguous()
    assert cells_by(observe, x, Layout([blockwise(32, 1, False), blockwise(32)])) == [0.0, 31.0]


def test_blocks_without_a_number_count_zero(observe: Observe) -> None:
    for x in (torch.zeros(40, 40), torch.full((40, 40), math.nan), torch.full((40, 40), 3.0)):
        assert cells_by(observe, x, Layout([blockwise(), blockwise(32, 2)])) == [0.0, 0.0]


# ---- any tensor, merging


def varied(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape))
    x = torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).mul(3).exp()
    x[torch.rand(shape, generator=generator) < 0.02] = math.inf
    x[torch.rand(shape, generator=generator) < 0.02] = 0.0
    return x.to(dtype)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_native_columns_are_those_of_torch(observe: Observe, dtype: torch.dtype) -> None:
    for shape in ((1,), (7,), (3, 1000), (129, 1031), (2, 5, 4100)):
        x = varied(*shape, dtype=dtype)
        expected = cells_by(extra_reference.observe_into, x, ALL)
        assert cells_by(observe, x, ALL) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers32, max_size=30), st.lists(numbers32, max_size=30))
def test_observing_both_into_one_is_the_merge_of_each(a: list[float], b: list[float]) -> None:
    first, second = torch.tensor(a), torch.tensor(b)
    together = torch.zeros(ALL.width, dtype=torch.float64)
    assert observe_extras(first, together, ALL) and observe_extras(second, together, ALL)
    assert together.tolist() == ALL.merge(cells_by(observe_extras, first, ALL), cells_by(observe_extras, second, ALL))


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers32, max_size=60), st.integers(0, 60))
def test_what_has_no_scale_splits_anywhere(numbers: list[float], at: int) -> None:
    layout = Layout([EXPONENTS, *map(format_extra, PLAIN)])
    parts = [cells_by(observe_extras, torch.tensor(part), layout) for part in (numbers[:at], numbers[at:])]
    whole = cells_by(observe_extras, torch.tensor(numbers), layout)
    assert layout.merge(*parts) == pytest.approx(whole, rel=1e-12)


def test_columns_do_not_depend_on_the_number_of_threads() -> None:
    x, results = varied(300, 1000), []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(cells_by(observe_extras, x, ALL))
    torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_strides_do_not_matter_but_shape_does() -> None:
    x = varied(50, 70)
    assert cells_by(observe_extras, x.t().contiguous().t(), ALL) == cells_by(observe_extras, x, ALL)
    wide = torch.zeros(50, 140)
    wide[:, ::2] = x
    assert cells_by(observe_extras, wide[:, ::2], ALL) == cells_by(observe_extras, x, ALL)


def test_a_complex_tensor_is_its_real_and_imaginary_parts_in_a_row() -> None:
    z = torch.complex(varied(6, 40), varied(6, 40) * 3)
    assert cells_by(observe_extras, z, ALL) == cells_by(observe_extras, torch.view_as_real(z).reshape(6, 80), ALL)
    assert cells_by(observe_extras, z.conj(), ALL) == cells_by(observe_extras, z, ALL)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int32, torch.bool], ids=str)
def test_other_dtypes_are_read_as_floats_that_hold_them(dtype: torch.dtype) -> None:
    x = torch.randn(9, 40).mul(3).to(dtype)
    wide = torch.float32 if dtype.is_floating_point else torch.float64
    assert cells_by(observe_extras, x, ALL) == cells_by(observe_extras, x.to(wide), ALL)
    assert cells_by(extra_reference.observe_into, x, ALL) == pytest.approx(cells_by(observe_extras, x, ALL), rel=1e-12)


def test_empty_and_scalar_and_parameter_and_sparse_tensors_are_read() -> None:
    for empty in (torch.empty(0), torch.empty(0, 5), torch.empty(5, 0)):
        assert cells_by(observe_extras, empty, ALL) == ALL.empty()
    x = varied(8, 40)
    scalar = cells_by(observe_extras, x[0, 0], ALL)
    assert scalar == cells_by(observe_extras, x[:1, :1], ALL)
    assert cells_by(observe_extras, torch.nn.Parameter(x), ALL) == cells_by(observe_extras, x, ALL)
    assert cells_by(observe_extras, x.to_sparse(), ALL) == cells_by(observe_extras, x, ALL)


def test_what_cannot_be_read_is_said_and_leaves_the_cells_alone() -> None:
    cells = torch.zeros(ALL.width, dtype=torch.float64)
    assert observe_extras(torch.empty(3, device="meta"), cells, ALL) is False
    assert cells.tolist() == ALL.empty()


def test_only_its_own_cells_are_written() -> None:
    layout = Layout([DYNAMICS, format_extra("e4m3"), DYNAMICS])
    block = torch.full((3, layout.width), -7.0, dtype=torch.float64)
    block[1] = 0.0
    assert observe_extras(varied(300), block[1], layout)
    assert (block[0] == -7).all() and (block[2] == -7).all() and (block[1, :8] == 0).all()
    assert block[1, 8:].any()


def test_columns_are_taken_under_deterministic_algorithms() -> None:
    expected = cells_by(extra_reference.observe_into, varied(100, 50), ALL)
    torch.use_deterministic_algorithms(True)
    try:
        assert cells_by(extra_reference.observe_into, varied(100, 50), ALL) == expected
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(native.module is None, reason="needs the native kernel")
def test_the_kernel_refuses_what_it_was_not_made_for() -> None:
    assert native.module is not None
    x, cells = torch.ones(4), torch.zeros(3, dtype=torch.float64)
    specs = Layout([format_extra("e4m3")]).packed
    good = [x.data_ptr(), 4, 2, 0, cells.data_ptr(), specs.buffer_info()[0], 1, 1]
    native.module.observe_extras(*good)
    for place, wrong in ((0, 0), (1, -1), (2, 3), (3, 8), (4, 0)):
        with pytest.raises(ValueError, match="observe_extras: got address"):
            native.module.observe_extras(*good[:place], wrong, *good[place + 1 :])
    specs[2] = 9
    with pytest.raises(ValueError, match="observe_extras: got kind 1, first cell 0, settings 9"):
        native.module.observe_extras(*good)
