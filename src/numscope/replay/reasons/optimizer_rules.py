"""The rules for optimizer steps."""

from __future__ import annotations

from numscope.records.finding import Reason
from numscope.replay.reasons.case import FLOAT32_RANGE, Case, Verdict, explains, of

_IN_FLOAT32 = "Keep the weights and the optimizer's state in float32 (torch.autocast instead of a model in half precision)"


@explains("_fused_adagrad", "_fused_adam", "_fused_adamw", finite=True)
def _fused(case: Case) -> Verdict | None:
    squares, gradients, eps = case.operand("state_sums", "exp_avg_sqs"), case.operand("grads"), case.operand("eps")
    zeros = min(squares.num_zero, gradients.num_zero)  # the operation adds the gradients' squares first
    if not zeros or not case.has_nan or (eps.high and case.rounded is None):
        return None
    return Reason.DIVISION_BY_ZERO, f"{of(zeros, squares.numel, 'sums of squared gradients')} 0 (0/0 is nan).", ""


def update(case: Case, verdict: Verdict) -> Verdict:
    """The verdict on an operation of an optimizer's step, given the one on the operation alone."""
    reason, detail, advice = verdict
    if case.nonfinite_value:
        advice = "Check the learning rate, its schedule, and the other numbers given to the optimizer."
        return Reason.OPTIMIZER_UPDATE, f"The update was computed with {case.nonfinite_value}.", advice
    is_narrow = case.limit < FLOAT32_RANGE
    eps, keep = ("1e-4", f"{_IN_FLOAT32}, or ") if is_narrow else ("1e-8", "")
    if reason == Reason.DIVISION_BY_ZERO and case.rounded is not None:
        advice = _sentence(f"{keep}give the optimizer an eps of at least {eps}.")
    elif reason == Reason.DIVISION_BY_ZERO:
        advice = f"Give the optimizer a positive eps, added behind the root to what it divides by: eps={eps}."
    elif reason == Reason.OVERFLOW:
        advice = _sentence(f"{keep}clip gradients (torch.nn.utils.clip_grad_norm_) and lower the learning rate.")
    elif reason not in (Reason.DOMAIN, Reason.EXP_OVERFLOW):  # their own advice fits here too
        advice = "Check the learning rate, eps and weight decay, and clip gradients."
    return Reason.OPTIMIZER_UPDATE, f"{reason.value}: {detail}", advice


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
