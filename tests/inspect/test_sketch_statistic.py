"""The statistic ``sketch``: a run's folder has a fingerprint's sums, loggers get nothing, and ``numscope diff`` tells the factor."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.parity.likeness import ROUNDING, norm_of
from numscope.runs import comparison, diff_text
from numscope.runs.folder import find_run
from numscope.runs.query import reading
from numscope.summary.sketch import Piece, add_sums, sketches
from tests.distributed.ranks import RankPool
from tests.distributed.test_inspector_ranks import build_fsdp, config
from tests.distributed.test_update_ranks import whole
from tests.distributed.wholes import MLP


class Kept:
    def __init__(self) -> None:
        self.names: set[str] = set()

    def log_scalar(self, name: str, value: float, iteration: int) -> None:
        self.names.add(name)


def trained(folder: Path | None, factor: float) -> tuple[nn.Module, set[str]]:
    torch.manual_seed(0)
    model, kept = nn.Linear(8, 4, bias=False), Kept()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    what: dict[str, Any] = {"config": config(("weight", "wgrad"), stats=["sketch", "rms"]), "log_dir": folder, "loggers": [kept]}
    with numscope.watch(model, on_nonfinite=None, **what) if folder is not None else contextlib.nullcontext():
        for step in range(3):
            for _ in range(2):  # micro-batches
                (model(torch.randn(5, 8)).square().sum() * (factor if step == 1 else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model, kept.names


def test_the_folder_has_the_sums_of_a_fingerprint_and_loggers_have_none(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    model, names = trained(tmp_path / "a", 1.0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained(None, 1.0)[0].parameters(), strict=True))
    assert names and not any("sketch" in name for name in names)
    asked = "SELECT step, tensor, sketch FROM stats WHERE sketch IS NOT NULL ORDER BY step, tensor"
    rows = reading(find_run(str(tmp_path / "a")), lambda con: con.execute(asked).fetchall())
    assert [row[:2] for row in rows] == [(step, tensor) for step in range(3) for tensor in ("weight", "wgrad")]
    torch.manual_seed(0)
    print_ = numscope.fingerprint(nn.Linear(8, 4, bias=False)).tensors["weight"].whole
    assert print_ is not None and tuple(rows[0][2]) == print_.sums


@pytest.mark.parametrize(("factor", "told"), [(2.0, "factor 2 ±"), (-1.0, "factor -1 ±")])
def test_two_runs_are_compared_by_them(factor: float, told: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    for name, by in (("a", 1.0), ("b", factor)):
        trained(tmp_path / name, by)
    found = comparison.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert found.first is not None and (found.first.step_a, found.first.tensor) == (1, "wgrad")
    assert told in found.likeness and f"Sketches: {found.likeness}." in " ".join(diff_text.text(found, 200).split("\n")).replace("  ", " ")


def test_on_a_device_the_same_sums_are_made_by_torchs_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    part = Piece(tensor, (6, 1000), (((0, 1, 3),), ((0, 0, 1000),)))
    cells = torch.ones(32, dtype=torch.float64)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    add_sums(part, cells)
    monkeypatch.undo()
    own = sketches([part])[0]
    assert norm_of([a - 1 - b for a, b in zip(cells.tolist(), own.sums, strict=True)]) <= ROUNDING * own.norm


def sharded(rank: int, folder: str) -> Any:
    model = MLP(6)
    wrapper, inputs = build_fsdp(False, False, model)
    with numscope.watch(wrapper, config=config(("weight", "wgrad"), stats=["sketch"]), on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        wrapper(inputs[0]).square().mean().backward()
        optimizer.step()
        scope._watch.inspector.settle()
        found = {f"{one.layer}|{one.tensor}": list(one.extras["sketch"]) for one in scope._watch.inspector.last}  # type: ignore[arg-type]
    wholes = {f"{name}|{kind}": whole(getattr(model, name).weight if kind == "weight" else getattr(model, name).weight.grad)
              for name in ("up", "down") for kind in ("weight", "wgrad")}  # fmt: skip
    return found, wholes


def test_shards_add_up_to_the_wholes(ranks: RankPool, tmp_path: Path) -> None:
    found, wholes = ranks.run(sharded, str(tmp_path))[0].value
    for key, tensor in wholes.items():
        own = sketches([Piece.at(tensor, tensor.shape, (0, 0))])[0]
        assert norm_of([a - b for a, b in zip(found[key], own.sums, strict=True)]) <= ROUNDING * own.norm, key
