"""An operand whose bad elements are not in the result is no cause: the trail leads to the one whose elements are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.records.finding import Reason
from tests.faults.planting import found, host, marked_line, watched
from tests.tape import traced

INF, NAN = float("inf"), float("nan")

FAULTS: dict[str, Callable[[Tensor], Tensor]] = {}


def fault(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    FAULTS[fn.__name__] = fn
    return fn


def elsewhere(x: Tensor) -> Tensor:
    """Bad everywhere, and earlier than the fault."""
    return torch.log(x.detach() * 0) * 0


@fault
def scores_into_uninitialized_memory(x: Tensor) -> Tensor:
    y = x[None] * 1e30
    scores = torch.baddbmm(torch.full((1, 3, 3), NAN), y, y.transpose(1, 2), beta=0)  # FAULT
    return x + scores.mean()


@fault
def product_that_leaves_self_unread(x: Tensor) -> Tensor:
    y = x * 1e30
    return x + torch.addmm(elsewhere(x)[:, :3], y, y.t(), beta=0).mean()  # FAULT


@fault
def product_in_place(x: Tensor) -> Tensor:
    y = x.detach() * 1e30
    out = elsewhere(x)[:, :3].contiguous()
    out.addmm_(y, y.t(), beta=0)  # FAULT
    return x + out.mean()


@fault
def product_with_a_vector(x: Tensor) -> Tensor:
    y = x * 1e30
    return x + torch.addmv(elsewhere(x)[:, 0], y, y[0], beta=0)[:, None]  # FAULT


@fault
def branch_that_where_leaves_out(x: Tensor) -> Tensor:
    a = elsewhere(x)
    b = (x * 0 - 1).sqrt()  # FAULT
    return torch.where(x.abs() < 0, a, b)


@fault
def positions_that_were_filled(x: Tensor) -> Tensor:
    a = elsewhere(x).masked_fill(torch.ones(3, 8, dtype=torch.bool), 0.0)
    return (a + x * 0 - 1).sqrt()  # FAULT


@fault
def rows_joined_and_left_out(x: Tensor) -> Tensor:
    a = elsewhere(x)
    b = (x * 0 - 1).sqrt()  # FAULT
    return torch.cat([a, b], 0)[3:]


@fault
def columns_joined_and_left_out(x: Tensor) -> Tensor:
    a = elsewhere(x)
    b = (x * 0 - 1).sqrt()  # FAULT
    return torch.cat([a, b], -1).chunk(2, 1)[1]


@fault
def one_of_a_stack(x: Tensor) -> Tensor:
    a = elsewhere(x)
    b = (x * 0 - 1).sqrt()  # FAULT
    return torch.stack([a, b], 1)[:, 1]


@fault
def scattered_over(x: Tensor) -> Tensor:
    source = (x * 0 - 1).sqrt()  # FAULT
    return elsewhere(x).scatter(1, torch.arange(8).expand(3, 8), source)


@fault
def put_over(x: Tensor) -> Tensor:
    a = elsewhere(x)
    a[torch.arange(3)] = 1.0
    return (a * 0 + x * 0 - 1).sqrt()  # FAULT


@fault
def put_over_with_the_fault(x: Tensor) -> Tensor:
    source = (x * 0 - 1).sqrt()  # FAULT
    return elsewhere(x).index_put((torch.arange(3),), source)


@fault
def copied_rows_over(x: Tensor) -> Tensor:
    source = (x * 0 - 1).sqrt()  # FAULT
    return elsewhere(x).index_copy(0, torch.tensor([2, 1, 0]), source)


@fault
def masked_scatter_over(x: Tensor) -> Tensor:
    source = (x * 0 - 1).sqrt()  # FAULT
    return elsewhere(x).masked_scatter(torch.ones(3, 8, dtype=torch.bool), source)


@fault
def copied_over(x: Tensor) -> Tensor:
    a = elsewhere(x)
    a.copy_((x * 0 - 1).sqrt())  # FAULT
    return a


@fault
def sum_of_which_one_side_is_used(x: Tensor) -> Tensor:
    a = torch.zeros(3, 8)
    a[:, 0] = INF
    return (a + (x * 0 - 1).sqrt().masked_fill(torch.arange(8) == 0, 0.0))[:, 1:].mean() + x  # FAULT


@fault
def row_that_padding_never_takes(x: Tensor) -> Tensor:
    table = torch.randn(4, 8)
    table[0] = NAN
    rows = F.embedding(torch.tensor([1, 2, 3]), table, padding_idx=0)
    return (x * 0 + rows * 0 - 1).sqrt()  # FAULT


@fault
def infinite_largest_step(x: Tensor) -> Tensor:
    h = torch.minimum(x.abs().sum()[None], torch.tensor([INF]))
    return torch.exp(x.abs() * 1e4 + h + 1e3)  # FAULT


@fault
def best_so_far(x: Tensor) -> Tensor:
    y = (x * 0 - 1).sqrt()  # FAULT
    return x + torch.minimum(torch.full((3,), INF), y[:, 0])[:, None]


@fault
def queue_of_infinite_priorities(x: Tensor) -> Tensor:
    best = torch.minimum(torch.tensor([INF] * 3), x[:, 0])
    return x * 0 + (best[:, None] * 0 - 1).sqrt()  # FAULT


@fault
def clamp_between_infinities(x: Tensor) -> Tensor:
    y = torch.exp(x.abs() * 1e4 + 1e3)  # FAULT
    return torch.clamp(y, torch.full_like(x, -INF), torch.full_like(x, INF))


@fault
def quotient_of_masked_scores(x: Tensor) -> Tensor:
    scores = x.masked_fill(torch.arange(8) == 0, -INF)
    return (scores / (x[:, :1].detach() * 0)).softmax(-1)  # FAULT


@fault
def overflow_beside_a_mask(x: Tensor) -> Tensor:
    scores = x.masked_fill(torch.arange(8) == 0, -INF) + 1
    return (scores.abs() + 1).masked_fill(torch.arange(8) == 0, -INF) * 3e38 * 10  # FAULT


@fault
def fmin_that_leaves_nan_out(x: Tensor) -> Tensor:
    y = torch.fmin(torch.full((3, 8), NAN), x)
    return (y * 0 - 1).sqrt()  # FAULT


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_beside_an_operand_that_is_ignored(name: str) -> None:
    finding = found(lambda: host(FAULTS[name]))
    culprit = finding.culprit
    assert culprit is not None and (culprit.file, culprit.line) == marked_line(FAULTS[name]), finding.headline()
    assert culprit.reason is not Reason.UNKNOWN


def test_rule_sees_no_infinity_in_what_is_not_read() -> None:
    y = torch.full((3, 8), 1e30)
    run = traced(lambda: torch.addmm(torch.full((3, 3), NAN), y, y.t(), beta=0))
    culprit = run.culprit(run.result)
    assert culprit is not None and (culprit.op, culprit.reason) == ("aten.addmm", Reason.OVERFLOW)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_likelihood_of_targets_that_count_alone(reduction: str) -> None:
    logits = torch.zeros(3, 4)
    logits[2] = NAN  # a row whose target is ignored
    weight = torch.tensor([1.0, INF, 1.0, 1.0])

    def loss() -> Tensor:
        scaled = weight * 1.0
        return F.nll_loss(logits.log_softmax(-1) - 1, torch.tensor([0, 1, -100]), scaled, reduction=reduction)

    run = traced(loss)
    culprit = run.culprit(run.result)
    assert culprit is not None and culprit.detail.startswith(("other", "self")) and "inf" in culprit.detail


BENIGN: dict[str, Callable[[Tensor], Tensor]] = {
    "attention into uninitialized memory": lambda x: x + torch.baddbmm(
        torch.full((1, 3, 3), NAN), x[None], x[None].transpose(1, 2), beta=0, alpha=0.1
    ).softmax(-1)[0].sum(-1, keepdim=True),
    "largest step": lambda x: x * torch.minimum(torch.ones(()), torch.tensor(INF)),
    "step between bounds": lambda x: x.clamp(torch.full_like(x, -INF), torch.full_like(x, INF)),
    "best so far": lambda x: x + torch.stack([torch.full((3, 8), INF), x]).amin(0),
    "class without weight": lambda x: x + F.cross_entropy(
        torch.zeros(3, 4), torch.tensor([0, 1, 1]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    ),
    "ignored targets": lambda x: x + F.cross_entropy(
        torch.cat([torch.zeros(2, 4), torch.full((1, 4), NAN)]), torch.tensor([0, 1, -100])
    ),
    "padding's row": lambda x: x + F.embedding(torch.tensor([1, 2, 1]), torch.cat([torch.full((1, 8), NAN), torch.ones(2, 8)])),
    "nan_to_num": lambda x: x + torch.nan_to_num(torch.full((8,), NAN)),
    "comparison with an infinity": lambda x: x * (x < torch.full((8,), INF)),
    "distance that is infinite": lambda x: x + torch.exp(-torch.full((8,), INF)) + torch.sigmoid(torch.full((8,), -INF)),
    "joined and left out": lambda x: torch.cat([torch.full((3, 8), NAN), x], 1)[:, 8:],
    "overwritten": lambda x: torch.full((3, 8), NAN).scatter(1, torch.arange(8).expand(3, 8), x),
    "nanmean": lambda x: x + torch.tensor([1.0, NAN]).nanmean(),
}  # fmt: skip


@pytest.mark.parametrize("name", BENIGN)
def test_what_an_operation_ignores_is_silent(name: str) -> None:
    scope = watched(lambda: host(BENIGN[name]))
    assert scope.findings == [] and scope.contained == []


# ---- quotients by integers


@pytest.mark.parametrize(
    "divisor", [torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3, 8, dtype=torch.bool), torch.tensor(0), 0], ids=str
)
def test_gradient_of_a_quotient_by_an_integer_zero_is_a_division_by_zero(divisor: Tensor | int) -> None:
    def hidden_count(x: Tensor) -> Tensor:
        return torch.where(torch.zeros(3, 8, dtype=torch.bool), x / divisor, 0.0)  # FAULT

    culprit = found(lambda: host(hidden_count)).culprit
    assert culprit is not None and (culprit.file, culprit.line) == marked_line(hidden_count)
    assert (culprit.reason, culprit.module) == (Reason.DIVISION_BY_ZERO, "blocks.0.1")
