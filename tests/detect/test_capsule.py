"""A finding's capsule: the operation alone fails to the bit, in plain torch, on operands that are as few as they can be."""

from __future__ import annotations

import ast
import contextlib
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.config.check_plan import CheckPlan
from numscope.records.finding import Finding
from numscope.replay.operation import keepers
from tests.faults import in_loss
from tests.faults.planting import Fault, found
from tests.faults.test_faults import IN_MODEL


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def capsule_of(finding: Finding) -> Path:
    folder = next(Path().glob("capsule-*"))
    assert folder.name == f"capsule-step{finding.step}-rank0"
    return folder


@pytest.mark.parametrize("fault", [*IN_MODEL, *in_loss.CATALOG], ids=lambda f: f.name)
def test_a_planted_fault_fails_alone(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    finding = found(fault.plant, check="capsule")
    told = capsys.readouterr().err
    assert finding.culprit is not None
    op = "aten" if finding.culprit.op.endswith("_backward") else finding.culprit.op  # a node of the graph, in which an operation fails
    assert f"numscope: capsule: capsule-step1-rank0: {op}." in told, told
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
    assert "numscope: no capsule: aten.addmm does not make it from finite operands." in told


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
    assert not CheckPlan.of("capsule").does_again and CheckPlan.of("again,capsule").does_again
    capsule_of(stopped(Net(), torch.rand(32, 64), alerts="off"))


def stopped_in(loss_of: Callable[[Tensor], Tensor]) -> Finding:
    """The finding of a loss that is computed in the script."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    with pytest.raises(numscope.NonFiniteError) as raised, numscope.watch(model, check="capsule"):
        loss_of(model(torch.rand(3, 4))).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert not keepers
    return raised.value.finding


def eigenvectors_alone(y: Tensor) -> Tensor:
    return torch.linalg.eigh(torch.eye(4) + y.T @ y * 0)[1].cumsum(0).tan().sum()  # the eigenvalues receive no gradient


def penalty(y: Tensor) -> Tensor:
    return torch.autograd.grad((y.sum() * 0) ** 1.5 + y.sum(), y, create_graph=True)[0].sum()


OUTSIDE = {  # by the operation that fails
    "log_.default": lambda y: (y * 0).log_().mean(),
    "rrelu_with_noise.default": lambda y: nn.functional.rrelu(-(y.abs() + 1) * 1e38, 2.0, 4.0, training=True).mean(),
    "div_.Tensor": eigenvectors_alone,
    "pow.Tensor_Scalar": penalty,
    "log.default": lambda y: (torch.complex(y, y) * 0).t()[::2].log().real.mean(),
}


def test_what_a_script_computes_fails_alone_in_a_fresh_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all of them: to start it takes longer than they do."""
    for op, loss_of in OUTSIDE.items():
        Path(op).mkdir()
        with monkeypatch.context() as patch:
            patch.chdir(op)
            capsule_of(stopped_in(loss_of))
            assert f": aten.{op} on " in capsys.readouterr().err
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    paths = sorted(map(str, Path().glob("*/capsule-*/repro.py")))
    done = subprocess.run([sys.executable, "-I", "-c", code, *paths], capture_output=True, text=True, timeout=120)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and len(said) == len(OUTSIDE) and all(line.startswith("reproduced: ") for line in said), done.stderr


def test_room_that_an_operation_fills_with_random_numbers_is_not_what_it_read() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nothing has written is nan
    try:
        culprit = stopped_in(OUTSIDE["rrelu_with_noise.default"]).culprit
    finally:
        torch.use_deterministic_algorithms(False)
    assert culprit is not None and culprit.op == "aten.rrelu_with_noise"


@torch.library.custom_op("tests_capsule::inverse", mutates_args=())
def inverse(x: Tensor) -> Tensor:
    return 1 / x


inverse.register_autograd(lambda ctx, gradient: gradient)


def test_an_operator_that_plain_torch_does_not_have_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    stopped_in(lambda y: inverse(y * 0).mean())
    assert "numscope: no capsule: tests_capsule.inverse.default is no operator of plain torch." in capsys.readouterr().err


def test_a_run_computes_the_same_bits_while_operations_are_kept() -> None:
    def trained(**options: object) -> list[Tensor]:
        torch.manual_seed(0)
        model, average = nn.Linear(4, 4), torch.zeros(4, 4)
        optimizer = torch.optim.Adam(model.parameters())
        with contextlib.nullcontext() if not options else numscope.watch(model, on_nonfinite="warn", **options):
            for step in range(4):
                y = model(torch.rand(3, 4).requires_grad_())
                scores = nn.functional.dropout(y).masked_fill(torch.rand(3, 4) < 0.3, -torch.inf).softmax(-1)
                loss = scores.nan_to_num().mul_(2).square().sum() + penalty(y + 1) / (step != 2)
                loss.backward()
                optimizer.step()
                average.lerp_(model.weight.detach(), 0.1)
        return [average, *model.state_dict().values(), torch.get_rng_state()]

    for one, other in zip(trained(), trained(check="capsule"), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_of_what_writes_into_lists_one_place_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def in_lists(y: Tensor) -> Tensor:
        parts = [y, y * 1e30]
        torch._foreach_mul_(parts, 1e30)
        return parts[1].sum()

    stopped_in(in_lists)
    assert "numscope: capsule: capsule-step0-rank0: aten._foreach_mul_.Scalar on 4 bytes of operands" in capsys.readouterr().err
    runpy.run_path("capsule-step0-rank0/repro.py")
    assert capsys.readouterr().out == "reproduced: 1 of 1 elements are nan or inf\n"


UPDATES: dict[str, tuple[str, Callable[[nn.Module], torch.optim.Optimizer]]] = {
    "rate": ("aten.add_.Tensor", lambda m: torch.optim.SGD(m.parameters(), 3e38, foreach=False)),
    "rate of lists": ("aten._foreach_add_.List", lambda m: torch.optim.SGD(m.parameters(), 3e38, foreach=True)),
    "no eps": ("aten.addcdiv_.default", lambda m: torch.optim.Adam(m.parameters(), eps=0, foreach=False)),
    "no eps of lists": ("aten._foreach_addcdiv_.ScalarList", lambda m: torch.optim.Adam(m.parameters(), eps=0, foreach=True)),
    "fused": ("aten._fused_adam_.default", lambda m: torch.optim.Adam(m.parameters(), eps=0, fused=True)),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_fails_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    op, make = UPDATES[name]
    model = nn.Linear(4, 4)
    optimizer = make(model)
    x = torch.ones(3, 4)
    x[:, 1] = 0  # no gradient, so that without eps it is divided by 0
    with pytest.raises(numscope.NonFiniteError), numscope.watch(model, check="capsule"):
        for _ in range(2):
            (model(x) * 10).sum().backward()
            optimizer.step()
    told = capsys.readouterr().err
    assert f"numscope: capsule: capsule-step0-rank0: {op} on " in told, told
    runpy.run_path("capsule-step0-rank0/repro.py")
    assert capsys.readouterr().out == "reproduced: 1 of 1 elements are nan or inf\n"
