"""The culprit's line: within long statements, and where autograd or an optimizer runs what failed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from numscope.records.finding import Reason
from numscope.records.site import Phase
from numscope.replay.culprit import find_culprit
from numscope.replay.op import OpProbe
from numscope.replay.tape import OpTape
from numscope.summary.ledger import Ledger
from tests.tape import Run, at, line_of, traced

HALF = torch.float16
INF = float("inf")


def here(marker: str) -> tuple[str, int]:
    return __file__, line_of(marker, __file__)


# ---- lines


def test_line_within_a_statement_of_several_lines() -> None:
    def step() -> Tensor:
        x = torch.tensor([-1.0, 2.0])
        return torch.stack(
            [
                x.relu().sum(),
                x.abs().log().sum(),
                torch.log(  # the call
                    x,
                ).sum(),
            ]
        ).sum()

    run = traced(step)
    file, line = at(run, run.result)
    assert (file, line) == (__file__, line_with("torch.log(  # the call"))


def test_line_within_a_chain_of_calls() -> None:
    def step() -> Tensor:
        x = torch.tensor([-1.0, 2.0])
        return (
            x.neg()
            .sqrt()  # chained
            .exp()
            .sum()
        )  # fmt: skip

    run = traced(step)
    import sys

    if sys.version_info >= (3, 11):
        assert at(run, run.result) == here("chained")


def line_with(text: str) -> int:
    with open(__file__) as f:
        return next(i for i, row in enumerate(f, 1) if row.strip() == text)


def test_code_without_a_file_keeps_its_line() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(compile("def f(x):\n    y = x * 2\n    return y.log()\n", "<made up>", "exec"), space)
    run = traced(lambda: space["f"](-torch.ones(2)))
    culprit = run.culprit(run.result)
    assert culprit is not None and (culprit.file, culprit.line, culprit.code) == ("<made up>", 3, "")


def test_stack_runs_from_the_outermost_user_frame_to_the_line() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log()

    model = nn.Sequential(nn.Identity(), Inner())
    culprit = (run := traced(lambda: model(-torch.ones(2)))).culprit(run.result)
    assert culprit is not None
    assert [f.rpartition(".")[2] for _, _, f, _ in culprit.stack] == ["<lambda>", "forward"]
    assert culprit.stack[-1][3] == "return x.log()"


# ---- autograd


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bad_forward: bool) -> Tensor:
        ctx.save_for_backward(x)
        return x / (0.0 * x) if bad_forward else x * 2  # custom forward

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad / (x - x), None  # custom backward


@pytest.mark.parametrize("bad_forward", [True, False])
def test_custom_function_is_named_by_its_own_line(bad_forward: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    run = traced(lambda: Scaled.apply(x, bad_forward).sum(), backward=True)
    culprit = run.culprit(run.result, x.grad)
    assert culprit is not None and culprit.reason == Reason.DIVISION_BY_ZERO
    assert culprit.phase == (Phase.FORWARD if bad_forward else Phase.BACKWARD)
    assert (culprit.file, culprit.line) == here("custom forward" if bad_forward else "custom backward")


def test_gradient_of_an_op_written_into_a_view_has_its_forward_line() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def step() -> Tensor:
        y = torch.ones(2, 2) * 3
        y[0] = x
        y[0].sqrt_()  # into a view
        with torch.no_grad():
            y.detach().add(1)
        return y.sum()

    run = traced(step, backward=True)
    assert torch.isfinite(run.result)
    assert at(run, x.grad) == here("into a view")


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_forward_keeps_lines_in_its_backward(reentrant: bool) -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def block(t: Tensor) -> Tensor:
        u = t * 1
        return u.sqrt() * 2  # checkpointed

    run = traced(lambda: checkpoint(block, x, use_reentrant=reentrant).sum(), backward=True)
    culprit = run.culprit(x.grad)
    assert culprit is not None and culprit.reason == Reason.GRADIENT_AT_ZERO and culprit.phase == Phase.BACKWARD
    assert (culprit.file, culprit.line) == here("checkpointed")


def test_gradient_taken_within_the_forward_is_backward_with_its_forward_line() -> None:
    def step() -> Tensor:
        x = torch.zeros(3, requires_grad=True)
        norm = (x * x).sum().sqrt()  # penalty
        (gradient,) = torch.autograd.grad(norm, x, create_graph=True)
        return gradient.square().sum()

    run = traced(step)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.phase == Phase.BACKWARD
    assert (culprit.file, culprit.line) == here("penalty")


def test_double_backward_fault_has_a_line_of_the_forward() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)

    def step() -> Tensor:
        y = (x.abs() ** 1.5).sum()  # twice
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return gradient.sum()

    run = traced(step, backward=True)
    assert torch.isfinite(run.result)
    assert not torch.isfinite(x.grad).all()  # the second derivative of |x|^1.5 at 0 is inf
    assert at(run, x.grad) == here("twice")


def test_gradient_accumulated_over_uses_says_so_and_names_the_parameter() -> None:
    w = nn.Parameter(torch.tensor([1.0], dtype=HALF))
    w.grad = torch.tensor([60000.0], dtype=HALF)

    def step() -> Tensor:
        return (w * 50000).sum()  # uses w

    run = traced(step, backward=True, names={id(w): "w"})
    culprit = run.culprit(w.grad)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW
    assert "Gradient accumulation of w" in culprit.detail
    assert (culprit.file, culprit.line) == here("uses w")


def test_bad_gradient_handed_in_is_said_to_come_from_outside() -> None:
    x = torch.ones(2, requires_grad=True)
    rows, tape = Ledger(), OpTape()
    with OpProbe(tape, rows):
        y = x * 3
    grad = torch.tensor([1.0, float("nan")])
    with OpProbe(tape, rows, phase=Phase.BACKWARD, names={id(grad): "grad output[0]"}):
        y.backward(grad)
    rows.read()
    culprit = find_culprit(tape, [x.grad], rows)
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT and "grad output[0]" in culprit.detail


def test_module_of_a_backward_op_is_its_forward_s() -> None:
    current = [""]

    class Named(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: Tensor) -> Tensor:
            current[0] = self.name
            return x.sqrt() if self.name == "blocks.1" else x * 2

    a, b, c = Named("blocks.0"), Named("blocks.1"), Named("blocks.2")
    x = torch.zeros(2, requires_grad=True)
    run = traced(lambda: c(b(a(x))).sum(), backward=True, module_name=lambda: current[0])
    culprit = run.culprit(x.grad)
    assert culprit is not None and culprit.module == "blocks.1" and culprit.phase == Phase.BACKWARD


def test_autocast_overflow_names_the_product_in_half_precision() -> None:
    lin = nn.Linear(8, 8, bias=False)
    nn.init.constant_(lin.weight, 100.0)
    x = torch.full((2, 8), 1000.0)

    def step() -> Tensor:
        with torch.autocast("cpu", dtype=HALF):
            return F.linear(x, lin.weight).float().sum()  # autocast

    run = traced(step, names={id(lin.weight): "weight"})
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.reason == Reason.OVERFLOW and culprit.op == "aten.mm"
    assert (culprit.file, culprit.line) == here("autocast")


# ---- optimizers


def _optimizer_step(optimizer: torch.optim.Optimizer, w: Tensor) -> Run:
    run = traced(lambda: optimizer.step(), phase=Phase.OPTIMIZER, names={id(w): "w"})  # optimizer step
    run.result = w
    return run


@pytest.mark.parametrize("foreach", [True, False])
def test_adam_without_eps_divides_zero_by_zero(foreach: bool) -> None:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.zeros(3)
    run = _optimizer_step(torch.optim.Adam([w], eps=0.0, foreach=foreach), w)
    culprit = run.culprit(w)
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE and culprit.phase == Phase.OPTIMIZER
    assert "division by zero" in culprit.detail and "eps" in culprit.advice
    assert (culprit.file, culprit.line) == here("optimizer step")


def test_infinite_learning_rate_is_an_optimizer_update() -> None:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    optimizer = torch.optim.SGD([w], lr=0.1)
    optimizer.param_groups[0]["lr"] = INF
    culprit = _optimizer_step(optimizer, w).culprit(w)
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE


def test_adam_in_float16_overflows_in_its_second_moment() -> None:
    w = nn.Parameter(torch.ones(3, dtype=HALF))
    w.grad = torch.full((3,), 10000.0, dtype=HALF)
    optimizer = torch.optim.Adam([w], betas=(0.9, 0.5), foreach=False, capturable=False)
    run = _optimizer_step(optimizer, w)
    culprit = run.culprit(optimizer.state[w]["exp_avg_sq"])
    assert culprit is not None and culprit.reason == Reason.OPTIMIZER_UPDATE and "float16" in culprit.detail
