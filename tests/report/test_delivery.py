from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

import numscope


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def train_on_inf(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.full((2, 2), float("inf"))).sum().backward()
    optimizer.step()


def test_models_watched_together_do_not_write_over_each_others_findings(tmp_path):
    class Generator(nn.Linear):
        pass

    class Critic(nn.Linear):
        pass

    file = tmp_path / "findings.json"
    options = {"json": str(file), "log_dir": str(tmp_path / "log"), "on_nonfinite": "warn"}
    first, second = Generator(2, 2), Critic(2, 2)
    with numscope.watch(first, **options), numscope.watch(second, **options):
        train_on_inf(second)
    for written in (read(file), read(tmp_path / "log" / "findings-rank0.json")):
        assert written["meta"]["model"] == "Generator, Critic"
        assert [f["model"] for f in written["findings"]] == ["Critic"]
    assert "bad input data" in (tmp_path / "log" / "report-rank0.txt").read_text()


def test_a_watch_after_another_begins_its_file_anew(tmp_path):
    file = tmp_path / "findings.json"
    with numscope.watch(model := nn.Linear(2, 2), json=str(file), on_nonfinite="warn"):
        train_on_inf(model)
    assert read(file)["findings"]
    with numscope.watch(nn.Linear(2, 2), json=str(file), on_nonfinite="warn"):
        pass
    assert not read(file)["findings"]
