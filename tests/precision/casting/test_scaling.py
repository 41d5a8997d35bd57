"""Scales of tensors, rows and blocks, against a model that goes through a matrix element by element."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.precision.casting import native_cast
from numscope.precision.casting.cast import Cast, cast, empty_cells, quantize_current
from numscope.precision.casting.scaling import PER_ROW, PER_TENSOR, How, Scaling, scale_of
from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS
from tests.precision import oracle

MX = Scaling("block", (1, 32), scale_format="e8m0")
MX_RCEIL = Scaling("block", (1, 32), scale_format="e8m0", e8m0_rounding="rceil")
NVFP4 = Scaling("block", (1, 16), scale_format="e4m3fn")
ROWS_128, SQUARES_128 = Scaling("block", (1, 128)), Scaling("block", (128, 128))
SMALL_SQUARES = Scaling("block", (4, 3), power_of_two=True)
WAYS = {
    "tensor": How(FORMATS["e4m3fn"], PER_TENSOR),
    "tensor e5m2 margin": How(FORMATS["e5m2"], PER_TENSOR, margin=2),
    "tensor power of two": How(FORMATS["e4m3fn"], Scaling("tensor", power_of_two=True)),
    "tensor int8": How(FORMATS["int8"], PER_TENSOR),
    "tensor fnuz": How(FORMATS["e4m3fnuz"], PER_TENSOR),
    "row": How(FORMATS["e4m3fn"], PER_ROW),
    "row fp6": How(FORMATS["e3m2fn"], PER_ROW, margin=-1),
    "1x128": How(FORMATS["e4m3fn"], ROWS_128),
    "128x128": How(FORMATS["e4m3fn"], SQUARES_128),
    "4x3": How(FORMATS["e4m3fn"], SMALL_SQUARES),
    "1x16": How(FORMATS["e5m2"], Scaling("block", (1, 16))),
    "mxfp8": How(FORMATS["e4m3fn"], MX),
    "mxfp8 e5m2": How(FORMATS["e5m2"], MX),
    "mxfp6": How(FORMATS["e2m3fn"], MX),
    "mxfp6 e3m2": How(FORMATS["e3m2fn"], MX, margin=1),
    "mxfp4": How(FORMATS["e2m1fn"], MX),
    "mxint8": How(FORMATS["int8"], MX),
    "mxfp8 rceil": How(FORMATS["e4m3fn"], MX_RCEIL),
    "mxfp8 e5m2 rceil": How(FORMATS["e5m2"], MX_RCEIL, margin=1),
    "mxfp4 rceil": How(FORMATS["e2m1fn"], MX_RCEIL),
    "mxint8 rceil": How(FORMATS["int8"], MX_RCEIL),
    "nvfp4": How(FORMATS["e2m1fn"], NVFP4),
}
by_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(params=["reference", "chosen"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Torch's operations, and whatever the cast chooses by itself."""
    if request.param == "reference":
        monkeypatch.setattr(native_cast, "cast_matrix", lambda *args: None)
    yield request.param


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers of many sizes, with whole blocks of zeros and of subnormals."""
    rng = np.random.default_rng(rows * 1000 + columns)
    x = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-4, 2, (rows, 1)) * 2.0 ** rng.integers(-8, 8, (1, columns))
    x[rng.random((rows, columns)) < 0.1] = 0.0
    if rows > 2:
        x[1] = 0.0
        x[2] *= 1e-40
    return torch.from_numpy(x).to(dtype)


def sides_of(way: How, columnwise: bool) -> tuple[int, int]:
    sides = {"tensor": (0, 0), "row": (1, 0), "block": way.scaling.block}[way.scaling.kind]
    return (sides[1], sides[0]) if columnwise else sides


def model_of(x: Tensor, way: How, columnwise: bool, scale: float | None = None) -> oracle.Model:
    return _model(x.to(torch.float32).numpy().tobytes(), tuple(x.shape), way, columnwise, scale)


@cache  # element by element takes long, and each backend is compared with it
def _model(x: bytes, shape: tuple[int, ...], way: How, columnwise: bool, scale: float | None) -> oracle.Model:
    scaling = way.scaling
    return oracle.cast_matrix(
        np.frombuffer(x, np.float32).reshape(shape),
        way.format.name,
        sides_of(way, columnwise),
        scaling.scale_format,
        way.margin,
        scaling.power_of_two,
        scale,
        e8m0_rounding=scaling.e8m0_rounding,
    )


def assert_is_model(made: Cast, cells: Tensor, model: oracle.Model, dtype: torch.dtype = torch.float32) -> None:
    assert made.values is not None
    expected = torch.from_numpy(model.values).to(dtype)
    assert torch.equal(made.values.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    assert np.array_equal(made.scale_inv.numpy().reshape(model.scale_inv.shape), model.scale_inv, equal_nan=True)
    assert cells[:3].tolist() == [model.values.size, model.num_underflow, model.num_overflow]
    assert cells[3].item() == pytest.approx(model.square_error, rel=1e-9)
    if np.isfinite(model.scale_inv).any():
        assert cells[5] == np.nanmax(model.scale_inv)


@by_way
@pytest.mark.parametrize("columnwise", [False, True])
def test_cast_is_the_models_element_by_element(backend: str, way: How, columnwise: bool) -> None:
    for shape in ((9, 70), (1, 1), (33, 5), (2, 129), (130, 3), (4, 32)):
        x, cells, amax = matrix(*shape), empty_cells(), torch.zeros(())
        made = cast(x, way, columnwise=columnwise, cells=cells, amax=amax)
        model = model_of(x, way, columnwise)
        assert_is_model(made, cells, model)
        assert amax == model.amax
        assert made.how is way and made.columnwise == columnwise


@by_way
@pytest.mark.parametrize("columnwise", [False, True])
def test_non_finite_numbers_do_what_is_defined_of_their_block(backend: str, way: How, columnwise: bool) -> None:
    x = matrix(9, 70)
    x[0, 0], x[4, 40], x[8, 69], x[5, 3] = math.nan, math.inf, -math.inf, math.nan
    cells, amax = empty_cells(), torch.zeros(())
    model = model_of(x, way, columnwise)
    assert_is_model(cast(x, way, columnwise=columnwise, cells=cells, amax=amax), cells, model)
    assert amax == model.amax == math.inf
    assert model.num_overflow or np.isnan(model.values).all()


@by_way
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_tensors_are_cast_as_their_float32_and_rounded_at_the_end(backend: str, way: How, dtype: torch.dtype) -> None:
    x, cells = matrix(9, 70, dtype), empty_cells()
    assert_is_model(cast(x, way, cells=cells), cells, model_of(x, way, False), dtype)


@by_way
def test_shape_is_kept_and_last_dimension_is_the_row(backend: str, way: How) -> None:
    x = matrix(6, 20)
    flat = cast(x, way, codes=True)
    assert flat.values is not None and flat.codes is not None
    for shape in ((2, 3, 20), (1, 6, 1, 20)):
        made = cast(x.reshape(shape), way, codes=True)
        assert made.values is not None and made.codes is not None
        assert made.values.shape == made.codes.shape == shape
        assert torch.equal(made.values.reshape(6, 20), flat.values)
        assert torch.equal(made.scale_inv, flat.scale_inv)
    row = cast(x[3], way)
    assert row.values is not None
    assert torch.equal(row.values, cast(x[3:4], way).values[0])  # type: ignore[index]


@by_way
def test_strides_do_not_matter(backend: str, way: How) -> None:
    x = matrix(10, 40)
    for view in (x.t(), x[::2, 1::3], x[:, :7], x[:1].expand(5, 40), torch.randn(3, 4, 5).permute(2, 0, 1)):
        mine, cells = cast(view, way, codes=True), empty_cells()
        whole = cast(view.contiguous(), way, codes=True, cells=cells)
        assert torch.equal(mine.values, whole.values)  # type: ignore[arg-type]
        assert torch.equal(mine.scale_inv, whole.scale_inv)


@by_way
@pytest.mark.parametrize("columnwise", [False, True])
def test_empty_tensors_and_single_numbers(backend: str, way: How, columnwise: bool) -> None:
    for shape in ((0,), (0, 4), (3, 0), (2, 0, 5)):
        x, cells, amax = torch.empty(shape), empty_cells(), torch.zeros(())
        made = cast(x, way, codes=True, cells=cells, amax=amax, columnwise=columnwise)
        assert made.values is not None and made.codes is not None
        assert made.values.shape == made.codes.shape == shape
        assert cells.tolist() == [0.0] * 6 and amax == 0
        rows, columns = math.prod(shape[:-1]), shape[-1]
        if way.scaling.kind == "block":
            down, across = sides_of(way, columnwise)
            assert made.scale_inv.shape == (-(-rows // down), -(-columns // across))
        else:
            by_row = (1, columns) if columnwise else (rows, 1)
            assert made.scale_inv.shape == (() if way.scaling.kind == "tensor" else by_row)
    number, cells = torch.tensor(3.0), empty_cells()
    made, model = cast(number, way, columnwise=columnwise, cells=cells), model_of(number.reshape(1, 1), way, columnwise)
    assert made.values is not None and made.values.shape == ()
    made.values = made.values.reshape(1, 1)
    assert_is_model(made, cells, model)


@by_way
def test_a_quantized_tensor_dequantizes_to_the_casts_values(backend: str, way: How) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = matrix(9, 70, dtype)
        x[4, 4] = math.nan
        quantized = quantize_current(x, way.format, way.scaling, way.margin)
        made = cast(x, way, codes=True)
        assert made.values is not None
        assert torch.equal(quantized.dequantize().nan_to_num(nan=7.0), made.values.nan_to_num(nan=7.0))
        assert quantized.dequantize().dtype is dtype
        assert quantized.dequantize(torch.float16).dtype is torch.float16


# ---- what the specifications say, by hand


def test_microscaling_scale_is_the_power_of_two_of_the_amax_less_the_formats(backend: str) -> None:
    x = torch.zeros(6, 32)
    x[0, 3], x[1, 5], x[2, 0], x[3, 31], x[4, 0] = 1.0, -1.99, 448.0, 2.0**-140, 3.0e38
    made = cast(x, WAYS["mxfp8"])
    # OCP Microscaling Formats 1.0, 6.3: 2^(floor(log2(amax)) - emax), emax of e4m3 is 8
    assert made.scale_inv.flatten().tolist() == [2.0**-8, 2.0**-8, 1.0, 2.0**-127, 2.0 ** (127 - 8), 2.0**-127]
    assert made.scale_inv.to(torch.float8_e8m0fnu).to(torch.float32).equal(made.scale_inv)


def test_microscaling_saturates_between_the_maximum_and_the_next_power_of_two(backend: str) -> None:
    x, cells = torch.full((1, 32), 500.0), empty_cells()
    made = cast(x, WAYS["mxfp8"], cells=cells)
    assert made.values is not None and (made.values == 448).all()
    assert cells[2] == 32


def test_nan_makes_its_microscaling_block_nan_and_no_other(backend: str) -> None:
    x = torch.ones(2, 64)
    x[1, 40] = math.nan
    made = cast(x, WAYS["mxfp8"])
    assert made.values is not None
    assert torch.isnan(made.scale_inv).tolist() == [[False, False], [False, True]]
    assert torch.isnan(made.values).sum() == 32 and torch.isnan(made.values[1, 32:]).all()


def test_nvfp4_has_a_scale_of_the_tensor_over_its_blocks_scales(backend: str) -> None:
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 16], x[0, 32] = 2688.0, 6.0, 6.0 * 2.0**-10  # 2688 = 6 × 448: the tensor's scale is 1
    x[0, 17] = 2.6
    made, cells = cast(x, WAYS["nvfp4"], codes=True), empty_cells()
    cast(x, WAYS["nvfp4"], cells=cells)
    assert made.values is not None and made.codes is not None
    # 2^-10 is halfway from zero to e4m3's smallest number: even is zero, and the block is zero with it
    assert made.scale_inv.tolist() == [[448.0, 1.0, 0.0, 0.0]]
    assert made.values[0, [0, 16, 17, 32]].tolist() == [2688.0, 6.0, 3.0, 0.0]
    assert made.codes[0, [0, 16, 17, 32]].tolist() == [7, 7, 5, 0]
    assert cells[1] == 1


def test_an_amax_of_zero_or_infinity_leaves_the_scale_at_one(backend: str) -> None:
    for x in (torch.zeros(3, 4), torch.tensor([[math.inf, 1.0]]), torch.tensor([[math.nan, 0.0]])):
        cells = empty_cells()
        assert cast(x, WAYS["tensor"], cells=cells).scale_inv == 1
        assert cells[4:].tolist() == [1.0, 1.0]
    assert cast(torch.tensor([[math.nan, 2.0]]), WAYS["tensor"]).scale_inv == 2 / 448  # nan is no amax


def test_scale_of_follows_its_rule() -> None:
    amax = torch.tensor([1.0, 448.0, 0.0, math.inf, math.nan, 1e-45, 3.4e38, 3.0])
    previous = torch.arange(1.0, 9.0)
    big = torch.finfo(torch.float32).max
    assert scale_of(amax, 448.0).tolist() == [448, 1, 1, 1, 1, big, np.float32(448) / np.float32(3.4e38), np.float32(448) / np.float32(3)]
    assert scale_of(amax, 448.0, previous=previous)[2:5].tolist() == [3, 4, 5]
    assert scale_of(amax, 448.0, margin=3)[:2].tolist() == [56, 0.125]
    assert scale_of(amax, 448.0, margin=-1)[:2].tolist() == [896, 2]
    assert scale_of(amax, 448.0, power_of_two=True).tolist() == [256, 1, 1, 1, 1, 2.0**127, 2.0**-120, 128]
    assert scale_of(torch.tensor(3.4e38), 6.0, margin=10) == 2.0**-126  # so that the inverse is finite


def test_scale_of_divides_once() -> None:
    amax = torch.linspace(0.1, 10, 1000)
    assert torch.equal(scale_of(amax, 448.0), torch.from_numpy(np.float32(448) / amax.numpy()))


def test_a_given_scale_is_used_as_it_is(backend: str) -> None:
    x = matrix(9, 70)
    for scale in (1.0, 0.3, torch.tensor(37.5), torch.tensor([2.0], dtype=torch.float64)):
        cells, way = empty_cells(), WAYS["tensor"].replace(delayed=True)
        assert_is_model(cast(x, way, scale=scale, cells=cells), cells, model_of(x, way, False, float(scale)))


# ---- where it must work


class NoSync(TorchDispatchMode):
    """Refuses what waits for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert "_local_scalar_dense" not in str(func) and "nonzero" not in str(func), func
        return func(*args, **(kwargs or {}))


@by_way
def test_reference_never_waits_for_a_device(way: How) -> None:
    x, cells, amax = matrix(9, 70), empty_cells(), torch.zeros(())
    with NoSync():
        for columnwise in (False, True):
            cast(x, way, codes=True, cells=cells, amax=amax, columnwise=columnwise)
    with pytest.raises(AssertionError), NoSync():
        cells[0].item()


@by_way
def test_fake_tensors_have_the_real_ones_shapes(way: How) -> None:
    real = cast(matrix(9, 70), way, codes=True)
    with FakeTensorMode():
        fake = cast(torch.empty(9, 70), way, codes=True, cells=empty_cells(), amax=torch.zeros(()))
    for mine, theirs in ((fake.values, real.values), (fake.codes, real.codes), (fake.scale_inv, real.scale_inv)):
        assert mine is not None and theirs is not None
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("name", ["1x128", "mxfp8", "nvfp4", "tensor int8"])
def test_compiled_graph_is_whole_and_gives_the_same(name: str) -> None:
    way = WAYS[name]

    def counted(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cells = empty_cells()
        made = cast(x, way, codes=True, cells=cells)
        assert made.values is not None
        return made.values * 2, made.scale_inv, cells

    x = matrix(9, 70)
    for mine, theirs in zip(torch.compile(counted, backend="aot_eager", fullgraph=True)(x), counted(x), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12, atol=0)


# ---- errors


def test_wrong_settings_say_what_is_right() -> None:
    with pytest.raises(UsageError, match=r"^Scaling: kind: got 'blok', expected one of tensor, row, block\. Did you mean 'block'\?$"):
        Scaling("blok")  # type: ignore[arg-type]
    for block in ((0, 1), (1,), [1, 32], (1.5, 2)):
        with pytest.raises(
            UsageError, match=r"^Scaling: block: got .*, expected two whole numbers from 1, rows by columns, such as \(1, 32\)\.$"
        ):
            Scaling("block", block)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^Scaling: scale_format: got 'e5m2', expected e8m0, e4m3fn or None \(float32\)\.$"):
        Scaling("block", (1, 32), scale_format="e5m2")
    with pytest.raises(UsageError, match=r"^Scaling: scale_format: got 'e8m0' for row, expected None: only blocks have one\.$"):
        Scaling("row", scale_format="e8m0")
    with pytest.raises(UsageError, match=r"^rounding: got 'up', expected one of nearest_even, stochastic\.$"):
        How(FORMATS["e4m3fn"], rounding="up")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^margin: got 1\.5, expected a whole number from -126 to 126\.$"):
        How(FORMATS["e4m3fn"], margin=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^saturate: got False for e2m1fn, expected True: it has neither infinity nor NaN"):
        How(FORMATS["e2m1fn"], saturate=False)
    with pytest.raises(UsageError, match=r"^delayed: got True for scaling of kind 'row', expected one scale for the whole tensor\.$"):
        How(FORMATS["e4m3fn"], PER_ROW, delayed=True)


def test_a_way_says_itself_in_a_few_words() -> None:
    assert WAYS["tensor"].text() == "e4m3fn current"
    assert WAYS["tensor"].replace(delayed=True, margin=1).text() == "e4m3fn delayed margin 1"
    assert WAYS["mxfp8"].text() == "e4m3fn 1x32 e8m0"
    assert WAYS["4x3"].text() == "e4m3fn 4x3 power-of-two"
    assert WAYS["row"].replace(rounding="stochastic", saturate=False).text() == "e4m3fn row stochastic not saturating"


def test_scale_format_has_one_name() -> None:
    assert Scaling("block", (1, 32), scale_format="float8_e8m0fnu") == MX
    assert Scaling("block", (1, 16), scale_format="e4m3") == NVFP4


def exponents_as_transformer_engine(amax: np.ndarray, top: float) -> np.ndarray:
    """Biased exponents of e8m0 by ``float_to_e8m0(amax * max_norm_rcp)`` of its ``ptx.cuh``."""
    with np.errstate(under="ignore", over="ignore"):
        bits = (amax * (np.float32(1) / np.float32(top))).astype(np.float32).view(np.uint32)
    exponent, mantissa = (bits >> 23).astype(int), bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 0xFE) & ~((exponent == 0) & (mantissa <= 0x400000))
    return exponent + up


def exponents_as_torchao(amax: np.ndarray, top: float) -> np.ndarray:
    """Biased exponents of e8m0 by its ``_to_mx_rceil``, with log2 in float64."""
    with np.errstate(under="ignore", divide="ignore"):
        descale = (amax / np.float32(top)).astype(np.float64)
        return (np.clip(np.ceil(np.log2(descale)), -127, 127) + 127).astype(int)


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2"])
def test_rceil_scales_are_those_of_transformer_engine_and_torchao(name: str) -> None:
    top = FORMATS[name].max
    rng = np.random.default_rng(0)
    limits = np.float32(top) * np.exp2(np.arange(-120, 111)).astype(np.float32)  # what a scale just holds, and the numbers around it
    near = [limits, np.nextafter(limits, np.float32(np.inf)), np.nextafter(limits, np.float32(0))]
    amax = np.concatenate([*near, rng.integers(1 << 23, 0x7F800000, 5000, dtype=np.uint32).view(np.float32)]).astype(np.float32)
    x = torch.zeros(len(amax), 32)
    x[:, 7] = torch.from_numpy(amax)
    made = cast(x, How(FORMATS[name], MX_RCEIL))
    exponents = np.log2(made.scale_inv.to(torch.float64).numpy().reshape(-1)).astype(int) + 127
    assert np.array_equal(exponents, exponents_as_torchao(amax, top))
    exact = amax * (np.float32(1) / np.float32(top)) >= np.finfo(np.float32).tiny  # their product is rounded once more below
    rounded_alike = amax[exact] / np.float32(top) == amax[exact] * (np.float32(1) / np.float32(top))
    assert np.array_equal(exponents[exact][rounded_alike], exponents_as_transformer_engine(amax, top)[exact][rounded_alike])
    assert rounded_alike.mean() > 0.4


def test_nothing_saturates_under_rceil_and_the_largest_elements_do_under_floor() -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    errors = {}
    for scaling in (MX, MX_RCEIL):
        cells = empty_cells()
        cast(x, How(FORMATS["e4m3fn"], scaling), cells=cells)
        errors[scaling.e8m0_rounding] = cells[2].item(), cells[3].item() / x.numel()
    assert errors["rceil"][0] == 0 < errors["floor"][0]
    assert errors["floor"][1] > 1.1 * errors["rceil"][1]


def test_only_e8m0_scales_are_rounded_up() -> None:
    with pytest.raises(
        UsageError, match=r"^Scaling: e8m0_rounding: got 'rceil' for float32 scales, expected floor: others are not e8m0\.$"
    ):
        Scaling("block", (1, 128), e8m0_rounding="rceil")
    with pytest.raises(UsageError, match=r"^Scaling: e8m0_rounding: got 'up', expected one of floor, rceil"):
        Scaling("block", (1, 32), scale_format="e8m0", e8m0_rounding="up")  # type: ignore[arg-type]
    assert How(FORMATS["e4m3fn"], MX_RCEIL).text() == "e4m3fn 1x32 e8m0 rceil"
