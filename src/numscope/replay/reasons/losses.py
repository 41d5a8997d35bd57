"""The rules for softmax, attention and losses."""

from __future__ import annotations

from numscope.records.finding import Reason
from numscope.replay.reasons.case import SOFTMAX, Case, Verdict, explains


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
        return (
            Reason.DIVISION_BY_ZERO,
            "No target counts (every one is ignore_index or has weight 0): the mean is 0/0.",
            "Skip such a batch, or use reduction='sum' and divide by max(count, 1).",
        )
    if case.nonfinite_input:
        return (
            Reason.UNKNOWN,
            "The log-probability of a target is -inf.",
            "A target points at a masked class: unmask it or ignore that position (ignore_index).",
        )
    return None


@explains("_ctc_loss", "_cudnn_ctc_loss", "ctc_loss")
def _alignment(case: Case) -> Verdict | None:
    if case.nonfinite_input:
        return None
    return (
        Reason.DOMAIN,
        "A target is longer than its input (two equal labels in a row need one more step), so no alignment exists.",
        "Drop such examples, give them longer inputs, or use zero_infinity=True.",
    )
