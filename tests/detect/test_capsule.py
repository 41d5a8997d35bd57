"""A finding's capsule: the operation alone fails to the bit, in plain torch, on operands that are as few as they can be."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.config.check_plan import CheckPlan
from numscope.detect import diagnosis
from numscope.records.finding import Finding
from tests.faults.planting import Fault, found
from tests.faults.test_faults import IN_MODEL

NONE = {  # name of a planted fault: why it has no capsule
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would cure a step is tried in test_cures.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(diagnosis, "with_trials", lambda finding, *_: finding)


def capsule_of(finding: Finding) -> Path:
    folder = next(Path().glob("capsule-*"))
    assert folder.name == f"capsule-step{finding.step}-rank0"
    return folder


@pytest.mark.parametrize("fault", IN_MODEL, ids=lambda f: f.name)
def test_a_planted_fault_fails_alone(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    finding = found(fault.plant, check="capsule")
    told = capsys.readouterr().err
    if fault.name in NONE:
        assert f"numscope: no capsule: {NONE[fault.name]}" in told and not [*Path().glob("capsule-*")]
        return
    assert finding.culprit is not None and f"numscope: capsule: capsule-step1-rank0: {finding.culprit.op}." in told, told
    folder = capsule_of(finding)
    runpy.run_path(str(folder / "repro.py"))
    assert capsys.readouterr().out.startswith("reproduced: ")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y / (torch.arange(y.numel()).view_as(y) != 1234)


def stopped(model: nn.Module, x: Tensor, **options: object) -> Finding:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(numscope.NonFiniteError) as raised, numscope.watch(model, check="capsule", **options):
        model(x).square().mean().backward()
        optimizer.step()
    return raised.value.finding


def test_it_needs_neither_numscope_nor_the_model_and_holds_one_element_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    folder = capsule_of(stopped(Net(), torch.rand(32, 64)))
    told = capsys.readouterr().err
    assert "aten.div.Tensor on 5 bytes of operands" in told, told[-400:]
    done = subprocess.run([sys.executable, "-I", str(folder / "repro.py")], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "reproduced: 1 of 1 elements are nan or inf\n"), done.stderr
    assert "numscope" not in {name.name for node in ast.walk(ast.parse((folder / "repro.py").read_text())) if isinstance(node, ast.Import)
                              for name in node.names}  # fmt: skip
    torch.save({**torch.load(folder / "operands.pt"), "result": torch.zeros(1, 1)}, folder / "operands.pt")
    assert subprocess.run([sys.executable, str(folder / "repro.py")], capture_output=True, timeout=120).returncode == 1


def test_it_goes_into_the_runs_folder_and_the_run_is_not_changed() -> None:
    generator = torch.get_rng_state()
    finding = stopped(Net(), torch.rand(32, 64, generator=torch.Generator()), log_dir="run")
    assert (Path("run") / f"capsule-step{finding.step}-rank0" / "repro.py").exists()
    torch.manual_seed(0)
    after = torch.get_rng_state()
    stopped(Net(), torch.rand(32, 64, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), after) and generator is not after


def test_what_comes_in_bad_has_no_capsule(capsys: pytest.CaptureFixture[str]) -> None:
    stopped(nn.Linear(2, 2), torch.full((3, 2), float("nan")))
    told = capsys.readouterr().err
    assert "numscope: no capsule: aten.addmm does not make it from finite operands within the model's call." in told


def test_a_hostile_name_writes_no_code() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module('"""\nimport os  #', Net())

        def forward(self, x: Tensor) -> Tensor:
            return next(self.children())(x)

    folder = capsule_of(stopped(Named(), torch.rand(32, 64)))
    tree = ast.parse((folder / "repro.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import) and node.names[0].name == "os"]
    runpy.run_path(str(folder / "repro.py"))


def test_without_being_asked_there_is_none_and_nothing_is_checked() -> None:
    assert not any(CheckPlan.of("capsule").is_due(step) for step in range(3))
    assert CheckPlan.of("again,capsule").is_due(1)
