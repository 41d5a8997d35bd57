"""Findings in plain Python values, for reports and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from numscope.records.markup import BAD, GOOD, Markup, element, link, markup, table
from numscope.records.places import notebook_link, place, source
from numscope.records.site import Phase, Site


class Reason(str, Enum):  # StrEnum needs Python 3.11
    """Why an operation made a non-finite value."""

    __str__ = str.__str__

    OVERFLOW = "overflow of the dtype"
    DIVISION_BY_ZERO = "division by zero"
    DOMAIN = "argument outside the function's domain"  # log, sqrt, power, acos…
    GRADIENT_AT_ZERO = "gradient of sqrt or norm at zero"
    EXP_OVERFLOW = "exp overflow"
    INF_MINUS_INF = "inf - inf"
    ZERO_TIMES_INF = "0 * inf"
    BAD_INPUT = "bad input data"
    BAD_PARAMETER = "bad parameter"
    UNINITIALIZED = "uninitialized memory"
    OPTIMIZER_UPDATE = "optimizer update"
    COMPILED = "compiled code differs from eager"
    UNKNOWN = "unknown"


class Kind(str, Enum):  # StrEnum needs Python 3.11
    """The kind of a finding."""

    __str__ = str.__str__

    NAN = "nan"
    INF = "inf"
    SCALER_SKIPS = "scaler_skips"  # GradScaler skipped N steps in a row
    DEAD_GRADIENTS = "dead_gradients"  # every gradient exactly zero, N steps in a row


@dataclass(frozen=True, slots=True)
class Numbers:
    """One tensor's health. Extrema are over the finite elements, None if there are none; ``abs_min`` is the smallest non-zero magnitude."""

    dtype: str
    shape: tuple[int, ...]
    numel: int
    num_nan: int
    num_pos_inf: int
    num_neg_inf: int
    num_zero: int
    num_subnormal: int
    min: float | None
    max: float | None
    abs_min: float | None
    abs_max: float | None

    @property
    def num_nonfinite(self) -> int:
        return self.num_nan + self.num_pos_inf + self.num_neg_inf


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a frame: a tensor's numbers, or a note on another value ("None", "not a tensor")."""

    slot: str
    numbers: Numbers | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The tensors of one module call, its gradients, or an optimizer's step."""

    module: str
    cls: str
    phase: Phase
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of the culprit: a tensor's numbers, or a plain value's ``repr``."""

    name: str
    numbers: Numbers | None
    value: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A remedy under which the call at fault was done once more.

    Args:
        remedy: what to write.
        worked: everything was finite.
        outcome: what came of it, one sentence without a full stop.
    """

    remedy: str
    worked: bool
    outcome: str

    def __str__(self) -> str:
        return f"{self.remedy}: {'' if self.worked else 'does not cure it: '}{self.outcome}"


@dataclass(frozen=True, slots=True)
class Culprit:
    """The operation a finding comes from.

    Args:
        op: operator without overload, as torch names it: ``aten.sqrt``; in backward, the backward operator.
        phase: when the op ran.
        module: qualified name of the innermost running module; "" outside all modules.
        file, line, code: the innermost line of the user's or a model library's code that ran the op; for a backward op its *forward*
            line. ``file`` is an absolute path; ``line`` counts from 1, 0 if unknown.
        reason: why the value is not finite.
        detail: the numbers that show the reason, one sentence.
        advice: what to do, one or two sentences.
        inputs: the operands, as they were before the op ran.
        outputs: the results.
        stack: ``(file, line, function, code)`` from the outermost user frame to the innermost.
        tried: remedies that were tried, those that worked first; empty where none could be.
        advice_tried: the advice is one of them.
    """

    op: str
    phase: Phase
    module: str
    file: str
    line: int
    code: str
    reason: Reason
    detail: str
    advice: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    stack: tuple[tuple[str, int, str, str], ...] = ()
    tried: tuple[Trial, ...] = ()
    advice_tried: bool = False

    @property
    def advised(self) -> str:
        """The advice as reports have it: of one that no experiment has tried, that is said."""
        return f"{self.advice} (Not tried.)" if self.advice and not self.advice_tried else self.advice


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, with where it began.

    Args:
        step: optimizer step, counted from 0 since the watch began.
        batch: outermost forward call, counted from 0.
        phase, site: where it was first seen.
        rank: the rank where it began (0 without torch.distributed).
        kind: nan, inf, or a fault over several steps.
        contained: it never reached the loss, a gradient, a weight or the optimizer's state.
        culprit: None if the replay did not reproduce it.
        replay: "reproduced", or why there is no culprit.
        frames: the last frames, oldest first, ending at the first bad one.
    """

    step: int
    batch: int
    phase: Phase
    rank: int
    site: Site
    kind: Kind
    contained: bool
    culprit: Culprit | None
    replay: str
    frames: tuple[Frame, ...] = field(default=(), repr=False)
    model: str = ""
    numbers: Numbers | None = None
    note: str = ""

    def headline(self) -> str:
        """One line: what, when, where, and the culprit's operator with its file:line."""
        where = f"{self.kind.value} in {self.site} ({self.phase.value}) at step {self.step}, rank {self.rank}"
        if self.culprit is None:
            return f"{where}; culprit unknown: {self.replay}"
        c = self.culprit
        code = f" `{c.code}`" if c.code else ""
        return f"{where}: {c.op} at {place(c.file, c.line)}{code} — {c.reason.value}: {c.detail} {c.advice}"

    def _repr_html_(self) -> str:
        contained = " (contained)" if self.contained else ""
        where = f" at step {self.step:,}, rank {self.rank}{contained}"
        note = [element("p", self.note)] if self.note else []
        title = element("p", element("b", self.kind.value, style=BAD), " in ", element("code", self.site), f", {self.phase.value}{where}")
        c = self.culprit
        if c is None:
            return element("div", title, *note, element("p", f"Operation unknown: {self.replay}"))
        facts: list[tuple[object, object]] = [("Operation", Markup(f"{element('code', c.op)}{markup(f' ({c.phase.value})')}"))]
        facts += [("Line", Markup(f"{_linked(c.file, c.line)}{_code(c)}"))] if c.file else []
        calls = [entry for entry in c.stack if (entry[0], entry[1]) != (c.file, c.line)][::-1]
        facts += (
            [("Called from", Markup("<br>".join(f"{_linked(f, n)}{markup(f' in {name}')}" for f, n, name, _ in calls)))] if calls else []
        )
        facts.append(("Reason", f"{c.reason.value}. {c.detail}"))
        facts += [("Advice", element("span", c.advised, style=GOOD))] if c.advice else []
        facts += [("Tried", Markup("<br>".join(markup(str(one)) for one in c.tried)))] if c.tried else []
        rows = [_cells(one, "") for one in c.inputs] + [_cells(one, "→ ") for one in c.outputs]
        head = ("operand", "dtype", "shape", "min |x|", "max |x|", "nan", "inf")
        return element("div", title, *note, table(facts), *([table(rows, head)] if rows else []))


def _linked(file: str, line: int) -> Markup:
    address, text = notebook_link(file, line), place(file, line)
    return link(address, text) if address else markup(text)


def _code(culprit: Culprit) -> Markup:
    lines = source(culprit.file, culprit.line, culprit.code) or [(culprit.line, culprit.code.strip())]
    shown = [f"{'>' if number == culprit.line else ' '}{number:>5} | {code}" for number, code in lines]
    styles = [BAD if number == culprit.line else "" for number, _ in lines]
    return element("pre", *(element("span", f"{text}\n", style=style) for text, style in zip(shown, styles, strict=True)))


def _cells(operand: Operand, mark: str) -> tuple[object, ...]:
    n = operand.numbers
    if n is None:
        return f"{mark}{operand.name}", operand.value
    low, high = (f"{x:.3g}" for x in magnitudes(n)) if n.numel else "––"
    counts = (element("span", f"{x:,}", style=BAD if x else "") for x in (n.num_nan, n.num_pos_inf + n.num_neg_inf))
    return f"{mark}{operand.name}", n.dtype, "x".join(map(str, n.shape)) or "scalar", low, high, *counts


def magnitudes(health: Any) -> tuple[float, float]:
    """The smallest and the largest magnitude, equal to ``tensor.abs().min()`` and ``.max()``.

    Unlike a summary's extrema, they include zeros and infinities, and one nan makes both nan.

    Args:
        health: the ``Numbers`` or the ``Summary`` of a tensor with at least one element.

    Returns:
        ``(abs min, abs max)``.

    Raises:
        ValueError: the tensor is empty; it has no magnitudes.
    """
    if health.numel == 0:
        raise ValueError("magnitudes: got an empty tensor, expected at least one element.")
    if health.num_nan:
        return math.nan, math.nan
    num_inf = health.num_pos_inf + health.num_neg_inf
    if health.num_zero:
        low = 0.0
    else:
        low = math.inf if health.abs_min is None else health.abs_min
    if num_inf:
        return low, math.inf
    return low, 0.0 if health.abs_max is None else health.abs_max


def plain(value: Any) -> Any:
    """A record as JSON-ready dicts, lists, strings and numbers. Non-finite floats become the strings "nan", "inf", "-inf"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def parse_finding(data: dict[str, Any]) -> Finding:
    """A finding from what ``plain`` made of it, as another rank sends it."""
    found: Finding = _parse(Finding, data)
    return found


def _parse(kind: Any, data: Any) -> Any:
    """A value of a type of this file's records from what ``plain`` made of it."""
    arguments = [argument for argument in get_args(kind) if argument is not type(None)]
    if data is None:
        return None
    if get_origin(kind) is UnionType:
        return _parse(arguments[0], data)
    if get_origin(kind) is tuple:
        kinds = arguments[:1] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(map(_parse, kinds, data))
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _parse(hints[name], value) for name, value in data.items()})  # type: ignore[operator]
    return kind(data) if issubclass(kind, Enum) else data
