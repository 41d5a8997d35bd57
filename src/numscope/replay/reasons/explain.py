"""Why an operation made a non-finite value, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import torch

from numscope.records.faults import ours
from numscope.records.finding import Reason
from numscope.records.site import Phase
from numscope.replay.reasons import arithmetic, backward_rules, functions, optimizer_rules  # registers their rules
from numscope.replay.reasons.case import (
    FORWARD,
    GRADIENT,
    LIFTS,
    Case,
    Root,
    Rounded,
    Source,
    Verdict,
    counts,
    overflow,
    zeros_and_ones,
)

__all__ = ["explain"]
_RULES = (arithmetic, backward_rules, functions, optimizer_rules)
_MASK_ADVICE = "Mask with a large finite number (torch.finfo(dtype).min) instead of an infinity, which becomes nan here."


def explain(case: Case) -> Verdict:
    """Reason, detail and advice for one case; never fails."""
    try:
        reason, detail, advice = _explain(case)
        return reason, f"T{detail[1:]}" if detail.startswith("the ") else detail, advice
    except ours(ArithmeticError, ValueError, TypeError):
        return Reason.UNKNOWN, "No rule explains these numbers.", "Look at the operands' ranges."


def _explain(case: Case) -> Verdict:
    if case.root is not None:
        return _bad_before(case.root)
    if case.uninitialized:
        detail = f"Memory that {case.op} left uninitialized was read before any operation had written it."
        advice = "Use torch.zeros, or write all of it before it is read: torch.nn.init for a weight. What NumPy writes into it is not seen."
        return Reason.UNINITIALIZED, detail, advice
    if case.deliberate:
        return _written_on_purpose(case)
    if case.phase == Phase.OPTIMIZER:
        return optimizer_rules.update(case, _by_rule(case))
    reason, detail, advice = _by_rule(case)
    if case.accumulates:
        return reason, f"Gradient accumulation of {case.accumulates}: {detail}", advice
    if case.contained:
        detail += " The loss never saw it, but its gradient did."
        advice += (
            " What hides it later hides the value, not the gradient; with torch.where, write torch.where(ok, f(torch.where(ok, x, 1)), 0)."
        )
    return reason, detail, advice


def _by_rule(case: Case) -> Verdict:
    verdict: Verdict | None = None
    sources: list[Case] = []  # the operation that was differentiated comes last, before it those that did so, the latest first
    while case.phase == Phase.BACKWARD and not case.accumulates and (source := (sources[-1] if sources else case).forward) is not None:
        sources.append(source)
    for order, source in reversed([*enumerate(sources, 1)]):
        if verdict is None and source.op in GRADIENT:
            verdict = GRADIENT[source.op](replace(case, order=order), source)
            if verdict is not None and source.rounded is not None:
                verdict = _rounded(source.rounded, verdict)
    if verdict is None and case.op in FORWARD:
        verdict = FORWARD[case.op](case)
        if verdict is not None and case.rounded is not None:
            verdict = _rounded(case.rounded, verdict)
    unknown = (Reason.UNKNOWN, f"{case.op} of finite operands gave {counts(case.output)}.", "Look at the operands' ranges.")
    return verdict or _from_infinities(case) or overflow(case) or unknown


def _rounded(small: Rounded, verdict: Verdict) -> Verdict:
    """An operand is 0 although something was added to it, which was too small for the dtype."""
    reason, detail, _ = verdict
    if reason not in (Reason.DIVISION_BY_ZERO, Reason.DOMAIN, Reason.GRADIENT_AT_ZERO):
        return verdict
    limits = torch.finfo(small.dtype)
    dtype = str(small.dtype).removeprefix("torch.")
    detail += (
        f" The {small.value:g} that should prevent this rounds to 0 in {dtype}, "
        f"whose smallest positive number is {limits.smallest_normal * limits.eps:.3g}."
    )
    half = limits.bits < 32
    return reason, detail, f"Use a larger number than {small.value:g}, such as {'1e-4, or compute this in float32' if half else '1e-6'}."


_LOADED = "Check the batch: how it was loaded, normalized and augmented, or what computed it before the model was called."
_WRITTEN = "Check what wrote it last: an earlier update (its gradients and learning rate), a loaded checkpoint, or the script itself."
SCRIPT_WRITES = (
    "Look for what writes it, before the call or within it: an initialization from data, a clamp, an average, a loaded checkpoint."
)
NEVER_WRITTEN = (
    "It was so when it was first seen: check the checkpoint that was loaded, and whether it was ever initialized "
    "(to_empty() and torch.empty leave memory uninitialized)."
)
_BAD_BEFORE: dict[Source, tuple[str, str]] = {
    Source.ARGUMENT: ("{} held {} before any operation.", _LOADED),
    Source.OUTPUT: ("{} held {}.", "Check the model, whose output the loss was given."),
    Source.LOSS: (
        "{}, an input of the loss that the model did not make, held {}.",
        "It may be a target, a return, an advantage or a weight: check where it was computed.",
    ),
    Source.OUTSIDE: (
        "{}, which is no argument, parameter or buffer of the model, held {} before the model was called.",
        "Check where it was computed.",
    ),
    Source.GRADIENT: ("{} held {} when it reached the model.", "The loss's own backward made it: check the loss function."),
    Source.GRAD: ("{} of torch.autograd.grad held {}.", "Check the loss that torch.autograd.grad was given."),
    Source.STATE: ("{} held {} before this step.", _WRITTEN),
}


def _bad_before(root: Root) -> Verdict:
    detail, advice = _BAD_BEFORE[root.source]
    if root.source in (Source.LOSS, Source.OUTSIDE) and (root.numbers is None or not root.numbers.num_nan):
        advice += " An infinity comes from an overflow, log(0) or a division by zero there: normalize or clip."
    reason = Reason.BAD_PARAMETER if root.source is Source.STATE else Reason.BAD_INPUT
    return reason, detail.format(root.name, counts(root.numbers)), advice


def _written_on_purpose(case: Case) -> Verdict:
    written = case.nonfinite_value.partition(" = ")[2] or counts(case.output)
    if case.op in LIFTS:
        advice = "Check where this number was computed; masks take a large finite number (torch.finfo(dtype).min)."
        return Reason.UNKNOWN, f"This tensor is made of {written}, from Python or NumPy, and it reached what must be finite.", advice
    if case.has_nan:
        advice = "Write a finite number, or keep these positions out of the loss."
    else:
        advice = (
            "Use a large finite number (torch.finfo(dtype).min), or keep masked positions, and targets that point at them, out of the loss."
        )
    return Reason.UNKNOWN, f"The code itself wrote {written} here, and it reached what must be finite.", advice


def _from_infinities(case: Case) -> Verdict | None:
    tensors = case.tensors
    infinite = [n for n in tensors if n.num_nonfinite]
    if case.op in LIFTS:
        detail = f"The numbers that this tensor is made of, from Python, NumPy, a file or another process, held {counts(case.output)}."
        return Reason.BAD_INPUT, detail, "Check where these numbers were computed."
    is_nan = case.nonfinite_value.endswith("nan")  # no mask is made by that
    if case.nonfinite_value and not infinite and (is_nan or not all(map(zeros_and_ones, tensors))):
        return Reason.BAD_INPUT, f"{case.op} was given {case.nonfinite_value}.", "Check where this number was computed."
    if not case.nonfinite_input or not case.has_nan:
        return None
    if case.op in ("div", "divide", "true_divide") and len(infinite) > 1 and not any(n.num_nan for n in infinite):
        detail = f"inf was divided by inf: {counts(infinite[0])} by {counts(infinite[1])}."
        return Reason.INF_MINUS_INF, detail, "Divide finite numbers: subtract the maximum before exp, or clamp both."
    zeros = any(n.num_zero for n in tensors if n not in infinite) or any(v == 0 for v in case.values.values() if isinstance(v, int | float))
    advice = backward_rules.HIDDEN if case.phase == Phase.BACKWARD else _MASK_ADVICE
    if zeros or case.op in ("mul", "mv", "dot") or not infinite:
        what = f"a tensor that holds {counts(infinite[0])}" if infinite else case.nonfinite_value.partition(" = ")[2]
        return Reason.ZERO_TIMES_INF, f"0 was multiplied by {what}.", advice
    return Reason.INF_MINUS_INF, f"Infinities cancelled each other to nan: {' against '.join(map(counts, infinite))}.", advice
