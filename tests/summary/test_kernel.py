"""The native kernel and the torch reference against NumPy, on every instruction set that this processor has."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.records.observation import FIELDS
from numscope.summary import native, reference
from numscope.summary.state import EMPTY_ROW, ROW_BYTES, Groups, Summary
from tests.summary.oracle import EXACT, FLOAT_IDS, FLOATS, assert_same, summary_of

kernel = native.module
BACKENDS = ["reference"]
if kernel is not None:
    BEST = kernel.isa()
    BACKENDS += [isa for isa in ("baseline", "avx2", "avx512") if kernel.choose_isa(isa)]
    kernel.choose_isa(BEST)
needs_kernel = pytest.mark.skipif(kernel is None, reason="the native kernel was not built")
each_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=FLOAT_IDS)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def _best_instruction_set_again() -> Iterator[None]:
    yield
    if kernel is not None:
        kernel.choose_isa(BEST)


def observed(backend: str, tensor: torch.Tensor, groups: int = Groups.ALL, threads: int = 1) -> Summary:
    block = reference.empty_block(1)
    if backend == "reference":
        reference.observe_into(tensor, block[0], groups)
    else:
        assert kernel is not None and tensor.is_contiguous() and kernel.choose_isa(backend)
        kernel.observe(tensor.data_ptr(), tensor.numel(), native.CODES[tensor.dtype], block.data_ptr(), groups, threads)
    return Summary.from_row(block[0].tolist())


def sample(n: int, dtype: torch.dtype, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(n, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def all_codes(dtype: torch.dtype) -> torch.Tensor:
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


@each_backend
@pytest.mark.parametrize("dtype", FLOATS[2:], ids=FLOAT_IDS[2:])
def test_all_codes_of_a_narrow_format_are_summarized_together(backend: str, dtype: torch.dtype) -> None:
    assert_same(observed(backend, all_codes(dtype)), summary_of(all_codes(dtype)))


@needs_kernel
@pytest.mark.parametrize("dtype", FLOATS[2:], ids=FLOAT_IDS[2:])
def test_each_code_of_a_narrow_format_is_summarized_alone(dtype: torch.dtype) -> None:
    codes = all_codes(dtype)
    n = codes.numel()
    block = reference.empty_block(n)
    for i in range(n):
        kernel.observe(codes.data_ptr() + i * dtype.itemsize, 1, native.CODES[dtype], block.data_ptr() + i * ROW_BYTES, Groups.ALL, 1)
    x = codes.to(torch.float32).to(torch.float64)
    rows = dict(zip(FIELDS, block.unbind(1), strict=False))
    finite, magnitude = torch.isfinite(x), x.abs()
    tiny = torch.finfo(dtype).smallest_normal
    assert torch.equal(rows["numel"], torch.ones(n, dtype=torch.float64))
    assert torch.equal(rows["num_nan"] == 1, torch.isnan(x))
    assert torch.equal(rows["num_pos_inf"] == 1, x == math.inf)
    assert torch.equal(rows["num_neg_inf"] == 1, x == -math.inf)
    assert torch.equal(rows["num_zero"] == 1, x == 0)
    assert torch.equal(rows["num_subnormal"] == 1, (magnitude < tiny) & (x != 0))
    assert torch.equal(rows["min"], torch.where(finite, x, math.inf))
    assert torch.equal(rows["max"], torch.where(finite, x, -math.inf))
    assert torch.equal(rows["abs_min"], torch.where(finite & (x != 0), magnitude, math.inf))
    assert torch.equal(rows["abs_max"], torch.where(finite, magnitude, -math.inf))
    x = torch.where(finite, x, 0.0)
    assert torch.equal(rows["center"], x) and torch.equal(rows["abs_sum"], x.abs())
    assert all(torch.equal(rows[name], torch.zeros(n, dtype=torch.float64)) for name in FIELDS if name.startswith("dev_"))


@cache
def long_sample(dtype: torch.dtype) -> torch.Tensor:
    x = sample(70_000, dtype)
    x[::97] = 0.0
    return x


@cache
def part_of_long_sample(dtype: torch.dtype, start: int, end: int) -> tuple[torch.Tensor, Summary]:
    x = long_sample(dtype)[start:end]
    return x, summary_of(x)


@each_backend
@each_dtype
def test_every_size_around_the_block_boundaries(backend: str, dtype: torch.dtype) -> None:
    sizes = [
        *range(0, 201, 1 if backend != "reference" else 25),
        1023,
        1024,
        1025,
        2047,
        2048,
        2049,
        4095,
        4097,
        65535,
        65536,
        65537,
        69_999,
    ]
    for n in sizes:
        x, expected = part_of_long_sample(dtype, 0, n)
        assert_same(observed(backend, x), expected)


@each_backend
@each_dtype
def test_unaligned_addresses(backend: str, dtype: torch.dtype) -> None:
    for start in range(1, 65, 1 if backend != "reference" else 16):
        x, expected = part_of_long_sample(dtype, start, start + 2100)
        assert_same(observed(backend, x), expected)


SPECIALS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -3e-8, 1e-40, 6e-5, 65504.0, 448.0, -3e38]


@cache
def sample_with(special: float, dtype: torch.dtype, where: int) -> tuple[torch.Tensor, Summary]:
    x = sample(5000, dtype)
    x[where] = special
    return x, summary_of(x)


@each_backend
@each_dtype
@pytest.mark.parametrize("where", [0, 1, 2047, 2048, 4999])
def test_one_special_value_anywhere_is_counted(backend: str, dtype: torch.dtype, where: int) -> None:
    for special in SPECIALS:
        x, expected = sample_with(special, dtype, where)
        assert_same(observed(backend, x), expected)


@each_backend
@each_dtype
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extrema_of_one_sided_tensors(backend: str, dtype: torch.dtype, sign: float) -> None:
    x = (sample(3000, torch.float32).abs() * sign).to(dtype)
    assert_same(observed(backend, x), summary_of(x))
    x[5] = 0.0
    assert_same(observed(backend, x), summary_of(x))
    x[6] = math.nan
    assert_same(observed(backend, x), summary_of(x))


@each_backend
@each_dtype
def test_no_extremum_comes_from_a_nonfinite_element(backend: str, dtype: torch.dtype) -> None:
    x = torch.full((2500,), math.nan).to(dtype)
    assert_same(observed(backend, x), summary_of(x))
    s = observed(backend, x)
    assert (s.num_nan, s.min, s.max, s.abs_min, s.abs_max, s.sum) == (2500, None, None, None, None, 0.0)


@each_backend
@each_dtype
def test_a_masked_tensor_half_of_minus_infinity(backend: str, dtype: torch.dtype) -> None:
    x = torch.where(torch.arange(6000) % 2 == 0, -math.inf, sample(6000, torch.float32)).to(dtype)
    assert_same(observed(backend, x), summary_of(x))


@each_backend
@each_dtype
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-7, 1e4, 1e30])
def test_every_magnitude(backend: str, dtype: torch.dtype, scale: float) -> None:
    x = sample(5000, torch.float32, scale=scale).to(dtype)
    assert_same(observed(backend, x), summary_of(x))


@each_backend
def test_float64_beyond_float32(backend: str) -> None:
    x = torch.tensor([1e-310, 5e-324, 1e300, -1e-200, 2.0], dtype=torch.float64)
    assert_same(observed(backend, x), summary_of(x))
    assert observed(backend, x).fourth_sum == math.inf


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_std_keeps_ten_digits_where_the_mean_is_a_thousand_times_the_std(backend: str, dtype: torch.dtype) -> None:
    x = (torch.randn(1_000_003, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 1e3).to(dtype)
    mean = math.fsum(x.tolist()) / x.numel()
    std = math.sqrt(math.fsum(((x.double() - mean) ** 2).tolist()) / x.numel())
    s = observed(backend, x)
    assert s.mean == pytest.approx(mean, rel=3e-16)
    assert s.std == pytest.approx(std, rel=1e-10)


@each_backend
@each_dtype
def test_health_alone_leaves_the_sums_at_zero(backend: str, dtype: torch.dtype) -> None:
    x = sample(5000, dtype)
    x[3] = math.nan
    assert_same(observed(backend, x, Groups.HEALTH), summary_of(x), moments=False)


@each_backend
@each_dtype
@pytest.mark.parametrize("mean", [0.0, 40.0], ids=["about 0", "about an element"])
def test_moments_without_the_higher_ones_leave_these_unknown(backend: str, dtype: torch.dtype, mean: float) -> None:
    x = (torch.randn(70_003, generator=torch.Generator().manual_seed(0)) + mean).to(dtype)
    x[3] = math.nan
    twice = (x.float() * 2).to(dtype)
    found, whole = observed(backend, x, Groups.MOMENTS), observed(backend, x)
    assert math.isnan(found.dev_cube_sum) and math.isnan(found.dev_fourth_sum) and not math.isnan(whole.dev_cube_sum)
    assert replace(found, dev_cube_sum=whole.dev_cube_sum, dev_fourth_sum=whole.dev_fourth_sum) == whole
    assert found.skewness is None and found.kurtosis is None and found.std == whole.std
    merged = found.merge(observed(backend, twice, Groups.MOMENTS))
    assert merged.kurtosis is None and merged.std == pytest.approx(whole.merge(observed(backend, twice)).std)


@each_backend
def test_a_tensor_without_a_finite_element_leaves_no_sum_unknown(backend: str) -> None:
    finite, none = sample(100, torch.float32), torch.full((5,), math.inf)
    assert observed(backend, finite).merge(observed(backend, none, Groups.MOMENTS)).kurtosis == observed(backend, finite).kurtosis


@needs_kernel
@each_dtype
def test_the_number_of_threads_changes_nothing(dtype: torch.dtype) -> None:
    x = sample(600_000, dtype)
    x[123_456] = math.nan
    assert observed(BEST, x, threads=1) == observed(BEST, x, threads=2) == observed(BEST, x, threads=7)


elements = st.one_of(st.floats(width=16), st.floats(width=32), st.sampled_from(SPECIALS))


@needs_kernel
@each_dtype
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_observing_the_parts_into_one_row_is_observing_the_whole(dtype: torch.dtype, data: st.DataObject) -> None:
    values = (
        torch.tensor(data.draw(st.lists(elements, max_size=60)), dtype=torch.float64)
        .repeat(data.draw(st.sampled_from([1, 1, 40])))
        .to(dtype)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, values.numel()), max_size=4)))
    backend = data.draw(st.sampled_from(BACKENDS))
    block = reference.empty_block(1)
    for part in torch.tensor_split(values, cuts):
        part = part.contiguous()
        if backend == "reference":
            reference.observe_into(part, block[0])
        else:
            assert kernel.choose_isa(backend)
            kernel.observe(part.data_ptr(), part.numel(), native.CODES[dtype], block.data_ptr(), Groups.ALL, 1)
    assert_same(Summary.from_row(block[0].tolist()), summary_of(values))


@needs_kernel
@given(
    st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=20),
    st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]),
    st.sampled_from(BACKENDS),
)
@settings(deadline=None)
def test_integers_are_summarized_as_numbers(values: list[int], dtype: torch.dtype, backend: str) -> None:
    x = torch.tensor(values, dtype=torch.int64).to(dtype)
    assert_same(observed(backend, x), summary_of(x))


def test_reference_takes_both_parts_of_a_complex_number() -> None:
    x = torch.complex(sample(500, torch.float32), sample(500, torch.float32, seed=1))
    x[3] = complex(math.nan, math.inf)
    s = observed("reference", x)
    assert (s.numel, s.num_nan, s.num_pos_inf) == (1000, 1, 1)
    assert_same(s, summary_of(x))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_reference_counts_the_zeros_that_a_sparse_layout_implies(layout: torch.layout) -> None:
    x = sample(600, torch.float32).clamp(min=0.5) - 0.5
    x[7] = math.nan
    x = x.view(20, 30)
    assert_same(observed("reference", x.to_sparse(layout=layout)), summary_of(x))


def test_reference_adds_up_repeated_indices_of_a_sparse_tensor() -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([3e38, 3e38]), (4,))
    assert observed("reference", x).num_pos_inf == 1


def test_reference_works_piece_by_piece() -> None:
    x = sample(2 * reference.PIECE + 5, torch.float32)
    x[-1] = math.inf
    assert_same(observed("reference", x), summary_of(x))


def test_reference_refuses_what_holds_no_numbers() -> None:
    with pytest.raises(TypeError, match=r"observe_into: got dtype torch\.quint8, expected bool, an integer of 8 bits or more, a float"):
        observed("reference", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))


@needs_kernel
def test_observe_many_fills_the_rows_that_observe_fills() -> None:
    from array import array

    tensors = [sample(n, FLOATS[i % len(FLOATS)], seed=i) for i, n in enumerate([0, 1, 300_000, 17, 0, 65_536, 140_000, 2048, 5])]
    for threads in (1, 3):
        one, many = reference.empty_block(len(tensors)), reference.empty_block(len(tensors))
        entries = array("q")
        for i, x in enumerate(tensors):
            code = native.CODES[x.dtype]
            kernel.observe(x.data_ptr(), x.numel(), code, one[i].data_ptr(), Groups.ALL, 1)
            entries.extend((x.data_ptr(), x.numel(), code, many[i].data_ptr()))
        kernel.observe_many(entries.buffer_info()[0], len(tensors), Groups.ALL, threads)
        assert torch.equal(one, many)


@needs_kernel
def test_rows_with_nan_or_inf_are_found() -> None:
    block = reference.empty_block(6)
    assert kernel.first_bad(block.data_ptr(), 6) == -1 and kernel.bad_rows(block.data_ptr(), 6) == []
    block[2, FIELDS.index("num_neg_inf")] = 1
    block[4, FIELDS.index("num_nan")] = 7
    block[5, FIELDS.index("num_pos_inf")] = 1
    assert kernel.first_bad(block.data_ptr(), 6) == 2
    assert kernel.bad_rows(block.data_ptr(), 6) == [2, 4, 5]
    assert kernel.bad_rows(block.data_ptr(), 5) == [2, 4]


@needs_kernel
def test_reset_makes_rows_empty() -> None:
    block = torch.full((3, 16), 5.0, dtype=torch.float64)
    kernel.reset(block[1:].data_ptr(), 1)
    assert block[1].tolist() == list(EMPTY_ROW)
    assert block[0].tolist() == block[2].tolist() == [5.0] * 16


@needs_kernel
def test_wrong_arguments_raise() -> None:
    row = reference.empty_block(1)
    with pytest.raises(
        TypeError, match=r"observe\(address, numel, dtype_code, row_address, groups, num_threads\): got 2 arguments, expected 6"
    ):
        kernel.observe(1, 2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="observe: got address 0, numel 3, dtype code 0"):
        kernel.observe(0, 3, 0, row.data_ptr(), 3, 1)
    with pytest.raises(ValueError, match="a code below 14"):
        kernel.observe(row.data_ptr(), 3, 14, row.data_ptr(), 3, 1)
    with pytest.raises(TypeError):
        kernel.observe("x", 3, 0, row.data_ptr(), 3, 1)  # type: ignore[arg-type]
    assert kernel.choose_isa("avx1024") is False


def test_fields_of_the_row_are_in_the_order_of_the_kernel() -> None:
    expected = summary_of(torch.tensor([1.0, -2.0, 0.0, math.nan]))
    for backend in BACKENDS:
        s = observed(backend, torch.tensor([1.0, -2.0, 0.0, math.nan]))
        assert all(getattr(s, name) == getattr(expected, name) for name in EXACT)
