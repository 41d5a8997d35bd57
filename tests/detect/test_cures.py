"""What a report says was tried: a remedy that worked, written into the script, cures it; and no trial changes the run."""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.detect import cures
from numscope.detect.at_line import AtLine
from numscope.records.finding import Culprit, Finding, Reason, Trial
from numscope.replay import fork
from tests.faults.planting import quiet

pytestmark = pytest.mark.tried

SCRIPT = """
import math
import torch
import torch.nn.functional as F

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, given):
        h = self.inner(given)
        x = {argument}
        return ({expression}){end}
"""


def net_of(folder: Path, argument: str, expression: str, end: str = ".mean()") -> nn.Module:
    """A model from a file, as a report's lines need one."""
    path = folder / f"net{len(list(folder.iterdir()))}.py"
    path.write_text(SCRIPT.format(argument=argument, expression=expression, end=end))
    module = ModuleType(path.stem)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    torch.manual_seed(0)
    net: nn.Module = module.Net()
    return net


def trained(model: nn.Module, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Finding | None:
    """Two steps of a watched model; the finding that stops them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3 / scale)
    scope = numscope.watch(model, on_nonfinite="raise")
    try:
        for _ in range(2):
            optimizer.zero_grad()
            (model(torch.linspace(-1, 1, 32).reshape(8, 4).to(dtype)) * scale).float().sum().backward()
            optimizer.step()
    except numscope.NonFiniteError:
        return scope.findings[0]
    finally:
        scope.close()
    return None


def culprit_of(finding: Finding | None) -> Culprit:
    assert finding is not None and finding.culprit is not None
    return finding.culprit


CASES = {
    "log": ("h.relu()", "torch.log(x)"),
    "log of softmax": ("F.softmax(h * 1e4, -1)", "x.log()"),
    "log1p": ("h.relu() - 1", "torch.log1p(x)"),
    "logit": ("h.sign().relu()", "torch.logit(x)"),
    "negative root": ("h", "torch.sqrt(x)"),
    "root at 0": ("h.relu() * 0", "x.sqrt()"),
    "rsqrt": ("h.relu() * 0", "torch.rsqrt(x)"),
    "acos": ("h / h.detach()", "torch.acos(x)"),
    "atanh": ("h.sign()", "torch.atanh(x)"),
    "quotient": ("h.relu()", "h / x"),
    "signed divisor": ("h * (h.abs() > 0.3)", "h / x"),
    "one over": ("h.relu()", "1 / x"),
    "power by keyword": ("h.relu()", "torch.pow(x, exponent=-0.5)"),
    "power": ("h.relu()", "x ** -0.5"),
    "power at 0": ("h - h.detach()", "x.pow(0.3)"),
    "exponential": ("h * 1e4", "torch.exp(x)"),
    "masked softmax": ("h.masked_fill(h == h, -math.inf)", "F.softmax(x, -1) * h"),
    "masked log-softmax": ("h.masked_fill(h == h, -math.inf)", "x.log_softmax(dim=-1)"),
    "masked softmax of a module": ("h.masked_fill(h == h, -math.inf)", "torch.nn.Softmax(-1)(x) * h"),
}


def written(trial: Trial, expression: str) -> str:
    """The script's expression with a remedy written into it by hand: its argument is what the remedy makes of it."""
    text = trial.remedy
    if " / " in text or re.search(r" \*\* [^p]", text):  # the whole of it
        return text
    inner = re.sub(r"^[\w.]+\((.*)\)$", r"\1", text)
    inner = inner.removesuffix(" ** p")
    return re.sub(r"\bx\b", f"({inner})", expression, count=1)


@pytest.mark.parametrize("name", CASES)
def test_a_remedy_that_worked_cures_the_script_when_it_is_written_into_it(name: str, tmp_path: Path) -> None:
    argument, expression = CASES[name]
    with quiet():
        trial = culprit_of(trained(net_of(tmp_path, argument, expression))).tried[0]
        assert trial.worked and trial.outcome.startswith("forward and backward finite"), trial
        after = written(trial, expression)
        ast.parse(after)
        assert trained(net_of(tmp_path, argument, after)) is None, after


@pytest.mark.parametrize("square", ["x ** 2", "x.pow(2.0)", "torch.pow(x, exponent=2)"])
def test_the_base_of_a_square_keeps_its_sign(square: str, tmp_path: Path) -> None:
    with quiet():
        tried = culprit_of(trained(net_of(tmp_path, "h * 0", f"({square}).sqrt()"))).tried
    assert [one.remedy for one in tried] == ["sqrt(x + 1e-6)"]


class Block(nn.Module):
    """Its result is too large for float16; where it ends depends on ``back``."""

    def __init__(self, back: float) -> None:
        super().__init__()
        self.up, self.back = nn.Linear(4, 4), back

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x) * 5e5 * self.back


class Outer(nn.Module):
    def __init__(self, back: float) -> None:
        super().__init__()
        self.block, self.norm = Block(back), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.block(x))
        return y


def test_what_the_model_itself_computes_is_computed_in_float32_as_a_whole(tmp_path: Path) -> None:
    with quiet():
        culprit = culprit_of(trained(net_of(tmp_path, "h * 2e5", "x * 1e-6").half(), torch.float16))
    assert culprit.module == "" and next(one.remedy for one in culprit.tried if one.worked) == "numscope.high_precision(model)"


@pytest.mark.parametrize(
    ("back", "working"),
    [
        (1e-3, "numscope.high_precision(model.block)"),
        (1.0, "numscope.high_precision(model)"),
    ],
    ids=["within the block", "beyond it"],
)
def test_the_smallest_module_that_cures_an_overflow_is_named_and_advised(back: float, working: str) -> None:
    torch.manual_seed(0)
    with quiet():
        culprit = culprit_of(trained(Outer(back).half(), torch.float16))
    assert [one.remedy for one in culprit.tried if one.worked] == [working, "bfloat16 in place of float16"]
    assert culprit.advice == f"Use {working}, which was tried."
    torch.manual_seed(0)
    model = Outer(back).half()
    eval(working)  # as it is pasted
    with quiet():
        assert trained(model, torch.float16) is None


class Level(nn.Module):
    """As large as it is told."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.inner, self.level = nn.Identity(), level

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.tanh().clamp_min(0.9) * self.level)


@pytest.mark.parametrize(("level", "is_near"), [(3e4, True), (3e3, False)])
def test_what_is_about_to_overflow_next_is_named_beside_the_remedy(level: float, is_near: bool) -> None:
    torch.manual_seed(0)
    blocks = [Level(level), nn.LayerNorm(4), Block(1e-3), nn.LayerNorm(4)]
    with quiet():
        culprit = culprit_of(trained(nn.Sequential(nn.Linear(4, 4), *blocks).half(), torch.float16))
    advice, _, near = culprit.advice.partition(" model[1] has reached ")
    assert advice == "Use numscope.high_precision(model[3]), which was tried."
    assert near.endswith("of float16's range: take it too, or lower the learning rate.") == is_near, culprit.advice


def test_a_loss_scale_that_overflows_the_backward_is_lowered_until_it_does_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()
    with quiet():
        culprit = culprit_of(trained(copy.deepcopy(model), torch.float16, 2.0**15))
    told = [one for one in culprit.tried if one.remedy.startswith("a loss ")]
    assert [one.worked for one in told] == [True], culprit.tried
    assert told[0].remedy == "a loss 8 times smaller"  # scaled by hand: there is no GradScaler
    with quiet():
        assert trained(copy.deepcopy(model), torch.float16, 2.0**12) is None
        assert trained(model.bfloat16(), torch.bfloat16, 2.0**15) is None
    assert [one.remedy for one in culprit.tried if one.worked][1:] == ["bfloat16 in place of float16"]


def test_where_only_the_result_was_bad_the_backward_begins_from_a_mean_of_it(tmp_path: Path) -> None:
    model = net_of(tmp_path, "h", "torch.sqrt(x)", "")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with quiet(), pytest.raises(numscope.NonFiniteError) as caught:
        numscope.watch(model, on_nonfinite="raise")
        out = model(torch.linspace(-1, 1, 32).reshape(8, 4))
        nn.functional.cross_entropy(out, torch.zeros(8, dtype=torch.long)).backward()  # what it gives back is nan too
        optimizer.step()
    trial = culprit_of(caught.value.finding).tried[0]
    assert trial.worked and trial.outcome.endswith("; the script's own loss and its gradient were not tried")


@pytest.mark.parametrize("forks", [True, False])
def test_no_trial_changes_the_run(forks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not forks:
        monkeypatch.setattr(fork, "can_fork", lambda: False)

    def run(trials: bool) -> tuple[Any, ...]:
        model = net_of(tmp_path, "F.dropout(F.softmax(self.norm(h) * 1e4, -1))", "torch.log(x)")
        model.norm = nn.BatchNorm1d(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        monkeypatch.setattr(cures, "MOST_SECONDS", 60.0 if trials else -1.0)
        with quiet():
            scope = numscope.watch(model, on_nonfinite="note")
            torch.manual_seed(1)
            for _ in range(2):
                loss = model(torch.linspace(-1, 1, 32).reshape(8, 4))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            scope.close()
        tried = [bool(one.culprit and one.culprit.tried) for one in scope.findings]
        assert any(tried) is trials
        return *(t.clone() for t in model.state_dict().values()), torch.get_rng_state(), loss.detach()

    for bare, after in zip(run(False), run(True), strict=True):
        assert torch.equal(bare, after) or torch.equal(bare.isnan(), after.isnan())
    assert not any(isinstance(mode, AtLine) for mode in torch.overrides._get_current_function_mode_stack())


def broken(change: Callable[[nn.Module], None]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Softplus())
        change(model)
        return model

    return made


def test_a_bad_row_of_a_weight_is_set_to_zero() -> None:
    def spoil(model: nn.Module) -> None:
        with torch.no_grad():
            model[0].weight[2, 0] = float("nan")  # type: ignore[index]

    model = broken(spoil)()
    with quiet():
        culprit = culprit_of(trained(model))
        assert culprit.reason is Reason.BAD_PARAMETER
        assert [one.remedy for one in culprit.tried if one.worked] == ["model[0].weight[2] = 0"]
        assert model[0].weight[2].isnan().any()  # type: ignore[index]
        with torch.no_grad():
            exec(culprit.tried[0].remedy)
        assert trained(model) is None


def test_a_weight_that_is_bad_as_a_whole_is_cured_by_no_row() -> None:
    def spoil(model: nn.Module) -> None:
        nn.init.constant_(model[0].weight, math.nan)  # type: ignore[index, arg-type]

    with quiet():
        culprit = culprit_of(trained(broken(spoil)()))
    assert culprit.reason is Reason.BAD_PARAMETER and culprit.tried == ()


def test_of_a_row_the_states_of_its_optimizer_are_told_that_are_bad_too() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with quiet(), numscope.watch(model, on_nonfinite="note") as scope:
        for step in range(3):
            if step == 2:
                with torch.no_grad():
                    model[0].weight[5] = optimizer.state[model[0].weight]["exp_avg"][5] = math.nan  # type: ignore[index]
                    optimizer.state[model[1].weight]["exp_avg_sq"][0] = math.nan
            model(torch.tensor([1, 5])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (
        culprit_of(scope.findings[0]).tried[0].remedy
        == "model[0].weight[5] = 0, exp_avg of model[0].weight[5] = 0, exp_avg_sq of model[1].weight[0] = 0"
    )


def test_a_row_that_is_far_larger_than_the_others_is_found_where_it_overflows() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4)).half()
    with torch.no_grad():
        model[0].weight[5], model[1].weight[2] = 6e4, 6e4  # type: ignore[index]
    scope = numscope.watch(model, on_nonfinite="note")
    with quiet(), scope:
        model(torch.tensor([1, 5])).float().sum().backward()
        torch.optim.SGD(model.parameters()).step()
    assert "model[1].weight[2] = 0" in [one.remedy for one in culprit_of(scope.findings[0]).tried if one.worked]


class Normed(nn.Module):
    """Rows that a cast to fp8 makes 0 are divided by their norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z: Tensor = self.last(y / y.norm(dim=-1, keepdim=True))
        return z


def test_a_gemm_is_taken_out_of_fp8_alone(tmp_path: Path) -> None:
    given = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    given[3:9] *= 1e-9
    found = []
    for gemms in ("", "fprop"):
        model = Normed()
        numscope.precision.convert(model, recipe="current")
        switch = {"disable_fp8_gemm": {"enabled": True, "gemms": [gemms]}}
        config = {"first": {"enabled": True, "layers": {"layer_names": ["first"]}, **switch}} if gemms else None
        with quiet(), numscope.watch(model, on_nonfinite="note", config=config, log_dir=tmp_path) as scope:
            model(given).square().mean().backward()
            torch.optim.SGD(model.parameters()).step()
        found.append(scope.findings)
    culprit = culprit_of(found[0][0])
    assert culprit.tried[0].worked and culprit.tried[0].remedy == "disable_fp8_gemm (fprop) for model.first"
    assert culprit.advice == "Use disable_fp8_gemm (fprop) for model.first in a configuration, which was tried." and culprit.advice_tried
    assert not found[1]


def test_what_is_tried_is_bounded(tmp_path: Path) -> None:
    model = net_of(tmp_path, "h.relu()", "torch.log(x)")
    with quiet():
        scope = numscope.watch(model, on_nonfinite="note")
        for _ in range(6):
            model(torch.linspace(-1, 1, 32).reshape(8, 4)).backward()
            model.zero_grad()
            scope.step()
        scope.close()
    tried = [bool(one.culprit and one.culprit.tried) for one in scope.findings]
    assert sum(tried) <= 3 and tried[0]
