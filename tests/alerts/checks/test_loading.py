"""What load_state_dict is given reaches the module."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

import numscope
from numscope.alerts.checks import loading
from numscope.records.alert import Alert
from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, train


def loaded(given: dict[str, Any], strict: bool = False) -> list[Alert]:
    model = Net()

    def training() -> None:
        model.load_state_dict(given, strict=strict)  # load
        train(model, SGD(model.parameters(), lr=1e-3), 3)

    return alerts_of(model, training)


def test_prefix_of_all_keys_is_named() -> None:
    given = {f"model.{name}": tensor for name, tensor in Net().state_dict().items()}
    (alert,) = loaded(given)
    assert alert.rule == "nothing is loaded" and not alert.asks
    assert (
        "has loaded 0 of 4 tensors: 4 of the others are there under other names, such as model.first.weight for first.weight" in alert.text
    )
    assert alert.evidence["line"] == line_of(loaded, "load")


@pytest.mark.parametrize(
    ("given", "says"),
    [({"state_dict": Net().state_dict(), "epoch": 3}, "Load what is in 'state_dict'."), ({"fc.w": torch.ones(2)}, "strict=True")],
)
def test_no_key_that_matches_is_named(given: dict[str, Any], says: str) -> None:
    (alert,) = loaded(given)
    assert "no key matches" in alert.text and alert.advice.startswith(says)


def test_filter_that_leaves_nothing_is_named() -> None:
    (alert,) = loaded({})
    assert "has loaded 0 of 4 tensors: none was given" in alert.text and not alert.asks


def test_half_that_has_other_names_is_asked_about() -> None:
    given = {name if name.startswith("first") else f"head.{name}": tensor for name, tensor in Net().state_dict().items()}
    (alert,) = loaded(given)
    assert "has loaded 2 of 4 tensors: 2 of the others are there under other names" in alert.text and alert.asks


def test_loads_that_are_right_are_left_alone() -> None:
    given = Net().state_dict()
    assert loaded(given, strict=True) == []
    assert loaded({name: tensor for name, tensor in given.items() if name.startswith("first")}) == []
    assert loaded({name.replace("last", "head"): torch.ones(9) if "last" in name else tensor for name, tensor in given.items()}) == []


def own(copies: bool, assign: bool = False) -> list[Alert]:
    model = Net()

    def training() -> None:
        best = model.state_dict()
        if copies:
            best = {name: tensor.clone() for name, tensor in best.items()}
        train(model, SGD(model.parameters(), lr=1e-3), 3)
        model.load_state_dict(best, assign=assign)

    return alerts_of(model, training)


def test_own_tensors_are_asked_about_and_copies_are_not() -> None:
    (alert,) = own(copies=False)
    assert alert.rule == "own tensors loaded" and alert.asks
    assert own(copies=True) == []
    assert own(copies=True, assign=True) == []


SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(2, 2))
model.load_state_dict({f"module.{k}": v for k, v in model.state_dict().items()}, strict=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
"""


def test_load_before_the_first_step_of_a_run_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "-m", "numscope", "run", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("nothing is loaded") == 1 and "train.py:5" in run.stderr


class Odd(nn.Module):
    """Its own way to load, which gives nothing back."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight

    def load_state_dict(self, *given: Any, **how: Any) -> None:  # type: ignore[override]
        super().load_state_dict(*given, **how)


def test_modules_with_loaders_of_their_own_load_as_they_do_bare() -> None:
    model = Odd()

    def training() -> None:
        assert model.load_state_dict({"weight": torch.zeros(2)}) is None
        assert not model.weight.any()
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict({})

    assert alerts_of(model, training) == []


def test_names_of_a_file_are_text_and_an_error_of_ours_reaches_no_script(caplog: pytest.LogCaptureFixture) -> None:
    (alert,) = loaded({"{0.__class__}.{nosuch}": torch.ones(2), "{": torch.ones(2)})
    assert "{" in alert.text

    class Hiding(Net):
        def named_parameters(self, *given: Any, **how: Any) -> Any:
            raise RuntimeError("its own way")

    model = Hiding()
    with numscope.watch(Net()):
        assert not model.load_state_dict(Net().state_dict()).missing_keys
    assert "loads are looked at no more" in caplog.text


@pytest.mark.parametrize("left_out", ["", "optimizer", "scheduler"])
def test_state_in_a_checkpoint_that_is_not_loaded_is_asked_about(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_walks", itertools.count())

    def made() -> dict[str, Any]:
        model = Net()
        optimizer = Adam(model.parameters())
        return {"model": model, "optimizer": optimizer, "scheduler": StepLR(optimizer, 100)}

    before, now = made(), made()
    train(before["model"], before["optimizer"], 2)
    before["scheduler"].step()

    def training() -> None:
        checkpoint = {name: part.state_dict() for name, part in before.items()}
        for name, part in now.items():
            if name != left_out:
                part.load_state_dict(checkpoint[name])
        for x, y in batches(4):
            now["optimizer"].zero_grad()
            F.cross_entropy(now["model"](x), y).backward()
            now["optimizer"].step()
            now["scheduler"].step()

    alerts = alerts_of(now["model"], training)
    assert [alert.rule for alert in alerts] == (["state not loaded"] if left_out else [])
    assert all(f"has '{left_out}'" in alert.text and alert.asks for alert in alerts)


def test_checkpoint_of_another_model_is_no_matter_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_walks", itertools.count())
    before, now, teacher = Net(), Net(), Net()
    optimizer = Adam(before.parameters())
    train(before, optimizer, 2)

    def training() -> None:
        checkpoint = {"model": before.state_dict(), "optimizer": optimizer.state_dict()}
        teacher.load_state_dict(checkpoint["model"])
        train(now, Adam(now.parameters()), 2)

    assert alerts_of(now, training) == []
