"""One planted fault of every reason, small and functional: op, line and reason must be right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.records.finding import Reason
from numscope.replay.reasons.case import explains, number
from tests.tape import Run, line_of, traced

HALF = torch.float16
INF = float("inf")


def leaf(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


# Each fault: a function whose faulty line ends with a comment that names the test; (op, reason) as expected.
def mul_overflow() -> Tensor:
    x = leaf(300.0, 1.0, dtype=HALF)
    return (x * 300).sum()  # mul_overflow


def add_overflow() -> Tensor:
    x = leaf(60000.0, dtype=HALF) * 1
    return (x + x).sum()  # add_overflow


def matmul_overflow() -> Tensor:
    a, b = torch.full((4, 8), 200.0, dtype=HALF), torch.full((8, 4), 100.0, dtype=HALF)
    return (a @ b).sum()  # matmul_overflow


def linear_overflow() -> Tensor:
    a, w = torch.full((4, 8), 200.0, dtype=HALF), torch.full((4, 8), 100.0, dtype=HALF)
    bias = torch.zeros(4, dtype=HALF)
    return F.linear(a, w, bias).sum()  # linear_overflow


def sum_overflow() -> Tensor:
    x = torch.full((100,), 1000.0, dtype=HALF)
    return x.sum()  # sum_overflow


def square_overflow() -> Tensor:
    x = leaf(1e20)
    return (x**2).sum()  # square_overflow


def cast_overflow() -> Tensor:
    x = leaf(1e6)
    return x.to(HALF).sum()  # cast_overflow


def float_division_overflow() -> Tensor:
    x, y = leaf(1e30), leaf(1e-30)
    return (x / y).sum()  # float_division_overflow


def divide_by_zero() -> Tensor:
    x, y = leaf(1.0, 2.0), leaf(0.0, 1.0)
    return (x / y).sum()  # divide_by_zero


def zero_by_zero() -> Tensor:
    x = leaf(0.0, 0.0)
    return (x / x.sum()).sum()  # zero_by_zero


def reciprocal_of_zero() -> Tensor:
    x = leaf(0.0)
    return x.reciprocal().sum()  # reciprocal_of_zero


def rsqrt_of_zero() -> Tensor:
    x = leaf(0.0)
    return x.rsqrt().sum()  # rsqrt_of_zero


def negative_power_of_zero() -> Tensor:
    x = leaf(0.0)
    return (x**-1.5).sum()  # negative_power_of_zero


def inplace_division() -> Tensor:
    x = leaf(1.0, 2.0) * 1
    x[1:].div_(0)  # inplace_division
    return x.sum()


def log_of_negative() -> Tensor:
    x = leaf(-1.0, 2.0)
    return x.log().sum()  # log_of_negative


def log_of_relu() -> Tensor:
    x = leaf(-1.0, 2.0)
    return torch.log(F.relu(x)).sum()  # log_of_relu


def sqrt_of_negative() -> Tensor:
    x = leaf(-1.0, 2.0)
    return x.sqrt().sum()  # sqrt_of_negative


def fractional_power_of_negative() -> Tensor:
    x = leaf(-1.0, 2.0)
    return (x**0.5 if False else x.pow(0.3)).sum()  # fractional_power_of_negative


def acos_beyond_one() -> Tensor:
    x = leaf(1.0001)
    return torch.acos(x).sum()  # acos_beyond_one


def logit_at_one() -> Tensor:
    x = leaf(1.0)
    return torch.logit(x).sum()  # logit_at_one


def exp_overflow() -> Tensor:
    x = leaf(100.0)
    return x.exp().sum()  # exp_overflow


def exp_overflow_half() -> Tensor:
    x = leaf(12.0, dtype=HALF)
    return x.exp().sum()  # exp_overflow_half


def exp_overflow_beside_a_mask() -> Tensor:
    scores = leaf(100.0, 2.0, 1.0)[None].expand(2, 3)
    masked = scores.masked_fill(torch.tensor([False, False, True]), -INF)
    weights = masked.exp()  # exp_overflow_beside_a_mask
    return (weights / weights.sum(-1, keepdim=True)).sum()


def inf_over_inf() -> Tensor:
    x = leaf(1.0, 2.0)
    a = x.masked_fill(torch.tensor([True, False]), INF)
    return (a / a.sum()).sum()  # inf_over_inf


def cosh_overflow() -> Tensor:
    x = leaf(-100.0)
    return x.cosh().sum()  # cosh_overflow


def masked_row() -> Tensor:
    scores = leaf(1.0, 2.0)[None].expand(2, 2)
    mask = torch.tensor([[False, True], [True, True]])
    return scores.masked_fill(mask, -INF).softmax(-1).sum()  # masked_row


def infinities_meet() -> Tensor:
    x = leaf(1.0, 2.0)
    a = x.masked_fill(torch.tensor([True, False]), INF)
    return (a - a).sum()  # infinities_meet


def mask_by_arithmetic() -> Tensor:
    mask = torch.tensor([1.0, 0.0])
    return ((1 - mask) * -INF).sum()  # mask_by_arithmetic


def zero_times_infinity() -> Tensor:
    x = leaf(0.0, 2.0)
    a = torch.full((2,), INF)
    return (x * a).sum()  # zero_times_infinity


def std_of_one() -> Tensor:
    x = leaf(1.0)
    return x.std()  # std_of_one


def all_ignored() -> Tensor:
    logits = leaf(1.0, 2.0)[None]
    return F.cross_entropy(logits, torch.tensor([-100]))  # all_ignored


def entropy_of_certainty() -> Tensor:
    p = leaf(20.0, -200.0).softmax(0)
    log_p = p.log()  # entropy_of_certainty
    return -(p * log_p).sum()


def hand_written_rms_norm() -> Tensor:
    x = leaf(0.0, 0.0)
    scale = torch.rsqrt(x.square().mean())  # hand_written_rms_norm
    return (x * scale).sum()


def einsum_overflow() -> Tensor:
    a = torch.full((2, 3, 8), 200.0, dtype=HALF)
    return torch.einsum("bij,bkj->bik", a, a).sum()  # einsum_overflow


def convolution_overflow() -> Tensor:
    x, w = torch.full((1, 4, 8), 200.0, dtype=HALF), torch.full((2, 4, 3), 200.0, dtype=HALF)
    return F.conv1d(x, w).sum()  # convolution_overflow


def scatter_overflow() -> Tensor:
    into, x = torch.zeros(2, dtype=HALF), leaf(4e4, 4e4, dtype=HALF)
    return into.scatter_add(0, torch.zeros(2, dtype=torch.long), x).sum()  # scatter_overflow


def singular_matrix() -> Tensor:
    x = torch.eye(2) * leaf(1e-42)
    return torch.linalg.inv(x).sum()  # singular_matrix


def layer_norm_without_eps() -> Tensor:
    return F.layer_norm(leaf(1.0, 1.0), (2,), eps=0.0).sum()  # layer_norm_without_eps


def mean_of_nothing() -> Tensor:
    return leaf(1.0)[:0].mean()  # mean_of_nothing


def masked_target() -> Tensor:
    logits = leaf(1.0, 2.0)[None].masked_fill(torch.tensor([[True, False]]), -INF)  # masked_target
    return F.cross_entropy(logits, torch.tensor([0]))


def nan_written() -> Tensor:
    x = leaf(1.0, 2.0) * 1
    x[0] = float("nan")  # nan_written
    return x.sum()


FAULTS: list[tuple[Callable[[], Tensor], str, Reason]] = [
    (mul_overflow, "aten.mul", Reason.OVERFLOW),
    (add_overflow, "aten.add", Reason.OVERFLOW),
    (matmul_overflow, "aten.mm", Reason.OVERFLOW),
    (linear_overflow, "aten.addmm", Reason.OVERFLOW),
    (sum_overflow, "aten.sum", Reason.OVERFLOW),
    (square_overflow, "aten.pow", Reason.OVERFLOW),
    (cast_overflow, "aten._to_copy", Reason.OVERFLOW),
    (float_division_overflow, "aten.div", Reason.OVERFLOW),
    (divide_by_zero, "aten.div", Reason.DIVISION_BY_ZERO),
    (zero_by_zero, "aten.div", Reason.DIVISION_BY_ZERO),
    (reciprocal_of_zero, "aten.reciprocal", Reason.DIVISION_BY_ZERO),
    (rsqrt_of_zero, "aten.rsqrt", Reason.DIVISION_BY_ZERO),
    (negative_power_of_zero, "aten.pow", Reason.DIVISION_BY_ZERO),
    (inplace_division, "aten.div_", Reason.DIVISION_BY_ZERO),
    (log_of_negative, "aten.log", Reason.DOMAIN),
    (log_of_relu, "aten.log", Reason.DOMAIN),
    (sqrt_of_negative, "aten.sqrt", Reason.DOMAIN),
    (fractional_power_of_negative, "aten.pow", Reason.DOMAIN),
    (acos_beyond_one, "aten.acos", Reason.DOMAIN),
    (logit_at_one, "aten.logit", Reason.DOMAIN),
    (exp_overflow, "aten.exp", Reason.EXP_OVERFLOW),
    (exp_overflow_half, "aten.exp", Reason.EXP_OVERFLOW),
    (exp_overflow_beside_a_mask, "aten.exp", Reason.EXP_OVERFLOW),
    (inf_over_inf, "aten.div", Reason.INF_MINUS_INF),
    (cosh_overflow, "aten.cosh", Reason.EXP_OVERFLOW),
    (masked_row, "aten._softmax", Reason.INF_MINUS_INF),
    (infinities_meet, "aten.sub", Reason.INF_MINUS_INF),
    (mask_by_arithmetic, "aten.mul", Reason.ZERO_TIMES_INF),
    (zero_times_infinity, "aten.mul", Reason.ZERO_TIMES_INF),
    (std_of_one, "aten.std", Reason.DIVISION_BY_ZERO),
    (all_ignored, "aten.nll_loss_forward", Reason.DIVISION_BY_ZERO),
    (entropy_of_certainty, "aten.log", Reason.DOMAIN),
    (hand_written_rms_norm, "aten.rsqrt", Reason.DIVISION_BY_ZERO),
    (einsum_overflow, "aten.bmm", Reason.OVERFLOW),
    (convolution_overflow, "aten.convolution", Reason.OVERFLOW),
    (scatter_overflow, "aten.scatter_add", Reason.OVERFLOW),
    (singular_matrix, "aten.linalg_inv_ex", Reason.DIVISION_BY_ZERO),
    (layer_norm_without_eps, "aten.native_layer_norm", Reason.DIVISION_BY_ZERO),
    (mean_of_nothing, "aten.mean", Reason.DIVISION_BY_ZERO),
    (masked_target, "aten.masked_fill", Reason.UNKNOWN),
    (nan_written, "", Reason.UNKNOWN),
]


@pytest.mark.parametrize("fault, op, reason", FAULTS, ids=[f.__name__ for f, _, _ in FAULTS])
def test_forward_fault_is_named_with_op_line_and_reason(fault: Callable[[], Tensor], op: str, reason: Reason) -> None:
    run = traced(fault)
    culprit = run.culprit(run.result)
    assert culprit is not None
    if op:
        assert culprit.op == op
    assert (culprit.file, culprit.line) == (__file__, line_of(fault.__name__, __file__)), culprit
    assert culprit.code.endswith(f"# {fault.__name__}")
    assert culprit.reason == reason, culprit
    assert culprit.advice and culprit.detail


# ---- faults that arise in the backward only: the line is the forward's


def grad_sqrt_at_zero() -> Tensor:
    x = leaf(0.0, 4.0)
    y = x.sqrt()  # grad_sqrt_at_zero
    return y.sum()


def grad_norm_by_hand() -> Tensor:
    x = leaf(0.0, 0.0)
    return (x**2).sum().sqrt()  # grad_norm_by_hand


def grad_half_power() -> Tensor:
    x = leaf(0.0, 4.0)
    return (x**0.3).sum()  # grad_half_power


def grad_log_hidden_by_where() -> Tensor:
    x = leaf(0.0, 4.0)
    y = torch.log(x)  # grad_log_hidden_by_where
    return torch.where(x > 0, y, torch.zeros(())).sum()


def grad_sqrt_negative_hidden_by_where() -> Tensor:
    x = leaf(-1.0, 4.0)
    y = torch.sqrt(x)  # grad_sqrt_negative_hidden_by_where
    return torch.where(x > 0, y, torch.zeros(())).sum()


def grad_division_hidden_by_where() -> Tensor:
    x = leaf(0.0, 4.0)
    y = 1 / x  # grad_division_hidden_by_where
    return torch.where(x > 0, y, torch.zeros(())).sum()


def grad_exp_hidden_by_where() -> Tensor:
    x = leaf(1000.0, 4.0)
    y = torch.exp(x)  # grad_exp_hidden_by_where
    return torch.where(x < 10, y, torch.zeros(())).sum()


def grad_acos_at_one() -> Tensor:
    x = leaf(1.0)
    return torch.acos(x).sum()  # grad_acos_at_one


def grad_half_overflow() -> Tensor:
    x = leaf(1e-4, dtype=HALF)
    y = x * 1000.0  # grad_half_overflow
    return (y * 1000.0 - y * 900.0 + 0).sum()


def grad_hypot_at_zero() -> Tensor:
    x, y = leaf(0.0), leaf(0.0)
    return torch.hypot(x, y).sum()  # grad_hypot_at_zero


def grad_root_that_clamp_hides() -> Tensor:
    x = leaf(0.0, 4.0)
    y = x.sqrt()  # grad_root_that_clamp_hides
    return y.clamp(min=1).sum()


def grad_of_coinciding_eigenvalues() -> Tensor:
    x = torch.eye(2) * leaf(1.0)
    _, vectors = torch.linalg.eigh(x)  # grad_of_coinciding_eigenvalues
    return vectors.sum()


def grad_exponential_that_where_hides_downstream() -> Tensor:
    x = leaf(1000.0, 1.0)
    y = torch.exp(x)  # grad_exponential_that_where_hides_downstream
    z = x * y
    return torch.where(x < 10, z, torch.zeros(())).sum()


def grad_of_broadcast_bias() -> Tensor:
    b = leaf(1.0, dtype=HALF)
    return (torch.ones(70000, dtype=HALF) + b).float().sum()  # grad_of_broadcast_bias


def grad_exponent_of_negative_base() -> Tensor:
    x, y = leaf(-2.0), leaf(2.0)
    return (x**y).sum()  # grad_exponent_of_negative_base


def grad_summed_over_uses() -> Tensor:
    x = leaf(0.0, dtype=HALF) * 1
    a = x * 40000.0
    b = x * 40000.0  # the engine adds to what this line's gradient was
    return (a + b).sum()


GRADIENT_FAULTS: list[tuple[Callable[[], Tensor], Reason]] = [
    (grad_sqrt_at_zero, Reason.GRADIENT_AT_ZERO),
    (grad_norm_by_hand, Reason.GRADIENT_AT_ZERO),
    (grad_half_power, Reason.GRADIENT_AT_ZERO),
    (grad_log_hidden_by_where, Reason.DOMAIN),
    (grad_sqrt_negative_hidden_by_where, Reason.DOMAIN),
    (grad_division_hidden_by_where, Reason.DIVISION_BY_ZERO),
    (grad_exp_hidden_by_where, Reason.ZERO_TIMES_INF),
    (grad_acos_at_one, Reason.DOMAIN),
    (grad_half_overflow, Reason.OVERFLOW),
    (grad_hypot_at_zero, Reason.GRADIENT_AT_ZERO),
    (grad_root_that_clamp_hides, Reason.GRADIENT_AT_ZERO),
    (grad_of_coinciding_eigenvalues, Reason.DIVISION_BY_ZERO),
    (grad_exponential_that_where_hides_downstream, Reason.EXP_OVERFLOW),
    (grad_of_broadcast_bias, Reason.OVERFLOW),
    (grad_exponent_of_negative_base, Reason.DOMAIN),
]


def _leaves_of(run: Run) -> list[Tensor]:
    """The leaves that a run's graph ends in."""
    found: list[Tensor] = []
    todo, seen = [run.graph], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    return found


@pytest.mark.parametrize("fault, reason", GRADIENT_FAULTS, ids=[f.__name__ for f, _ in GRADIENT_FAULTS])
def test_backward_fault_is_named_with_its_forward_line(fault: Callable[[], Tensor], reason: Reason) -> None:
    run = traced(fault, backward=True)
    assert torch.isfinite(run.result), "the fault must lie in the backward alone"
    culprit = run.culprit(*(x.grad for x in _leaves_of(run)))
    assert culprit is not None
    assert (culprit.file, culprit.line) == (__file__, line_of(fault.__name__, __file__)), culprit
    assert culprit.reason == reason, culprit


def test_sum_of_gradients_over_several_uses_says_so() -> None:
    run = traced(grad_summed_over_uses, backward=True)
    culprit = run.culprit(*(x.grad for x in _leaves_of(run)))
    assert culprit is not None and culprit.reason == Reason.OVERFLOW and culprit.op == "aten.add"
    assert culprit.detail.startswith("Gradient accumulation of a tensor that is used more than once: ")


def test_second_rule_for_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"explains: got 'exp' twice, expected one rule an operator"):
        explains("exp")(lambda case: None)


def test_digits_tell_a_number_from_its_bound() -> None:
    assert [number(62700.0), number(6.27e9), number(1.0001, 1.0), number(0.5)] == ["62700", "6.27e+09", "1.0001", "0.5"]


def test_detail_shows_the_numbers_that_overflowed() -> None:
    run = traced(mul_overflow)
    culprit = run.culprit(run.result)
    assert culprit is not None
    assert culprit.detail == "Largest |self| 300 × |other| 300 exceeds float16's maximum 65504."
    assert "bfloat16" in culprit.advice


def test_advice_names_the_module_as_python_writes_it() -> None:
    run = traced(mul_overflow, module_name=lambda: "encoder.block.2.wo")
    culprit = run.culprit(run.result)
    assert culprit is not None and "numscope.high_precision(model.encoder.block[2].wo)" in culprit.advice
