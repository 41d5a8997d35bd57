"""From the script's line to the judge, the board and a statistics row: few calls, as the picture in docs/architecture.md has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.alerts.board import Board
from numscope.detect.detection import Detection
from numscope.detect.judge import Judge
from numscope.inspect.sites import Inspection
from numscope.probe.calls import guard
from numscope.summary.ledger import Ledger

PACKAGE = str(Path(numscope.__file__).parent)
MOST = 12
GUARDS = (guard.__code__, Detection.before_step.__code__)  # the latter: of all that is ``guarded``
ASKED = {"enabled": True, "tensors": ["output", "gradient", "weight"], "stats": ["max"]}
CONFIG = {"all": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "statistics": ASKED}}
ENDS = {"judge": (Judge, "_read"), "board": (Board, "add"), "statistics row": (Inspection, "observation"), "summary": (Ledger, "observe")}


def calls_of_ours() -> list[str]:
    """From the script's call on, the outermost first, without those that guard a call."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame.f_code.co_name != "train":
        if frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code not in GUARDS:
            found.insert(0, frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
        assert frame.f_back is not None
        frame = frame.f_back
    return found


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("end", ENDS)
def test_it_is_reached_in_few_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str) -> None:
    cls, name = ENDS[end]
    ways: list[list[str]] = []
    original = getattr(cls, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        ways.append(calls_of_ours())
        return original(*args, **kwargs)

    monkeypatch.setattr(cls, name, noted)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    with numscope.watch(model, config=CONFIG, log_dir=str(tmp_path)):
        train(model, optimizer)
        assert ways and max(map(len, ways)) <= MOST, max(ways, key=len)
