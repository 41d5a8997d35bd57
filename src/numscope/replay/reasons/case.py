"""Why an operation made a non-finite value, decided from its operands' numbers, and what to do about it.

A rule is a function registered for operators by their plain names; it returns the reason, one sentence of numbers, and advice, or None
where it does not know. What no rule explains is tried for overflow and is else unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from numscope.records.finding import Numbers, Operand, Reason
from numscope.records.site import Phase


@dataclass(frozen=True, slots=True)
class Case:
    """One operation with its numbers, as the rules see it."""

    op: str
    phase: Phase
    module: str
    inputs: tuple[Operand, ...]
    values: dict[str, Any]
    output: Numbers | None
    outputs: tuple[Operand, ...]
    forward: Case | None = None  # of a backward operation
    node: str = ""
    accumulates: str = ""
    deliberate: bool = False
    root: tuple[str, Numbers | None, bool] | None = None  # name, numbers, whether it is an input
    uninitialized: bool = False
    contained: bool = False

    @property
    def tensors(self) -> list[Numbers]:
        return [o.numbers for o in self.inputs if o.numbers is not None]

    def operand(self, name: str) -> Range | None:
        """A tensor's or a plain number's range by the argument's name (of a list's member too)."""
        for o in self.inputs:
            if o.numbers is not None and o.name.partition(" ")[0].partition("[")[0] == name:
                return Range.of(o.numbers)
        value = self.values.get(name)
        return Range.of_value(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def dtype(self) -> str:
        return self.output.dtype if self.output is not None else (self.tensors[0].dtype if self.tensors else "")

    @property
    def has_nan(self) -> bool:
        return self.output is not None and self.output.num_nan > 0

    @property
    def nonfinite_input(self) -> bool:
        values = (v for v in self.values.values() if isinstance(v, float))
        return any(n.num_nonfinite for n in self.tensors) or not all(map(math.isfinite, values))

    @property
    def limit(self) -> float:
        """The dtype's largest finite value."""
        dtype = getattr(torch, self.dtype, None)
        return torch.finfo(dtype).max if isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex) else math.inf


@dataclass(frozen=True, slots=True)
class Range:
    """What a rule asks of an operand, be it a tensor or a plain number."""

    low: float
    high: float
    abs_min: float
    abs_max: float
    num_zero: int
    num_inf: int
    numel: int

    @classmethod
    def of(cls, n: Numbers) -> Range:
        return cls(
            0.0 if n.min is None else n.min,
            0.0 if n.max is None else n.max,
            n.abs_min or 0.0,
            n.abs_max or 0.0,
            n.num_zero,
            n.num_pos_inf + n.num_neg_inf,
            n.numel,
        )

    @classmethod
    def of_value(cls, v: float) -> Range:
        if not math.isfinite(v):
            return cls(0.0, 0.0, 0.0, 0.0, 0, 1, 1)
        return cls(v, v, abs(v), abs(v), int(v == 0), 0, 1)


Verdict = tuple[Reason, str, str]
Rule = Callable[[Case], Verdict | None]
FORWARD: dict[str, Rule] = {}
GRADIENT: dict[str, Rule] = {}  # by the forward operation whose gradient is computed

# Operations that take -inf as "masked".
MASKED = frozenset(
    {"_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax", "logsumexp", "add", "sub", "where", "masked_fill"}
    | {"exp", "amax", "max", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention"}
    | {"_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"}
    | {"_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math"}
)


def explains(*ops: str, registry: dict[str, Rule] = FORWARD) -> Callable[[Rule], Rule]:
    """Register a rule for operators by plain name; a second rule for the same one is refused."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            if op in registry:
                raise ValueError(f"explains: got {op!r} twice, expected one rule an operator; {registry[op].__name__} has it already.")
            registry[op] = rule
        return rule

    return register


def explain(case: Case) -> Verdict:
    """Reason, detail and advice for one case; never fails."""
    try:
        reason, detail, advice = _explain(case)
        return reason, f"T{detail[1:]}" if detail.startswith("the ") else detail, advice
    except (ArithmeticError, ValueError, TypeError):
        return Reason.UNKNOWN, "No rule explains these numbers.", "Look at the operands' ranges."


def _explain(case: Case) -> Verdict:
    if case.root is not None:
        return _root(case)
    if case.uninitialized:
        return (
            Reason.UNKNOWN,
            f"Memory that {case.op} left uninitialized was read before it was written.",
            "Use torch.zeros, or write all of it before reading.",
        )
    if case.deliberate:
        return _deliberate(case)
    verdict = _by_rule(case)
    if case.phase == Phase.OPTIMIZER:
        reason, detail, advice = verdict
        given = next((f"{k} = {v}" for k, v in case.values.items() if isinstance(v, float) and not math.isfinite(v)), "")
        if given:
            advice = "Check the learning rate, its schedule, and the other numbers given to the optimizer."
            return Reason.OPTIMIZER_UPDATE, f"The update was computed with {given}.", advice
        if reason == Reason.DIVISION_BY_ZERO:
            advice = "Give the optimizer a positive eps, added to what it divides by."
        elif reason == Reason.OVERFLOW:
            advice = (
                "Keep weights and the optimizer's state in float32 (autocast instead of a model in half precision), "
                "or clip gradients and lower the learning rate."
            )
        elif reason not in (Reason.DOMAIN, Reason.EXP_OVERFLOW):  # their own advice fits here too
            advice = "Check the learning rate, eps and weight decay, and clip gradients."
        return Reason.OPTIMIZER_UPDATE, f"{reason.value}: {detail}", advice
    if case.accumulates:
        reason, detail, advice = verdict
        return reason, f"Gradient accumulation of {case.accumulates}: {detail}", advice
    if case.contained:
        reason, detail, advice = verdict
        return (
            reason,
            f"{detail} The loss never saw it, but its gradient did.",
            f"{advice} What hides it later hides the value, not the gradient; "
            "with torch.where, write torch.where(ok, f(torch.where(ok, x, 1)), 0).",
        )
    return verdict


def _by_rule(case: Case) -> Verdict:
    if case.phase == Phase.BACKWARD and case.forward is not None and not case.accumulates:
        rule = GRADIENT.get(case.forward.op)
        verdict = rule(case) if rule is not None else None
        if verdict is not None:
            return verdict
    rule = FORWARD.get(case.op)
    verdict = rule(case) if rule is not None else None
    return verdict or _from_infinities(case) or overflow(case) or _unknown(case)


def _root(case: Case) -> Verdict:
    assert case.root is not None
    name, numbers, is_input = case.root
    what = _counts(numbers)
    if is_input:
        advice = "Check the batch: how it was loaded, normalized and augmented, or what computed it before the model was called."
        return Reason.BAD_INPUT, f"{name} held {what} before any operation.", advice
    if name.startswith("grad "):
        advice = "The fault lies in the loss's own backward: check the loss function."
        return Reason.BAD_INPUT, f"{name} held {what} when it reached the model.", advice
    return (
        Reason.BAD_PARAMETER,
        f"{name} held {what} before this step.",
        "An earlier update or a checkpoint made it so: look at that step's gradients, the learning rate and what was loaded.",
    )


def _deliberate(case: Case) -> Verdict:
    value = next((f"{v}" for v in case.values.values() if isinstance(v, float) and not math.isfinite(v)), "")
    written = value or _counts(case.output)
    if case.has_nan:
        advice = "Write a number that says what is meant, or keep these positions out of the loss."
    else:
        advice = (
            "Use a large finite number (torch.finfo(dtype).min), or keep masked positions, and targets that point at them, out of the loss."
        )
    return Reason.UNKNOWN, f"The code itself wrote {written} here, and it reached what must be finite.", advice


def _counts(n: Numbers | None) -> str:
    if n is None:
        return "a non-finite value"
    parts = [f"{count} {word}" for count, word in ((n.num_nan, "nan"), (n.num_pos_inf, "inf"), (n.num_neg_inf, "-inf")) if count]
    return f"{' and '.join(parts)} of {n.numel} elements" if parts else "only finite values"


def number(x: float, beside: float | None = None) -> str:
    """Three digits; integers as they are; as many digits as tell it from the number ``beside`` it."""
    if x == int(x) and abs(x) < 1e6:
        return f"{x:.0f}"
    digits = 3
    while beside is not None and x != beside and float(f"{x:.{digits}g}") == beside and digits < 17:
        digits += 1
    return f"{x:.{digits}g}"


def of(count: int, total: int, what: str) -> str:
    """``1 of 3 divisors is``, ``2 of 3 divisors are``."""
    if total > 1:
        return f"{count} of {total} {what} {'is' if count == 1 else 'are'}"
    noun, _, rest = what.partition(" ")
    return f"the {noun.removesuffix('s')}{' ' if rest else ''}{rest} is"


def attribute(module: str) -> str:
    """A qualified name as Python writes it: ``block.2.wo`` → ``model.block[2].wo``."""
    return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in module.split(".") if part)


def widen(advice: str, module: str, around: str) -> str:
    """Advice to compute a module in float32, for one whose own result overflows: alone it would be cast back to the same infinity.

    Args:
        advice: as given for ``module``.
        around: the module that calls it; "" is the model itself.
    """
    alone = attribute(module)
    if f"high_precision({alone})" not in advice:
        return advice
    name = module.rpartition(".")[2]
    return advice.replace(alone, attribute(around)) + f" ({name}'s own result is too large, so what takes it up must be wide too.)"


def _precision_advice(case: Case) -> str:
    if case.dtype in ("float16", "bfloat16") or case.dtype.startswith("float8"):
        where = attribute(case.module) if case.module else "this part"
        how = f"numscope.high_precision({where})" if case.module else "torch.autocast(..., enabled=False) around float32 operands"
        other = ", or train in bfloat16, whose range is float32's" if case.dtype == "float16" else ""
        scale = " If the loss is scaled, lower the scale, as torch.amp.GradScaler does." if other and case.phase == Phase.BACKWARD else ""
        return f"Compute {where} in float32: {how}{other}.{scale}"
    return "No sound training needs such values: check the scale of data and weights, lower the learning rate, clip gradients, normalize."


def overflow(case: Case, text: str = "") -> Verdict | None:
    """The dtype's largest value was exceeded; ``text`` shows by what."""
    if case.output is None or not case.output.num_nonfinite or case.nonfinite_input:
        return None
    sizes = [n.abs_max or 0.0 for n in case.tensors]
    if not text:
        if not sizes or max(sizes) <= 1.0 or not case.output.num_pos_inf + case.output.num_neg_inf:
            return None  # nothing known of this operation but that its result is infinite tells an overflow
        text = f"largest |operand| {number(max(sizes))}, result"
    return Reason.OVERFLOW, f"{text} exceeds {case.dtype}'s maximum {number(case.limit)}.", _precision_advice(case)


def _unknown(case: Case) -> Verdict:
    return Reason.UNKNOWN, f"{case.op} of finite operands gave {_counts(case.output)}.", "Look at the operands' ranges."


def _from_infinities(case: Case) -> Verdict | None:
    if not case.nonfinite_input or not case.has_nan:
        return None
    tensors = case.tensors
    infinite = [n for n in tensors if n.num_nonfinite]
    if case.op in ("div", "divide", "true_divide") and len(infinite) > 1 and not any(n.num_nan for n in infinite):
        detail = f"inf was divided by inf: {_counts(infinite[0])} by {_counts(infinite[1])}."
        return Reason.INF_MINUS_INF, detail, "Divide finite numbers: subtract the maximum before exp, or clamp both."
    zeros = any(n.num_zero for n in tensors if n not in infinite) or any(v == 0 for v in case.values.values() if isinstance(v, int | float))
    if zeros or case.op in ("mul", "mv", "dot") or len(infinite) < 1:
        value = next((v for v in case.values.values() if isinstance(v, float) and math.isinf(v)), math.inf)
        what = f"a tensor that holds {_counts(infinite[0])}" if infinite else f"{value}"
        return Reason.ZERO_TIMES_INF, f"0 was multiplied by {what}.", _INFINITE_ADVICE
    return Reason.INF_MINUS_INF, f"Infinities of opposite sign met: {_counts(infinite[0])}.", _INFINITE_ADVICE


_INFINITE_ADVICE = "Write masks with masked_fill and a large finite number (torch.finfo(dtype).min), not by arithmetic with inf."
