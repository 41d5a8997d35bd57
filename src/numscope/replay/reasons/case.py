"""One operation's numbers as the rules see them, and the registry of rules.

A rule is a function registered for operators by their plain names; it returns the reason, one sentence of numbers, and advice, or None
where it does not know.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from operator import itemgetter
from typing import Any, TypeVar, cast

import torch

from numscope.records.finding import Numbers, Operand, Reason
from numscope.records.site import Phase


class Source(Enum):
    """A description of a tensor that was bad before any operation."""

    ARGUMENT = auto()  # of the model
    OUTPUT = auto()  # of the model, in the loss
    LOSS = auto()  # an input of the loss that the model did not make
    OUTSIDE = auto()  # a tensor that the model uses and does not own
    GRADIENT = auto()  # of the model's outputs
    GRAD = auto()  # that torch.autograd.grad returned to the script
    STATE = auto()  # a parameter or a buffer


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that was bad before any operation."""

    name: str
    numbers: Numbers | None
    source: Source


@dataclass(frozen=True, slots=True)
class Rounded:
    """A small number that should have kept an operand from being 0, and that is 0 itself in the operand's dtype."""

    value: float
    dtype: torch.dtype


class NoOperand(Exception):
    """An operation has no argument of the names that a rule asked for."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operation with its numbers, as the rules see it.

    Args:
        inputs, outputs: operands and results.
        values: plain arguments by name.
        output: the bad result's numbers.
        forward: of a backward operation, the operation whose gradient it computes. That is itself of a backward where a gradient was
            differentiated.
        order: how often the operation that a rule is asked about was differentiated: 2 for the gradient of its gradient.
        accumulates: of a sum of gradients, the tensor that they are gradients of.
        deliberate: the code wrote a non-finite constant on purpose.
        root: the tensor that was bad before any operation, where that is the fault.
        uninitialized: memory was read before anything was written to it.
        bears: finite elements gave bad ones, whatever else the operands hold.
        ignored: operands that bear on nothing bad in the result.
        contained: the loss never saw the bad value, but a gradient met it.
        rounded: why an operand is 0 that should not be.
        holder: the smallest called module in which a result that is too large comes back into range.
        last: of the modules that read what is too large, the last one.
        leaves: nothing in the model brings it back into range.
    """

    op: str
    phase: Phase
    module: str
    inputs: tuple[Operand, ...]
    values: dict[str, Any]
    output: Numbers | None
    outputs: tuple[Operand, ...]
    forward: Case | None = None
    order: int = 1
    accumulates: str = ""
    deliberate: bool = False
    root: Root | None = None
    uninitialized: bool = False
    contained: bool = False
    rounded: Rounded | None = None
    holder: str = ""
    last: str = ""
    leaves: bool = False
    ignored: tuple[Operand, ...] = ()
    bears: bool = False

    @property
    def derivative(self) -> str:
        """Quantities of the operation that a rule is asked about."""
        names = {1: "gradient", 2: "second derivative", 3: "third derivative"}
        return names.get(self.order, f"{self.order}th derivative")

    @property
    def tensors(self) -> list[Numbers]:
        return [o.numbers for o in self.inputs if o.numbers is not None and o not in self.ignored]

    def operand(self, *names: str) -> Range:
        """``optional`` for an argument that the rule can't do without: where it is missing, the rule gives no reason."""
        if (found := self.optional(*names)) is None:
            raise NoOperand
        return found

    def optional(self, *names: str) -> Range | None:
        """The range of the first of these arguments that exists: a tensor, a member of a list, or a plain number."""
        return next((r for r in map(self._operand, names) if r is not None), None)

    def _operand(self, name: str) -> Range | None:
        for o in self.inputs:
            if o.numbers is not None and o.name.partition(" ")[0].partition("[")[0] == name:
                return replace(Range.of(o.numbers), name=name)
        value = self.values.get(name)
        return Range.of_value(float(value), name) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def dtype(self) -> str:
        return self.output.dtype if self.output is not None else (self.tensors[0].dtype if self.tensors else "")

    def eps(self, power: float = 1.0) -> str:
        """A small number for advice: 1e-6, or a larger one whose reciprocal to that power is in range, as a derivative's must be."""
        least = 10.0 ** math.ceil(-math.log10(min(map(largest, self._dtypes)) / 4) / power)
        return f"{max(1e-6, least):g}".replace("e-0", "e-")

    def wide(self, form: str, name: str = "x") -> str:
        """A call as advice writes it: ``{x}`` in a dtype that has 1e-6 and 1 - 1e-6, the result in the dtype that the tensor has."""
        if self._dtypes <= {"float32", "float64"}:
            return form.replace("{x}", name)
        call = form.replace("{x}", f"{name}.float()")
        return f"{call if call.startswith('torch.') else f'({call})'}.to({name}.dtype)"

    @property
    def _dtypes(self) -> set[str]:
        return {self.dtype, *(n.dtype for n in self.tensors)}

    @property
    def has_nan(self) -> bool:
        return self.output is not None and self.output.num_nan > 0

    @property
    def nonfinite_value(self) -> str:
        """A plain argument that is not finite, as ``lr = inf``; "" if all are finite."""
        return next((f"{k} = {v}" for k, v in self.values.items() if isinstance(v, float) and not math.isfinite(v)), "")

    @property
    def nonfinite_input(self) -> bool:
        return any(n.num_nonfinite for n in self.tensors if not self.bears) or bool(self.nonfinite_value)

    @property
    def limit(self) -> float:
        """The dtype's largest finite value."""
        return largest(self.dtype)


def largest(dtype: str) -> float:
    """A dtype's largest finite value; inf for integers."""
    found = getattr(torch, dtype, None)
    return torch.finfo(found).max if isinstance(found, torch.dtype) and (found.is_floating_point or found.is_complex) else math.inf


@dataclass(frozen=True, slots=True)
class Range:
    """An operand as rules see it, be it a tensor or a plain number."""

    low: float
    high: float
    abs_min: float
    abs_max: float
    num_zero: int
    num_inf: int
    numel: int
    name: str = ""  # of the argument, in the operation's schema

    @property
    def largest(self) -> str:
        """The largest magnitude with the argument's name: ``|tensor1| 2e+31``."""
        return f"|{self.name}| {number(self.abs_max)}"

    @classmethod
    def of(cls, n: Numbers) -> Range:
        num_inf = n.num_pos_inf + n.num_neg_inf
        return cls(n.min or 0.0, n.max or 0.0, n.abs_min or 0.0, n.abs_max or 0.0, n.num_zero, num_inf, n.numel)

    @classmethod
    def of_value(cls, v: float, name: str = "") -> Range:
        if not math.isfinite(v):
            return cls(0.0, 0.0, 0.0, 0.0, 0, 1, 1, name)
        return cls(v, v, abs(v), abs(v), int(v == 0), 0, 1, name)


def zeros_and_ones(n: Numbers) -> bool:
    """Whether a tensor holds nothing else, as a mask to multiply with does."""
    return n.min in (0, 1) and n.max in (0, 1) and n.abs_min in (None, 1)


Verdict = tuple[Reason, str, str]
Rule = Callable[[Case], Verdict | None]
GradientRule = Callable[[Case, Case], Verdict | None]  # of a backward operation and the forward one whose gradient it computes
R = TypeVar("R", Rule, GradientRule)
FORWARD: dict[str, Rule] = {}
GRADIENT: dict[str, GradientRule] = {}  # by the forward operation

LIFTS = ("lift_fresh", "lift", "tensor", "as_tensor", "set")  # make a tensor of numbers that no operation has made

# Operations that take -inf as "masked".
SOFTMAX = (
    "_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math",
)  # fmt: skip


def explains(*ops: str, finite: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operators by plain name; a second rule for the same one is refused.

    Args:
        finite: the rule applies only if all operands are finite.
    """
    return _registers(ops, finite, FORWARD)


def explains_gradient_of(*ops: str, finite: bool = False) -> Callable[[GradientRule], GradientRule]:
    """``explains`` for the backward operations of forward operators."""
    return _registers(ops, finite, GRADIENT)


def _registers(ops: Sequence[str], finite: bool, registry: dict[str, R]) -> Callable[[R], R]:
    def register(rule: R) -> R:
        @functools.wraps(rule)
        def applied(*cases: Case) -> Verdict | None:
            try:
                return None if finite and cases[0].nonfinite_input else rule(*cases)
            except NoOperand:
                return None

        for op in ops:
            if op in registry:
                raise ValueError(f"explains: got {op!r} twice, expected one rule an operator; {registry[op].__name__} has it already.")
            registry[op] = cast(R, applied)
        return cast(R, applied)

    return register


FLOAT32_RANGE = 3.3e38  # bfloat16's too, which ends a little earlier


def number(x: float, beside: float | None = None) -> str:
    """Three digits; integers in full; as many digits as distinguish it from the number ``beside`` it."""
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


def counts(n: Numbers | None) -> str:
    """``1 nan and 2 inf of 8 elements``."""
    if n is None:
        return "a non-finite value"
    parts = [f"{count} {word}" for count, word in ((n.num_nan, "nan"), (n.num_pos_inf, "inf"), (n.num_neg_inf, "-inf")) if count]
    return f"{' and '.join(parts)} of {n.numel} element{'s' if n.numel > 1 else ''}" if parts else "only finite values"


def attribute(module: str) -> str:
    """A qualified name as Python writes it: ``block.2.wo`` → ``model.block[2].wo``."""
    return "model" + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in module.split(".") if part)


def overflow(case: Case, text: str = "") -> Verdict | None:
    """The dtype's largest value was exceeded; ``text`` shows by what."""
    if case.output is None or not case.output.num_nonfinite or case.nonfinite_input:
        return None
    if not text:
        read = [(o.numbers, o.name.partition(" ")[0]) for o in case.inputs if o.numbers is not None and o not in case.ignored]
        most, name = max(((numbers.abs_max or 0.0, name) for numbers, name in read), default=(0.0, ""), key=itemgetter(0))
        if most <= 1.0 or not case.output.num_pos_inf + case.output.num_neg_inf:
            return None  # an infinite result alone does not show an overflow, for an operation of which nothing is known
        text = f"Largest |{name}| {number(most)}, result"
    return Reason.OVERFLOW, f"{text} exceeds {case.dtype}'s maximum {number(case.limit)}.", _precision_advice(case)


def _precision_advice(case: Case) -> str:
    if case.limit >= FLOAT32_RANGE:  # bfloat16's range is float32's, so a wider dtype is no cure
        return (
            "Values this large are a symptom: check the scale of data and weights, lower the learning rate, clip gradients, or normalize."
        )
    other = ", or train in bfloat16, whose range is float32's" if case.dtype == "float16" else ""
    if case.phase == Phase.BACKWARD and other:
        other += ". If the loss is scaled, lower the scale, as torch.amp.GradScaler does"
    if not case.module:
        return f"Compute this part in float32: torch.autocast(..., enabled=False) around float32 operands{other}."
    return f"Compute {attribute(case.holder)} in float32: {in_float32(case)}{other}.{_why_held(case)}"


def in_float32(case: Case) -> str:
    """The call that computes in float32 what has to be."""
    return f"numscope.high_precision({attribute(case.holder)}{', output_dtype=torch.float32' if case.leaves else ''})"


def _why_held(case: Case) -> str:
    if case.leaves:
        return " (The result leaves the model too large, so what takes it must accept float32.)"
    if case.last == case.module:
        return ""
    name = case.module.rpartition(".")[2]
    return f" (What {name} returns is still too large in {attribute(case.last)}, so that must be in float32 too.)"
