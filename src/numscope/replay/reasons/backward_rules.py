"""The rules for gradients: why a backward operation made a non-finite value, by the forward operation whose gradient it computes."""

from __future__ import annotations

from numscope.records.finding import Reason
from numscope.replay.reasons.arithmetic import away_from_zero, floored, integer_divisor
from numscope.replay.reasons.case import Case, Verdict, attribute, explains_gradient_of, number, of, overflow
from numscope.replay.reasons.functions import DOMAINS, clamped, domain, exponential, x_log_y

HIDDEN = "torch.where, clamp and indexing hide a bad value from the result, not from the gradient: clamp the argument before them."


@explains_gradient_of("sqrt", "norm", "linalg_vector_norm", "std", "std_mean", "_cdist_forward", "_pdist_forward", "hypot", "dist")
def _root_at_zero(case: Case, forward: Case) -> Verdict | None:
    if forward.output is None:
        return None
    if forward.output.num_nan and forward.op == "sqrt":
        return domain(forward)
    zeros = forward.output.num_zero
    if not zeros:
        return None
    what = f"{of(zeros, forward.output.numel, f'results of {forward.op}')} 0, where its {case.derivative}"
    advice = "Add eps under the root"
    if forward.op == "sqrt":
        first, advice = "1/(2 sqrt(x)) is inf", f"{advice}: {case.wide(f'torch.sqrt({{x}} + {case.eps()})')}."
    elif forward.op in ("std", "std_mean"):
        first, advice = "(x - mean(x)) / std(x) is 0/0", f"{advice}: {case.wide(f'torch.sqrt({{x}}.var() + {case.eps()})')}."
    else:
        first, advice = "x / norm(x) is 0/0", f"{advice}: {case.wide('torch.sqrt({x}.square().sum() + 1e-12)')}."
    return Reason.GRADIENT_AT_ZERO, f"{what} {first if case.order == 1 else 'divides by it'}.", advice


@explains_gradient_of("_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_qr", finite=True)
def _coinciding_values(case: Case, forward: Case) -> Verdict | None:
    if case.op not in ("div", "reciprocal"):
        return None
    detail = f"Two eigenvalues or singular values coincide: the gradient of {forward.op} divides by their difference 0."
    return (
        Reason.DIVISION_BY_ZERO,
        detail,
        "Avoid a loss on such vectors, or perturb the matrix first, not by a multiple of the identity.",
    )


@explains_gradient_of("pow")
def _power_at_zero(case: Case, forward: Case) -> Verdict | None:
    base, exponent = forward.operand("self"), forward.operand("exponent")
    zeros = of(base.num_zero, base.numel, "bases") if base.num_zero else ""
    if zeros and exponent.low < 0:
        return Reason.DIVISION_BY_ZERO, f"{zeros} 0, raised to {number(exponent.low)}.", floored(forward, base, exponent)
    if zeros and exponent.low < case.order and exponent.low % 1:
        detail = f"{zeros} 0, where the {case.derivative} of x ** {number(exponent.low)} is inf."
        return Reason.GRADIENT_AT_ZERO, detail, floored(forward, base, exponent)
    if base.low < 0 and case.has_nan:
        return Reason.DOMAIN, f"Smallest base {number(base.low)} < 0: the gradient needs its logarithm.", floored(forward, base, exponent)
    return None


@explains_gradient_of("log", "log2", "log10", "log1p", "logit", "xlogy", "special_xlogy", "binary_cross_entropy", "lgamma", "erfinv")
def _gradient_outside_domain(case: Case, forward: Case) -> Verdict | None:
    verdict = domain(forward) if forward.op in DOMAINS else x_log_y(forward)
    if verdict is None:
        return None
    reason, detail, advice = verdict
    return (
        reason,
        f"{detail} Its gradient there is infinite, though the loss may not show it.",
        f"{advice} A torch.where around it hides the value, not the gradient: clamp the argument inside.",
    )


@explains_gradient_of("acos", "asin", "acosh", "atanh")
def _gradient_at_the_end(case: Case, forward: Case) -> Verdict | None:
    x, verdict = forward.operand("self"), domain(forward)
    if verdict is not None:
        return verdict
    low, high, _, _ = DOMAINS[forward.op]
    at = [v for v, end in ((x.low, low), (x.high, high)) if v == end]
    if not at:
        return None
    detail = f"An argument of {forward.op} is {number(at[0])}, where its {case.derivative} is infinite."
    return Reason.DOMAIN, detail, clamped(forward, forward.op)


@explains_gradient_of("atan2")
def _angle_of_nothing(case: Case, forward: Case) -> Verdict | None:
    y, x = forward.operand("self"), forward.operand("other")
    if not (y.num_zero and x.num_zero):
        return None
    detail = f"Arguments of atan2 are 0, where its {case.derivative} divides by the sum of their squares."
    return Reason.GRADIENT_AT_ZERO, detail, "Keep one of them away from 0, or leave such elements out of the loss by indexing."


@explains_gradient_of("div", "reciprocal", "rsqrt", "addcdiv")
def _gradient_of_quotient(case: Case, forward: Case) -> Verdict | None:
    hidden = "A torch.where around it hides the value, not the gradient."
    counts = integer_divisor(forward)
    if counts is not None:
        detail = f"A divisor of {forward.op} in {counts.name}, {counts.value}, is 0, so its gradient is not finite."
        return Reason.DIVISION_BY_ZERO, detail, f"Clamp the divisor, which is probably a count: x / count.clamp_min(1). {hidden}"
    names = ("other", "tensor2") if forward.op in ("div", "addcdiv") else ("self",)
    divisor = forward.operand(*names)
    if divisor.num_zero:
        detail = f"{of(divisor.num_zero, divisor.numel, f'divisors of {forward.op}')} 0, so its gradient is not finite."
        return Reason.DIVISION_BY_ZERO, detail, f"{away_from_zero(forward, divisor)} {hidden}"
    if not case.nonfinite_input and divisor.abs_min:
        return overflow(case, f"The gradient divides by powers of the divisor, smallest {number(divisor.abs_min)}, and")
    return None


@explains_gradient_of("exp", "exp2", "expm1", "sinh", "cosh", "mul", "mm", "bmm", "addmm")
def _zero_times_saved_infinity(case: Case, forward: Case) -> Verdict | None:
    if not case.nonfinite_input or not case.has_nan:
        return None
    made = exponential(forward) if forward.op in ("exp", "exp2", "expm1", "sinh", "cosh") else None
    why = f" ({made[1].rstrip('.')})" if made is not None else ""
    where = attribute(case.module) if case.module else "the forward"
    return (
        Reason.ZERO_TIMES_INF,
        f"The gradient of {forward.op} multiplies 0 by an inf that {where} made and the loss never saw{why}.",
        HIDDEN,
    )
