"""A comparison in portions, with its shortcut for sites of one row, is the comparison in one piece."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numscope.records.errors import UsageError
from numscope.records.observation import FIELDS, Observation
from numscope.runs import divergence
from numscope.runs.comparison import compare
from numscope.runs.diff_text import text
from numscope.sinks.parquet import ParquetSink
from tests.effort import examples

LAYERS = ("model.fc1", "model.fc2", "model.norm", "head")
TENSORS = ("activation", "output", "gradient", "weight[bias]", "wgrad", "dgrad")
NUMBERS = st.sampled_from((0.0, -0.0, 1.0, 1.5, -2.0, 1e-9, 3e5, float("inf"), float("nan")))
COUNTS = st.sampled_from((0, 0, 0, 1, 3))


@st.composite
def rows(draw: st.DrawFn) -> Observation:
    numel = draw(st.sampled_from((0, 1, 64, 1000)))
    extreme = draw(st.none() | st.sampled_from((0.5, 1.0, 2.0, 4.0)))
    sums = {name: draw(NUMBERS) for name in FIELDS if name.startswith("dev_")}
    fields: dict[str, Any] = {
        **sums, "numel": numel, "num_nan": draw(COUNTS), "num_pos_inf": draw(COUNTS), "num_neg_inf": 0, "num_zero": draw(COUNTS),
        "num_subnormal": 0, "min": None if extreme is None else -extreme, "max": extreme, "abs_min": extreme, "abs_max": extreme,
        "abs_sum": draw(st.sampled_from((0.0, 7.0, 40.0))), "dev_square_sum": draw(st.sampled_from((0.0, 9.0, 80.0, 81.0))),
        "center": draw(st.sampled_from((0.0, 0.0, 1.0))),
    }  # fmt: skip
    return Observation(
        step=draw(st.integers(0, 4)), layer=draw(st.sampled_from(LAYERS)), cls=draw(st.sampled_from(("Linear", "Norm"))),
        tensor=draw(st.sampled_from(TENSORS)), dtype=draw(st.sampled_from(("float32", "bfloat16"))), order=draw(st.integers(-1, 20)),
        rank=draw(st.sampled_from((0, 0, 1))), ranks=1, calls=1, fields=fields,
    )  # fmt: skip


RUNS = st.lists(rows(), min_size=1, max_size=8)


def write(folder: Path, seen: list[Observation], *, alone: bool) -> str:
    """A run of these rows; ``alone``: only the first of each site and step, else two at most, whose sums no order changes."""
    kept: dict[tuple[object, ...], list[Observation]] = {}
    for one in seen:
        kept.setdefault((one.step, one.layer, one.tensor), []).append(one)
    found = [one for all_of in kept.values() for one in all_of[: 1 if alone else 2]]
    for rank in {one.rank for one in found}:
        sink = ParquetSink(folder, rank, {})
        sink.write([one for one in found if one.rank == rank])
        sink.close()
    return str(folder)


def document(a: str, b: str, **options: Any) -> str:
    """All that a comparison gives, or why it gives nothing."""
    try:
        diff = compare(a, b, **options)
    except UsageError as error:
        return str(error)
    return json.dumps(diff.document()) + text(diff, 120)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(RUNS, RUNS, st.booleans(), st.sampled_from(({}, {"tolerance": 0.01}, {"stats": ("amax", "num_nan"), "top": 1}, {"noise": True})))
def test_portions_and_the_shortcut_change_nothing(
    monkeypatch: pytest.MonkeyPatch, one: list[Observation], other: list[Observation], alone: bool, options: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name, monkeypatch.context() as patch:
        a, b = (write(Path(name) / side, seen, alone=alone) for side, seen in (("a", one), ("b", other + one[::2])))
        if "noise" in options:
            options = {"noise": (write(Path(name) / "noise", one[::-1], alone=alone),)}
        asked = [(x, y, options) for x, y in ((a, b), (b, a))]
        asked.append((f"{a}:{one[0].step}", f"{b}:{one[0].step}", {**options, "noise": ()}))
        expected = [document(x, y, **more) for x, y, more in asked]
        patch.setattr(divergence, "PORTION", 1)
        assert [document(x, y, **more) for x, y, more in asked] == expected
        patch.setattr(divergence, "_ALONE", divergence._TOGETHER.format(where="true"))
        assert [document(x, y, **more) for x, y, more in asked] == expected


def test_the_first_divergence_is_found_in_a_later_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "PORTION", 2)
    fields = dict.fromkeys(FIELDS, 0.0) | {"numel": 8, "min": -1.0, "max": 1.0, "abs_min": 1.0, "abs_max": 1.0, "abs_sum": 8.0}
    fields["dev_square_sum"] = 8.0
    sides = []
    for side, far in (("a", 1.0), ("b", 2.0)):
        places = itertools.product(range(6), enumerate(LAYERS))
        sides.append(write(tmp_path / side, [
            Observation(step, layer, "Linear", "output", "float32", order, 0, 1, 1, fields | {"abs_max": far if step >= 4 else 1.0})
            for step, (order, layer) in places
        ], alone=True))  # fmt: skip
    diff = compare(*sides)
    assert diff.first is not None
    assert (diff.first.step_a, diff.first.layer_a) == (4, LAYERS[0])
    assert [(step.step_a, step.num_sites, step.num_diverging) for step in diff.steps] == [(s, 4, 4 if s >= 4 else 0) for s in range(6)]


def test_a_run_equals_its_copy_though_its_ranks_are_added_in_another_order(tmp_path: Path) -> None:
    fields = dict.fromkeys(FIELDS, 0.0) | {"numel": 8, "min": -1.0, "max": 1.0, "abs_min": 1.0, "abs_max": 1.0, "abs_sum": 8.0}
    sides = []
    for side, order in (("a", (0, 1, 2, 3)), ("b", (2, 0, 3, 1))):
        for number, rank in enumerate(order):
            square_sum = (1e16, 1.0, 3.0, 1.0)[rank]
            sink = ParquetSink(tmp_path / side, number, {})
            sink.write([Observation(0, "fc", "Linear", "output", "float32", 0, number, 1, 1, fields | {"dev_square_sum": square_sum})])
            sink.close()
        sides.append(str(tmp_path / side))
    diff = compare(*sides)
    assert "Equal: every stored number" in text(diff, 120)
    assert diff.document() == compare(sides[0], sides[0]).document() | {"b": diff.document()["b"]}
