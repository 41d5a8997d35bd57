"""Sketches: their definition, native and with torch's operations, against Python's own integers; how parts add up; what they bound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from numscope.parity.likeness import LEAST, MOST, ROUNDING, likeness, norm_of
from numscope.records.fingerprint import LOW, Sketch, merge_all
from numscope.summary import native
from numscope.summary.checksum import checksum
from numscope.summary.sketch import Piece, part_of, sketch, sketches
from numscope.summary.unwrap import Unsummarizable

MASK = (1 << 32) - 1
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64]
BACKENDS = ["torch"]
if native.module is not None:
    BEST = native.module.isa()
    BACKENDS += [isa for isa in ("baseline", "avx2", "avx512") if native.module.choose_isa(isa)]
    native.module.choose_isa(BEST)
again = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "torch":
        monkeypatch.setattr(native, "module", None)
        yield request.param
        return
    kernel = native.module
    assert kernel is not None and kernel.choose_isa(request.param)
    yield request.param
    kernel.choose_isa(BEST)


each_backend = pytest.mark.usefixtures("backend")


def mixed(x: int) -> int:
    x = (x ^ x >> 16) * 0x21F0AAAD & MASK
    x = (x ^ x >> 15) * 0x735A2D97 & MASK
    return x ^ x >> 15


def hashed(index: int) -> int:
    return mixed((index & MASK) ^ mixed((index >> 32) + 0x9E3779B9 & MASK))


def by_hand(values: list[float], first: int) -> list[float]:
    """The definition, element by element."""
    sums = [0.0] * 32
    for i, value in enumerate(values, first):
        for t in range(4):
            slot = i % 8 ^ hashed(i // 8 * 8) >> 3 * t & 7
            sums[8 * t + slot] += -value if hashed(i) >> (31 - t) & 1 else value
    return sums


def numbers(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    return torch.view_as_complex(drawn).to(dtype) if dtype.is_complex else drawn[..., 0].to(dtype)


def near(a: Sketch, b: Sketch, within: float = ROUNDING) -> bool:
    exact = (a.numel, a.num_nonfinite, a.checksum) == (b.numel, b.num_nonfinite, b.checksum)
    return exact and max(abs(x - y) for x, y in zip(a.sums, b.sums, strict=True)) <= within * max(a.norm, 1e-300)


@each_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("first", [0, 3, 2**32 - 20, 2**40 + 5])
def test_a_sketch_is_what_its_definition_says(dtype: torch.dtype, first: int) -> None:
    tensor = numbers(dtype, 61)
    told = sketch(tensor, first)
    flat, at = (torch.view_as_real(tensor).flatten(), 2 * first) if dtype.is_complex else (tensor, first)
    values = flat.double().tolist()
    squares = sum(x * x for x in values)
    assert near(Sketch(len(values), 0, checksum(tensor, at), sum(values), squares, tuple(by_hand(values, at))), told)
    assert told.sum == pytest.approx(sum(values), abs=1e-9) and told.square_sum == pytest.approx(squares)


@each_backend
@pytest.mark.parametrize("dtype", [one for one in DTYPES if not one.is_complex], ids=str)
@pytest.mark.parametrize("first", [0, 5, 2**32 - 700])
def test_rounded_bits_are_those_of_torchs_conversion(dtype: torch.dtype, first: int) -> None:
    if dtype.itemsize == 4 and dtype.is_floating_point:  # each exponent, and fractions around all that decides a rounding
        ends = torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x17FFF, 0x18000, 0x7FFFFF])
        tensor = (torch.arange(512)[:, None] << 23 | ends).to(torch.int32).flatten().view(dtype)
    else:
        tensor = numbers(torch.float64, 3000).mul(torch.logspace(-12, 8, 3000, dtype=torch.float64)).to(dtype)
    tensor = torch.where(tensor.isnan(), torch.zeros_like(tensor), tensor)  # whose forms are torch's own affair
    [told] = sketches([Piece.at(tensor, (first + tensor.numel(),), (first,))], rounds=True)
    expected = tuple(checksum(tensor.to(getattr(torch, low)), first) for low in LOW) if dtype.is_floating_point else (0, 0)
    assert told.rounded == expected and sketch(tensor, first).rounded == (0, 0)


@each_backend
def test_a_nan_is_rounded_to_one_form() -> None:
    bits = torch.tensor([0x7F800001, 0x7FC00000, 0x7FFFFFFF, -0x7FFFFF, -1, 0x7F800000, -0x800000], dtype=torch.int32)
    [told] = sketches([Piece.at(bits.view(torch.float32), (7,), (0,))], rounds=True)
    of_nan = ((0x7FC0, 0x7F80, -0x80), (0x7E00, 0x7C00, -0x400))
    assert told.rounded == tuple(checksum(torch.tensor([nan] * 5 + [inf, low], dtype=torch.int16)) for nan, inf, low in of_nan)


@each_backend
def test_elements_that_are_not_finite_are_counted_and_left_out() -> None:
    tensor = numbers(torch.float32, 1000)
    without = tensor.clone()
    for i, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        tensor[301 * i], without[301 * i] = bad, 0.0
    told = sketch(tensor)
    assert told.num_nonfinite == 3
    assert told.sums == sketch(without).sums


@each_backend
@again
@given(st.data())
def test_parts_add_up_to_the_whole(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    tensor = numbers(torch.float32, *shape, seed=data.draw(st.integers(0, 9)))
    cuts = [sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
    parts = []
    for block in itertools.product(*(list(itertools.pairwise(cut)) for cut in cuts)):
        piece = tensor[tuple(slice(a, b) for a, b in block)]
        parts.append(Piece.at(piece, shape, [a for a, _ in block]))
    assert near(sketch(tensor), merge_all(sketches(parts)))


def test_a_large_tensor_has_one_sketch_whatever_the_threads_and_strides() -> None:
    tensor = numbers(torch.bfloat16, 513, 1025)
    told = sketch(tensor)
    assert near(told, sketch(tensor.t().contiguous().t()), 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert sketch(tensor) == told
    finally:
        torch.set_num_threads(before)


PLACEMENTS = [
    (Shard(0), Shard(0)),
    (Shard(0), Shard(1)),
    (Shard(1), Replicate()),
    (Replicate(), Shard(-1)),
    (_StridedShard(0, split_factor=3), Shard(0)),
    (Shard(2), Shard(1)),
]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Any]:
    """A mesh of 2 × 3 as each of its ranks sees it, one after the other."""

    def at(rank: int) -> DeviceMesh:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("fake", rank=rank, world_size=6, store=FakeStore())
        return torch.distributed.device_mesh.init_device_mesh("cpu", (2, 3))

    yield at
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("placements", PLACEMENTS, ids=str)
def test_shards_of_any_placement_add_up_to_the_whole(placements: Any, ranks: Any) -> None:
    whole = numbers(torch.float32, 7, 5, 11)
    places: dict[str, Sketch] = {}
    for rank in range(6):
        mesh = ranks(rank)
        local = whole
        at = mesh.get_coordinate()
        for axis, placement in enumerate(placements):
            if not placement.is_replicate():
                local = placement._split_tensor(local, mesh.size(axis), with_padding=False)[0][at[axis]]
        tensor = DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())
        part = part_of(tensor)
        assert torch.equal(part.tensor, local)
        places[part.place] = sketches([part])[0]
    assert near(sketch(whole), merge_all(places.values()))


def test_summands_have_no_sketch(ranks: Any) -> None:
    tensor = DTensor.from_local(torch.ones(3), ranks(0), (Partial(), Replicate()), run_check=False)
    with pytest.raises(Unsummarizable, match="still to be summed over ranks"):
        part_of(tensor)


KINDS = ["normal", "one column", "constant", "two elements", "few large"]


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_ninety_nine_times_of_a_hundred(kind: str) -> None:
    draw, trials, numel = np.random.default_rng(KINDS.index(kind)), 1000, 1024
    missed = dict.fromkeys(("difference", "factor", "cosine"), 0)
    for trial in range(trials):
        x = draw.standard_normal(numel)
        if kind == "one column":
            d = np.where(np.arange(numel) % 64 == 3, draw.standard_normal(numel), 0)
        elif kind == "two elements":
            d = np.zeros(numel)
            d[draw.choice(numel, 2, replace=False)] = 1
        else:
            d = {"normal": draw.standard_normal(numel), "constant": np.ones(numel), "few large": draw.standard_normal(numel) ** 7}[kind]
        d *= 10.0 ** draw.uniform(-3, 0.5) * np.linalg.norm(x) / np.linalg.norm(d)
        y = x * draw.choice([-1.0, 0.5, 1.0, 4.0]) + d
        told = likeness(sketch(torch.from_numpy(x), trial << 20), sketch(torch.from_numpy(y), trial << 20))
        difference, factor = np.linalg.norm(y - x) / np.linalg.norm(x), float(x @ y / (x @ x))
        cosine = float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
        for name, truth, (low, high) in (
            ("difference", difference, told.difference_bounds),
            ("factor", factor, (told.factor - told.factor_error, told.factor + told.factor_error)),
            ("cosine", cosine, told.cosine_bounds),
        ):
            missed[name] += not low - 1e-12 <= truth <= high + 1e-12
    # Of 1,000 trials that miss once in a hundred, 22 or more miss once in 2,000 runs: the seeds are fixed.
    assert all(number <= 21 for number in missed.values()), missed


def test_the_estimate_of_a_square_has_the_stated_mean_and_variance() -> None:
    x = torch.zeros(4096, dtype=torch.float64)
    x[::7] = 1.0
    squares = np.array([norm_of(sketch(x, 4096 * i + i).sums) ** 2 for i in range(4000)]) / float(x @ x)
    assert abs(squares.mean() - 1) < 4 * squares.std() / 4000**0.5
    assert squares.var() <= 2 / 32 * 1.15
    assert LEAST < 1 < MOST
