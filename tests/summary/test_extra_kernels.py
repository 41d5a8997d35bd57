"""The extra columns against exact oracles: exponents and blocks by plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from numscope.summary import extra_reference, native
from numscope.summary.dispatch import observe_extras
from numscope.summary.extras import DYNAMICS, EXPONENTS, Layout, blockwise

WIDE = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ALL = Layout([EXPONENTS, blockwise(), blockwise(16, 2), blockwise(8, 1, False), blockwise(5), blockwise(1024)])
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


numbers32 = st.one_of(st.floats(width=32), st.floats(-4, 4, width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e-45, 3.4e38]))


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
def test_exponents_split_anywhere(numbers: list[float], at: int) -> None:
    layout = Layout([EXPONENTS])
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
    layout = Layout([DYNAMICS, blockwise(), DYNAMICS])
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
    specs = Layout([blockwise()]).packed
    good = [x.data_ptr(), 4, 2, 0, cells.data_ptr(), specs.buffer_info()[0], 1, 1]
    native.module.observe_extras(*good)
    for place, wrong in ((0, 0), (1, -1), (2, 3), (3, 8), (4, 0)):
        with pytest.raises(ValueError, match="observe_extras: got address"):
            native.module.observe_extras(*good[:place], wrong, *good[place + 1 :])
    specs[2] = 0
    with pytest.raises(ValueError, match="observe_extras: got kind 1, first cell 0, settings 0"):
        native.module.observe_extras(*good)
