"""Kinds of loops that public scripts have, and what a watch must do with each: end as they do bare, cost little, name the line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import _builtins

import numscope
from numscope.config.options import WatchOptions
from numscope.records import heap
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding, Reason
from numscope.replay import outside
from numscope.scope.autowatch import AutoWatch
from tests.faults.planting import marked_line, quiet


def at(finding: Finding) -> tuple[str, int]:
    assert finding.culprit is not None, finding.headline()
    return finding.culprit.file, finding.culprit.line


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 2 * x


@pytest.mark.parametrize("create_graph", [False, True])
def test_custom_functions_without_any_module_train_as_bare(create_graph: bool) -> None:
    """Their backward is Python: its operations are seen by one recorder, not by two that wait for each other."""

    def losses(rate: float = 0.01) -> list[float]:
        weight, found = torch.full((), 0.5, requires_grad=True), []
        for _ in range(4):
            loss = (Squared.apply(weight * torch.linspace(-1, 1, 9)) - 1).square().sum()
            loss.backward(create_graph=create_graph)
            assert weight.grad is not None
            with torch.no_grad():
                weight -= rate * weight.grad
            weight.grad = None
            found.append(float(loss.detach()))
        return found

    bare = losses()
    with AutoWatch(WatchOptions()):
        assert losses() == bare
        assert not torch._C._len_torch_dispatch_stack() or outside.current().watching


def test_custom_function_s_backward_without_any_module_is_named() -> None:
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sqrt()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 0.5 / x.sqrt()  # FAULT

    def play() -> None:
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)
        for step in range(4):
            optimizer.zero_grad()
            Root.apply(weight.square() * (step != 2)).sum().backward()
            optimizer.step()

    with pytest.raises(NonFiniteError) as caught, quiet(), AutoWatch(WatchOptions()):
        play()
    assert at(caught.value.finding) == marked_line(Root)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3  # FAULT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


@pytest.mark.parametrize("bad", [2, 5])
def test_operation_is_named_where_neither_a_module_nor_an_optimizer_says_what_a_step_is(bad: int) -> None:
    """Only its backward shows that the step before has ended: its forward has run by then."""
    weights = [torch.full((), value, requires_grad=True) for value in (0.5, 0.1)]
    x = torch.linspace(-1, 1, 50)
    with pytest.raises(NonFiniteError) as caught, quiet(), AutoWatch(WatchOptions()):
        for step in range(8):
            (Cubed.apply(weights[0] + weights[1] * x) - x).mul(1e-3).square().sum().backward()
            with torch.no_grad():
                for weight in weights:
                    assert weight.grad is not None
                    weight -= 1e-3 * weight.grad
                    weight.grad = None
                    weight *= 1e14 if step == bad - 1 else 1.0
    assert at(caught.value.finding) == marked_line(Cubed)


def test_torchscript_compiles_what_it_compiles_bare() -> None:
    """It knows torch's own functions as operators, and ours in their place."""

    model = nn.Linear(2, 1)
    with numscope.watch(model):
        assert _builtins._find_builtin(torch.autograd.grad) == "aten::grad"
        assert _builtins._find_builtin(torch.autograd.backward) == "aten::backward"
    table = _builtins._get_builtin_table()
    assert list(table.values()).count("aten::grad") == 1


def test_recorder_that_sleeps_within_a_sleep_sleeps_on() -> None:
    model = nn.Linear(2, 1)
    with numscope.watch(model):
        loss = model(torch.ones(1, 2)).sum()
        tape = outside.current()
        assert tape.watching
        with tape.asleep():
            with tape.asleep():
                pass
            before = len(tape.tape.records)
            torch.ones(2) + 1
            assert len(tape.tape.records) == before
        loss.backward()


def test_models_made_by_the_dozen_are_not_looked_for_in_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []
    original = heap.instances_of
    monkeypatch.setattr(heap, "instances_of", lambda kind: walks.append(kind) or original(kind))
    parent = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(parent.parameters(), 0.1)
    with AutoWatch(WatchOptions()) as auto:
        for _ in range(12):
            learner = nn.Linear(3, 1)
            learner.load_state_dict(parent.state_dict())
            own = torch.optim.SGD(learner.parameters(), 0.1)
            learner(torch.ones(2, 3)).sum().backward()
            own.step()
            parent(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        assert auto.coverage.num_steps == 24
    assert len(walks) <= 4


class Metric(nn.Module):
    """As torchmetrics' are: found in dicts by what it holds, and compared with another metric instead of with it."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def __hash__(self) -> int:
        return hash(type(self).__name__)

    def __eq__(self, other: object) -> Any:
        return nn.ModuleList([self])

    def forward(self, x: Tensor) -> Tensor:
        self.total = self.total + x.detach().mean()
        return self.total


class Measured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Linear(4, 4), Metric(), Metric()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).sqrt()  # FAULT


@pytest.mark.parametrize("automatic", [False, True])
def test_modules_that_are_found_by_their_values_are_left_alone(automatic: bool) -> None:
    model = Measured()
    with torch.no_grad():
        model.body.weight.fill_(0.5), model.body.bias.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with pytest.raises(NonFiniteError) as caught, quiet(), AutoWatch(WatchOptions()) if automatic else numscope.watch(model):
        for step in range(3):
            x = torch.full((2, 4), -9.0 if step == 2 else 1.0)
            loss = model(x).sum()
            model.first(loss), model.second(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert at(caught.value.finding) == marked_line(Measured)


def test_attribute_that_answers_to_any_name_keeps_no_replay_from_its_end() -> None:
    class Settings(dict[str, Any]):
        def __getattr__(self, name: str) -> Any:
            return self[name]

    class Board(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.settings = nn.Linear(4, 4), Settings(scale=1.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) / (x[:, :1] * self.settings.scale)  # FAULT

    model = Board()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with pytest.raises(NonFiniteError) as caught, quiet(), numscope.watch(model):
        for step in range(3):
            optimizer.zero_grad()
            model(torch.full((2, 4), float(step != 1))).sum().backward()
            optimizer.step()
    assert at(caught.value.finding) == marked_line(Board)


def error_norm(error: Tensor) -> Tensor:
    return error.pow(2).mean().sqrt()  # FAULT


def solve(model: nn.Module, x: Tensor) -> Tensor:
    """A solver with an unbounded largest step, which gives up by an exception of its own."""
    largest = torch.as_tensor(float("inf"))
    size = torch.ones(())
    for _ in range(3):
        x = model(x)
        size = torch.minimum(size / error_norm(x), torch.as_tensor(float("inf"), dtype=largest.dtype))
        assert size > 0, "underflow in dt"
    return x


def test_exception_of_a_script_s_own_is_traced_to_the_overflow_behind_it() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with quiet(), pytest.raises(AssertionError, match="underflow"), numscope.watch(model) as scope:
        for step in range(3):
            optimizer.zero_grad()
            solve(model, torch.ones(3, 2) * (1e25 if step == 2 else 1.0)).mean().backward()
            optimizer.step()
    (finding,) = scope.findings
    assert at(finding) == marked_line(error_norm) and "underflow in dt" in finding.note


def test_healthy_solver_whose_largest_step_is_infinite_has_no_note() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            with torch.no_grad():
                return solve(model, x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                grads = torch.autograd.grad(solve(model, x.detach().requires_grad_()), [*model.parameters()], gradient)
            return None, *grads

    with quiet(), numscope.watch(model) as scope:
        for _ in range(3):
            optimizer.zero_grad()
            Adjoint.apply(torch.ones(3, 2), *model.parameters()).mean().backward()
            optimizer.step()
    assert scope.findings == [] and scope.contained == []


def test_targets_that_made_a_local_copy_s_gradients_bad_are_named_though_it_is_loaded_anew() -> None:
    """A worker of an asynchronous actor-critic: another model's optimizer takes the gradients, and the copy gets its weights."""
    shared, local = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
    optimizer = torch.optim.Adam(shared.parameters())

    def worker() -> None:
        local.load_state_dict(shared.state_dict())
        for step in range(5):
            x = torch.randn(6, 4)
            back = [[(1e60 if step == 3 else 0.5) * i] for i in range(6)]
            target = torch.tensor(back)  # FAULT
            loss = F.smooth_l1_loss(local(x), target)
            optimizer.zero_grad()
            loss.backward()
            for mine, theirs in zip(shared.parameters(), local.parameters(), strict=True):
                mine.grad = theirs.grad
            optimizer.step()
            local.load_state_dict(shared.state_dict())
            local.zero_grad()

    with pytest.raises(NonFiniteError) as caught, quiet(), AutoWatch(WatchOptions()):
        worker()
    finding = caught.value.finding
    assert at(finding) == marked_line(worker)
    assert finding.culprit is not None and finding.culprit.reason == Reason.BAD_INPUT
