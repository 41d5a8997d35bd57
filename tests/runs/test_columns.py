"""The views of a run and their columns: what is in which, and what is told of each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from numscope.records.errors import UsageError
from numscope.runs.columns import columns
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.summary.extras import DYNAMICS, EXPONENTS
from tests.runs.tensors import Place, write

LOSSES = {0: 2.0, 1: math.inf, 2: 1.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    seen = {Place(step, "fc", "Linear", "weight"): torch.ones(3) * step for step in range(4)}
    seen |= {Place(step, "loss", "loss", "loss", rank): torch.tensor(loss + rank) for step, loss in LOSSES.items() for rank in (0, 1)}
    write(made, seen, (EXPONENTS, DYNAMICS), settings={2: {"optimizer_lr": [0.125, math.nan, 0.0625], "optimizer_eps": [0.0] * 3}})
    return made


def test_each_steps_row_has_the_loss_and_the_learning_rate(folder: Path) -> None:
    found = ask(find_run(folder), "SELECT step, loss, learning_rate FROM steps ORDER BY step").rows
    assert found == [(0, 2.5, None), (1, math.inf, None), (2, 2.0, 0.125), (3, None, None)]
    joined = "SELECT step, loss, abs_max FROM stats JOIN steps USING (step) WHERE layer = 'fc' AND step > 1 ORDER BY step"
    assert ask(find_run(folder), joined).rows == [(2, 2.0, 2.0), (3, None, 3.0)]


def test_every_column_of_every_view_has_a_meaning(folder: Path) -> None:
    found = columns(find_run(folder)).rows
    of = {view: [name for told, name, *_ in found if told == view] for view in ("stats", "steps", "raw")}
    for view, names in of.items():
        there = ask(find_run(folder), f"SELECT * FROM {view}").columns
        assert names == [name for name in there if view != "raw" or name not in of["stats"]]
    assert {"mean", "num_nan", "exponent_histogram", "sum", "cls"} <= set(of["stats"])
    assert {"center", "dev_sum", "exponents", "num_updates", "optimizer_eps"} <= set(of["raw"])
    assert all(meaning and "own" not in meaning for *_, meaning in found)
    units = {name: unit for _, name, unit, _ in found}
    assert (units["num_nan"], units["zero_pct"], units["l2_norm"], units["time"]) == ("elements", "%", "the tensor's", "UTC")


def test_a_column_of_sums_is_found_in_its_view(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"^SQL: got the column 'dev_sum' of statistics' sums, which is in the view raw\.$"):
        ask(find_run(folder), "SELECT dev_sum FROM stats")
    assert ask(find_run(folder), "SELECT count(dev_sum) FROM raw").rows == [(10,)]
