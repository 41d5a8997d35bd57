"""Statistics of groups equal one pass over the joined tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from numscope.precision.gemm.counting import cast_on_paper
from numscope.records.errors import UsageError
from numscope.records.observation import FIELDS
from numscope.runs.folder import find_run
from numscope.runs.grouping import MergedGroup, available, group, lacking
from numscope.sinks.parquet import ParquetSink
from numscope.summary.dispatch import observe_extras, summarize
from numscope.summary.extras import EXPONENTS, Layout, blockwise
from numscope.summary.operand_casts import PAPER_EXTRAS
from tests.effort import examples
from tests.runs.tensors import Place, joined, observe, two_layers, write

EXACT = FIELDS[:10]  # counts and extrema
MOMENTS = ("mean", "std", "sample_std", "rms", "l1_norm", "l2_norm", "skewness", "kurtosis")


@pytest.fixture(scope="module")
def seen() -> dict[Place, Tensor]:
    return two_layers()


@pytest.fixture(scope="module")
def folder(seen: dict[Place, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    write(made, seen, (EXPONENTS, PAPER_EXTRAS["bf16"]))
    return made


def agrees(one: MergedGroup, tensors: list[Tensor]) -> None:
    """The group's summary and values are those of all elements together."""
    whole = joined(tensors)
    expected = summarize(whole)
    for name in EXACT:
        if name != "num_subnormal":  # of the tensor's own dtype, which joining has changed
            assert getattr(one.summary, name) == getattr(expected, name), name
    finite = whole[torch.isfinite(whole)]
    mean, std = finite.mean().item(), finite.std(correction=0).item()
    z = (finite - mean) / std
    oracle = {
        "mean": mean,
        "std": std,
        "sample_std": finite.std().item(),
        "rms": finite.square().mean().sqrt().item(),
        "l1_norm": finite.abs().sum().item(),
        "l2_norm": finite.square().sum().sqrt().item(),
        "skewness": (z**3).mean().item(),
        "kurtosis": (z**4).mean().item(),
    }
    for name in set(oracle) & set(one.values):
        value = one.values[name]
        assert isinstance(value, float)
        scale = oracle["rms"] if name == "mean" else 1.0 if name == "skewness" else abs(oracle[name])
        assert abs(value - oracle[name]) <= 1e-12 * max(scale, abs(oracle[name])), name


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("name", lambda p: (p.layer, p.tensor)),
        ("layer", lambda p: (p.layer[: len("decoder.layers.0")], p.tensor)),
        ("type", lambda p: (p.cls, p.tensor)),
        ("tensor", lambda p: (p.tensor, p.tensor)),
        ("all", lambda p: ("all", "")),
        (r"(linear_qkv|fc1)|fc2", lambda p: (p.layer.rsplit(".", 1)[1], p.tensor)),
        (r"layers\.(\d+)\.(mlp)", lambda p: (f"{p.layer.split('.')[2]}.mlp", p.tensor) if ".mlp." in p.layer else None),
        (r"attention", lambda p: ("attention", p.tensor) if "attention" in p.layer else None),
    ],
)
def test_groups_are_what_one_pass_over_their_tensors_gives(
    folder: Path, seen: dict[Place, Tensor], by: str, key: Callable[[Place], tuple[str, str] | None]
) -> None:
    expected: dict[tuple[str, str], list[Tensor]] = {}
    for place, value in seen.items():
        if (name := key(place)) is not None:
            expected.setdefault(name, []).append(value)
    groups = group(find_run(folder), by, MOMENTS)
    assert {(one.name, one.tensor) for one in groups} == set(expected)
    assert len(groups) == len(expected)
    for one in groups:
        assert one.num_rows == len(expected[one.name, one.tensor])
        agrees(one, expected[one.name, one.tensor])


def test_steps_are_chosen_and_merged_in_periods(folder: Path, seen: dict[Place, Tensor]) -> None:
    groups = group(find_run(folder), "tensor", MOMENTS, steps=(1, None), every_steps=2)
    assert [(one.tensor, one.first_step, one.last_step) for one in groups] == [
        (tensor, *steps) for steps in ((1, 2), (3, 3)) for tensor in ("activation", "weight", "gradient")
    ]
    for one in groups:
        agrees(one, [v for p, v in seen.items() if p.tensor == one.tensor and one.first_step <= p.step <= one.last_step])


def test_each_step_by_itself(folder: Path) -> None:
    groups = group(find_run(folder), "all", every_steps=1, steps=(None, 2))
    assert [(one.first_step, one.last_step) for one in groups] == [(0, 0), (1, 1), (2, 2)]


def test_histograms_add_bin_by_bin_and_casts_add_up(folder: Path, seen: dict[Place, Tensor]) -> None:
    (one,) = group(find_run(folder), "all", ["exponent_histogram", "bf16_mse", "bf16_underflows_pct"])
    layout = Layout((EXPONENTS, PAPER_EXTRAS["bf16"]))
    cells = torch.zeros(layout.width, dtype=torch.float64)
    for value in seen.values():
        observe_extras(value, cells, layout)
        cast_on_paper(value, "activation", cells, layout)
    named = layout.named(cells.tolist())
    assert one.values["exponent_histogram"] == named["exponents"]
    mse = named["bf16_square_error"] / one.summary.numel  # type: ignore[operator]
    assert one.values["bf16_mse"] == pytest.approx(mse, rel=1e-12)
    assert one.values["bf16_underflows_pct"] == 100 * named["bf16_num_underflow"] / one.summary.numel  # type: ignore[operator]


def test_block_ranges_merge_to_the_widest(tmp_path: Path) -> None:
    narrow, wide = torch.ones(4, 4), torch.tensor([[1.0, 1024.0]])
    write(tmp_path, {Place(0, "a", "Linear", "weight"): wide, Place(0, "b", "Linear", "weight"): narrow}, (blockwise(),))
    (one,) = group(find_run(tmp_path), "all", ["max_blockwise_dynamic_range"])
    assert one.values["max_blockwise_dynamic_range"] == 10.0


def test_ranks_that_logged_each_their_own_merge(tmp_path: Path) -> None:
    parts = {Place(0, "a", "Linear", "wgrad", rank): torch.randn(50, generator=torch.Generator().manual_seed(rank)) for rank in range(3)}
    write(tmp_path, parts)
    (one,) = group(find_run(tmp_path), "layer", MOMENTS)
    agrees(one, list(parts.values()))


def test_rows_of_single_ranks_beside_the_merged_one_do_not_count_twice(tmp_path: Path) -> None:
    parts = {Place(0, "a", "Linear", "wgrad", rank): torch.randn(50, generator=torch.Generator().manual_seed(rank)) for rank in range(3)}
    write(tmp_path, parts)
    both = joined(parts.values())
    sink = ParquetSink(tmp_path, 0, {})
    sink.write([observe(Place(0, "a", "Linear", "wgrad"), 0, both)._replace(ranks=3)])
    sink.close()
    (one,) = group(find_run(tmp_path), "layer", MOMENTS)
    assert one.num_rows == 1
    agrees(one, [both])


def test_weights_of_other_names_belong_to_their_kind(tmp_path: Path) -> None:
    parts = {Place(0, "a", "Attention", name): torch.randn(9) for name in ("weight", "weight[in_proj_weight]")}
    write(tmp_path, parts)
    (one,) = group(find_run(tmp_path), "layer")
    assert (one.tensor, one.num_rows) == ("weight", 2)


def test_statistic_whose_columns_some_rows_lack_is_absent_not_wrong(tmp_path: Path) -> None:
    write(tmp_path, {Place(0, "a", "Linear", "weight"): torch.randn(9)}, (EXPONENTS, PAPER_EXTRAS["e4m3"]))
    write(tmp_path, {Place(0, "b", "Linear", "weight", rank=1): torch.randn(9)})
    names = ["mean", "exponent_histogram", "e4m3_mse"]
    (both,) = group(find_run(tmp_path), "all", names)
    assert [both.values[name] is None for name in names] == [False, True, True]
    a, b = group(find_run(tmp_path), "layer", names)
    assert [a.values[name] is None for name in names] == [False, False, False]
    assert [b.values[name] is None for name in names] == [False, True, True]
    assert lacking([both, a, b]) == ["exponent_histogram", "e4m3_mse"]


def test_moments_that_one_part_left_out_are_absent_not_wrong(tmp_path: Path) -> None:
    from numscope.sinks.parquet import ParquetSink
    from numscope.summary.state import Summary
    from tests.sinks.seen import observation

    sink = ParquetSink(tmp_path, 0, {})
    only_health = Summary(2, min=1.0, max=2.0, abs_min=1.0, abs_max=2.0)
    sink.write([observation(0, "a", summary=only_health), observation(0, "b", summary=summarize(torch.ones(3)))])
    sink.close()
    (one,) = group(find_run(tmp_path), "all", ["max", "mean", "l1_norm"])
    assert one.values == {"max": 2.0, "mean": None, "l1_norm": None}


def test_overflowed_sums_are_absent_and_what_needs_none_is_there(tmp_path: Path) -> None:
    huge = torch.tensor([1e308, 1e308, -3.0], dtype=torch.float64)
    write(tmp_path, {Place(0, "a", "Linear", "weight"): huge, Place(1, "a", "Linear", "weight"): torch.ones(2)})
    (one,) = group(find_run(tmp_path), "all", ["max", "min", "std", "l2_norm", "num_nan"])
    assert one.values == {"max": 1e308, "min": -3.0, "std": None, "l2_norm": None, "num_nan": 0}


def test_available_names_what_the_columns_give(folder: Path) -> None:
    names = available(find_run(folder))
    assert {"max", "kurtosis", "exponent_histogram", "bf16_mse"} <= set(names)
    assert "e4m3_mse" not in names


@pytest.mark.parametrize(
    ("by", "stats", "message"),
    [
        ("layerz", ["max"], r"^by: got 'layerz', expected one of layer, .*\. Did you mean 'layer"),
        ("typ", ["max"], r"^by: got 'typ', expected one of layer, name, type, tensor, all, or a regex found .* Did you mean 'type'\?$"),
        (".*(fc1|fc2", ["max"], r"as a regex: missing \), unterminated subpattern at position 2\.$"),
        ("layer", ["l2norm"], r"^statistic: got 'l2norm', expected one of .* Did you mean 'l2_norm'\?$"),
    ],
)
def test_wrong_words_are_usage_errors(folder: Path, by: str, stats: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        group(find_run(folder), by, stats)


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.lists(st.floats(width=32), max_size=8), min_size=1, max_size=12))
def test_any_split_merges_to_the_whole(tmp_path_factory: pytest.TempPathFactory, parts: list[list[float]]) -> None:
    folder = tmp_path_factory.mktemp("split")
    tensors = [torch.tensor(part, dtype=torch.float64) for part in parts]
    write(folder, {Place(step, "a", "Linear", "weight"): value for step, value in enumerate(tensors)}, part_rows=3)
    (one,) = group(find_run(folder), "all")
    whole = summarize(torch.cat(tensors))
    assert [getattr(one.summary, name) for name in EXACT] == [getattr(whole, name) for name in EXACT]
    magnitude = whole.abs_sum
    assert math.isclose(one.summary.sum, whole.sum, rel_tol=0, abs_tol=1e-15 * (magnitude or 1) * max(len(parts), 1))
