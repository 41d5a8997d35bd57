"""The rules for functions with a domain, exponentials, softmax, attention and losses."""

from __future__ import annotations

import math

from numscope.records.finding import Reason
from numscope.replay.reasons.case import FLOAT32_RANGE, SOFTMAX, Case, Range, Verdict, counts, explains, number, of

DOMAINS: dict[str, tuple[float, float, bool, str]] = {  # op: lowest, highest, whether the ends are inside, why arguments leave it
    "log": (0.0, math.inf, False, "For log(softmax(x)) use F.log_softmax."),
    "log2": (0.0, math.inf, False, ""),
    "log10": (0.0, math.inf, False, ""),
    "log1p": (-1.0, math.inf, False, ""),
    "logit": (0.0, 1.0, False, ""),
    "sqrt": (0.0, math.inf, True, "Rounding can make a variance negative."),
    "acos": (-1.0, 1.0, True, "Rounding can carry a cosine beyond 1."),
    "asin": (-1.0, 1.0, True, ""),
    "atanh": (-1.0, 1.0, False, ""),
    "acosh": (1.0, math.inf, True, ""),
    "lgamma": (0.0, math.inf, False, "It has poles at 0 and the negative integers."),
    "digamma": (0.0, math.inf, False, "It has poles at 0 and the negative integers."),
    "erfinv": (-1.0, 1.0, False, ""),
    "special_ndtri": (0.0, 1.0, False, ""),
}


def clamped(case: Case, op: str) -> str:
    """Advice that holds in the backward too: at a domain's end the derivative is infinite, so the end itself is left out."""
    low, high, _, why = DOMAINS[op]
    eps = case.eps(2.0 if op == "digamma" else 1.0)
    lowest = eps if low == 0 else f"{low:g} + {eps}"
    bounds = f"clamp_min({lowest})" if high == math.inf else f"clamp({lowest}, {high:g} - {eps})"
    if op != case.op:  # the logarithm is within another operation
        return f"Clamp what its logarithm is taken of: {case.wide(f'{{x}}.{bounds}', 'y')}."
    call = case.wide(f"torch.{op.replace('special_', 'special.')}({{x}}.{bounds})")
    return f"Clamp the argument: {call}.{' ' if why else ''}{why}"


def _outside(case: Case, x: Range, op: str) -> Verdict | None:
    low, high, inside, _ = DOMAINS[op]
    # nan comes of what lies beyond an end; at an open end itself the result is infinite
    if x.low < low or (not inside and (x.low == low or (low == 0 and x.num_zero))):
        value = min(x.low, low)
        bound = f" < {number(low)}" if value < low else ""
    elif x.high > high or (not inside and x.high == high):
        value = x.high
        bound = f" > {number(high)}" if value > high else ""
    else:
        return None
    zeros = f"; {of(x.num_zero, x.numel, 'arguments')} 0" if x.num_zero and low == 0 else ""
    extreme = "Smallest" if value <= low else "Largest"
    return Reason.DOMAIN, f"{extreme} argument of {op} is {number(value, low if value <= low else high)}{bound}{zeros}.", clamped(case, op)


@explains(*DOMAINS)
def domain(case: Case) -> Verdict | None:
    return _outside(case, case.operand("self", "input"), case.op)


@explains("xlogy", "special_xlogy", "special_xlog1py", "binary_cross_entropy")
def x_log_y(case: Case) -> Verdict | None:
    y = case.operand("self") if case.op == "binary_cross_entropy" else case.operand("other")
    return _outside(case, y, "log1p" if case.op == "special_xlog1py" else "log")


@explains("rsqrt")
def _inverse_root(case: Case) -> Verdict | None:
    x = case.operand("self")
    if case.has_nan and x.low < 0:
        advice = (
            f"Clamp the argument: {case.wide(f'torch.rsqrt({{x}}.clamp_min({case.eps(1.5)}))')}. Rounding can make a variance negative."
        )
        return Reason.DOMAIN, f"Smallest argument of rsqrt is {number(x.low)} < 0.", advice
    if x.num_zero:
        advice = f"Add eps inside the root: {case.wide(f'torch.rsqrt({{x}} + {case.eps(1.5)})')}."
        return Reason.DIVISION_BY_ZERO, f"{of(x.num_zero, x.numel, 'arguments of rsqrt')} 0.", advice
    return None


@explains("exp", "exp2", "expm1", "sinh", "cosh", "special_expit", "softplus", "elu", "logaddexp")
def exponential(case: Case) -> Verdict | None:
    x = case.operand("self")
    even = case.op in ("sinh", "cosh")
    # a masked score's -inf gives 0 here and explains nothing
    if case.has_nan or any(n.num_nan or n.num_pos_inf or (even and n.num_neg_inf) for n in case.tensors):
        return None
    largest = x.abs_max if even else x.high
    bound = math.log2(case.limit) if case.op == "exp2" else math.log(case.limit) + (math.log(2) if even else 0)
    # what is made of the result, its square in an optimizer's state too, is to stay in range; a half's range is too narrow for that
    most = int(bound / (2 if case.limit < FLOAT32_RANGE else 4))
    return (
        Reason.EXP_OVERFLOW,
        f"Largest argument of {case.op} {number(largest)}; {case.dtype} holds its results for arguments up to {number(bound)}.",
        "Subtract the maximum first (softmax, logsumexp), use F.softplus or log-probabilities, or clamp the argument: "
        f"x.clamp({-most}, {most}).",
    )


@explains(*SOFTMAX)
def _softmax(case: Case) -> Verdict | None:
    masked = [n for n in case.tensors if n.num_neg_inf]
    if masked and case.has_nan:
        return (
            Reason.INF_MINUS_INF,
            f"A whole row is -inf ({masked[0].num_neg_inf} of {masked[0].numel} entries are): -inf minus its maximum -inf is nan.",
            "Leave an entry of each row unmasked, or mask with a large finite number (torch.finfo(dtype).min) and zero such rows after.",
        )
    if any(n.num_pos_inf for n in case.tensors):
        advice = "Find where the scores became inf: clamp or scale them before the softmax."
        return Reason.INF_MINUS_INF, "inf minus the row's maximum inf is nan.", advice
    return None


@explains("nll_loss_forward", "nll_loss2d_forward", "cross_entropy_loss", "nll_loss_nd")
def _negative_log_likelihood(case: Case) -> Verdict | None:
    total = case.outputs[1].numbers if len(case.outputs) > 1 else None
    if case.has_nan and total is not None and total.num_zero:
        detail = "No target counts (every one is ignore_index or has weight 0): the mean is 0/0."
        return Reason.DIVISION_BY_ZERO, detail, "Skip such a batch, or use reduction='sum' and divide by max(count, 1)."
    if case.nonfinite_input:
        detail = "The log-probability of a target is -inf."
        return Reason.UNKNOWN, detail, "A target points at a masked class: unmask it or ignore that position (ignore_index)."
    return None


@explains("_ctc_loss", "_cudnn_ctc_loss", "ctc_loss", finite=True)
def _alignment(case: Case) -> Verdict | None:
    detail = "A target is longer than its input (two equal labels in a row need one more step), so no alignment exists."
    return Reason.DOMAIN, detail, "Drop such examples, give them longer inputs, or use zero_infinity=True."


@explains(
    *("recv", "recv_any_source", "irecv", "broadcast", "allgather", "_allgather_base", "all_gather_into_tensor"),
    *("alltoall", "alltoall_base", "all_to_all_single"),
    finite=True,
)
def _sent(case: Case) -> Verdict:
    detail = f"It came from another rank, which sent {counts(case.output)}."
    return Reason.BAD_INPUT, detail, "Look at that rank: its own report names what made it."
