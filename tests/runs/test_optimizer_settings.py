"""Settings of optimizers that two runs recorded: the first step at which each is not the same."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from numscope.runs.folder import find_run
from numscope.runs.optimizer_settings import differing_settings
from tests.runs.tensors import Place, write


def recorded(folder: Path, rates: dict[int, list[float]], **others: list[float]) -> Path:
    seen = {Place(step, "loss", "loss", "loss"): torch.tensor(1.0) for step in rates}
    write(folder, seen, settings={step: {"optimizer_lr": rate, **others} for step, rate in rates.items()})
    return folder


def told(a: Path, b: Path) -> list[tuple[str, str, str]]:
    return [*differing_settings(find_run(a), find_run(b))]


def test_each_setting_is_told_once_at_the_first_step_of_both_at_which_it_differs(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", {0: [0.1], 1: [0.1], 3: [0.05], 4: [0.01]}, optimizer_weight_decay=[0.0])
    b = recorded(tmp_path / "b", {0: [0.1], 2: [7.0], 3: [0.1], 4: [0.1]}, optimizer_weight_decay=[0.1])
    assert sorted(told(a, b)) == [("optimizer lr at step 3", "0.05", "0.1"), ("optimizer weight_decay at step 0", "0", "0.1")]
    assert told(a, a) == []
    rates = [("optimizer lr at step 3", "0.05", "0.1"), ("optimizer lr at step 4", "0.01", "0.1")]
    assert [*differing_settings(find_run(a), find_run(b), 4)][:2] == rates
    assert [*differing_settings(find_run(a), find_run(b), 3)][:1] == rates[:1]


def test_groups_that_lack_a_setting_and_groups_that_are_more(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", {0: [0.1, math.nan]})
    b = recorded(tmp_path / "b", {0: [0.1, math.nan, math.inf]})
    assert told(a, b) == [("optimizer lr at step 0", "0.1, none", "0.1, none, inf")]
    assert told(b, b) == []


def test_runs_without_them_have_no_difference(tmp_path: Path) -> None:
    write(tmp_path / "old", {Place(0, "a", "A", "output"): torch.ones(2)})
    assert told(tmp_path / "old", recorded(tmp_path / "new", {0: [0.1]})) == []
