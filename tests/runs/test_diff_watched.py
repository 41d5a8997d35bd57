"""Runs that numscope itself wrote, compared."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import numscope
from numscope.runs.comparison import compare
from tests.runs.traced import Tiny, batches

ALL = ["activation", "output", "gradient", "dgrad", "weight", "wgrad"]
SITES = 59  # ten layers; the first one's input needs no gradient, so it has no dgrad
CONFIG = {
    "everything": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*"},
        "statistics": {"enabled": True, "stats": ["mean", "std", "l2_norm"], "tensors": ALL},
    }
}
PLANTED = "layers.2.down_proj"


def watched(folder: Path, *, steps: int = 3, parts: int = 1, perturbed: bool = False, wrap: bool = False, dropout: float = 0.0) -> str:
    torch.manual_seed(0)
    model = Tiny(dropout=dropout)
    if perturbed:
        with torch.no_grad():
            model.get_submodule(PLANTED).weight[3, 5] += 0.5
    outer = nn.Sequential(model) if wrap else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with numscope.watch(outer, config=CONFIG, on_nonfinite=None, log_dir=str(folder)):
        for x, y in batches(steps):
            optimizer.zero_grad()
            for part, target in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (nn.functional.cross_entropy(outer(part), target) / parts).backward()
            optimizer.step()
    return str(folder)


def test_watched_runs_of_the_same_training_are_equal(tmp_path: Path) -> None:
    diff = compare(watched(tmp_path / "a"), watched(tmp_path / "b"))
    assert (diff.diverged, diff.first_unequal) == (False, None)
    assert [(s.step_a, s.num_sites) for s in diff.steps] == [(step, SITES) for step in range(3)]


def test_a_planted_weight_is_found_in_watched_runs_of_other_nesting(tmp_path: Path) -> None:
    diff = compare(watched(tmp_path / "a"), watched(tmp_path / "b", perturbed=True, wrap=True))
    assert diff.first is not None and diff.origin is not None
    assert (diff.first.step_a, diff.first.layer_a, diff.first.layer_b, diff.first.tensor) == (0, PLANTED, f"0.{PLANTED}", "output")
    assert (diff.origin.verdict, diff.origin.weights, diff.origin.after) == ("weight", (PLANTED,), f"{PLANTED} activation")
    assert diff.modules[0].layer_a == PLANTED


def test_micro_batches_change_nothing_but_rounding(tmp_path: Path) -> None:
    diff = compare(watched(tmp_path / "a"), watched(tmp_path / "b", parts=4))
    assert not diff.diverged
    assert diff.factors == ()
    assert diff.first_unequal is not None


def test_two_steps_of_a_watched_run(tmp_path: Path) -> None:
    run = watched(tmp_path / "a", steps=6)
    diff = compare(f"{run}:4", f"{run}:5")
    assert (diff.calibration, diff.diverged, diff.steps[0].num_sites) == ("earlier steps", False, SITES)
