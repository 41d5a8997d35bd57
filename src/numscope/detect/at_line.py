"""Remedies on an operand: an argument of a function of torch is moved wherever one line calls it, as a script would write it there."""

from __future__ import annotations

import itertools
import logging
import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.overrides import _push_mode as push_function_mode

from numscope.probe.hook import Hook, hook_calls, new_id, unhook_calls
from numscope.records.faults import suppress
from numscope.records.places import place
from numscope.records.words import escape
from numscope.replay import stack
from numscope.replay.modes import FUNCTION_MODES, taken_off
from numscope.replay.reasons.case import FLOAT32_RANGE, largest
from numscope.replay.reasons.functions import DOMAINS

log = logging.getLogger("numscope")

_EPS = (1e-6, 1e-4, 1e-2)

Arguments = tuple[Any, ...]
Edit = Callable[[Tensor, float], Tensor]
Form = tuple[Edit, str]  # how an argument is moved by a number, and how a script writes it


def _clamped(op: str) -> Form:
    low, high, *_ = DOMAINS[op]
    lowest = "{eps}" if low == 0 else f"{low:g} + {{eps}}"
    written = f"clamp_min({lowest})" if high == math.inf else f"clamp({lowest}, {high:g} - {{eps}})"
    return lambda x, eps: x.clamp(low + eps, high - eps if high < math.inf else None), f"{op}(x.{written})"


def _away(x: Tensor, eps: float) -> Tensor:
    return torch.where(x.abs() < eps, eps, x)


def _bounded(x: Tensor, most: float) -> Tensor:
    return x.clamp(-most, most)


def _lifted(x: Tensor, _: float) -> Tensor:
    return x.clamp_min(torch.finfo(x.dtype).min)


_DIVISOR: list[Form] = [(Tensor.clamp_min, "x / y.clamp_min({eps})"), (_away, "x / torch.where(y.abs() < {eps}, {eps}, y)")]
_BASE: list[Form] = [(Tensor.clamp_min, "x.clamp_min({eps}) ** p")]
# By the name of torch's function: the operation, which argument is changed, and how.
FUNCTIONS: dict[str, tuple[str, int, list[Form]]] = {
    **{op: (op, 0, [_clamped(op)]) for op in DOMAINS},
    **{op: (op, 0, [(Tensor.add, f"{op}(x + {{eps}})"), (Tensor.clamp_min, f"{op}(x.clamp_min({{eps}}))")]) for op in ("sqrt", "rsqrt")},
    **{op: ("div", 1, _DIVISOR) for op in ("div", "true_divide", "divide", "__truediv__")},
    **{op: ("div", 0, _DIVISOR) for op in ("__rtruediv__", "__rdiv__", "reciprocal")},
    **{op: ("pow", 0, _BASE) for op in ("pow", "__pow__", "float_power")},
    **{op: (f"_{op}", 0, [(_lifted, f"{op}(x.clamp_min(torch.finfo(x.dtype).min))")]) for op in ("softmax", "log_softmax")},
    **{op: (op, 0, [(_bounded, f"{op}(x.clamp(-{{most}}, {{most}}))")]) for op in ("exp", "expm1")},
}


def levels(name: str, dtypes: set[str], *, may_be_negative: bool) -> Iterator[tuple[Edit, float, str]]:
    """How an argument is moved, the least first, and how that is written; ``may_be_negative``: a divisor, whose sign is then kept."""
    forms = FUNCTIONS[name][2]
    for edit, written in [forms[may_be_negative]] if forms is _DIVISOR else forms:
        if edit is _bounded:
            limit = min(map(largest, dtypes), default=largest("float32"))
            most = int(math.log(limit) / (2 if limit < FLOAT32_RANGE else 4))  # its square, too, is to stay in range
            yield edit, most, written.replace("{most}", str(most))
        elif edit is _lifted:
            yield edit, 0.0, written
        else:
            yield from ((edit, eps, written.replace("{eps}", f"{eps:g}".replace("e-0", "e-"))) for eps in _EPS)


def _takes_any_base(name: str, args: Arguments, kwargs: Mapping[str, Any]) -> bool:
    """Whether it is a power with a whole positive exponent, whose base may have any sign."""
    exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    return FUNCTIONS[name][0] == "pow" and isinstance(exponent, int | float) and exponent > 0 and float(exponent).is_integer()


class Remedy(NamedTuple):
    """How an argument is moved, in the functions of these names; ``level``: by how much."""

    names: frozenset[str]
    edit: Edit
    level: float


@cache
def known() -> Mapping[str, Remedy]:
    """All of them, by what a script writes."""
    found: dict[str, Remedy] = {}
    for name in FUNCTIONS:
        for dtype, may_be_negative in itertools.product(("float16", "bfloat16", "float32", "float64"), (False, True)):
            for edit, level, text in levels(name, {dtype}, may_be_negative=may_be_negative):
                found[text] = Remedy(frozenset({name}) | (found[text].names if text in found else set()), edit, level)
    return found


class AtLine(TorchFunctionMode):
    """Changes an argument of functions wherever a line calls them; without a remedy it only notes which are called.

    Args:
        file, line: of the innermost frame of the user's.
        stays: it is on in modules' calls alone. Where activation checkpointing has begun within such a call it changes nothing, since what
            is computed again later would be another thing.

    Attributes:
        met: names of functions in ``FUNCTIONS`` that the line has called, in order.

    *Cost:* 2 µs a function of torch, 20 more for one of these.
    """

    def __init__(self, file: str, line: int, remedy: Remedy | None = None, *, stays: bool = False) -> None:
        super().__init__()
        self._place = file, line
        self._remedy, self._stays = remedy, stays
        self._names: Collection[str] = FUNCTIONS if remedy is None else remedy.names
        self.met: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Arguments = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in self._names and not _takes_any_base(name, args, kwargs) and self._is_here():
            if name not in self.met:
                self.met.append(name)
            at = FUNCTIONS[name][1]
            if self._remedy is not None and at < len(args) and isinstance(args[at], Tensor):
                with suppress(TypeError, RuntimeError):  # an operand of a dtype for which it is none
                    args = (*args[:at], self._remedy.edit(args[at], self._remedy.level), *args[at + 1 :])
        return func(*args, **kwargs)

    def _is_here(self) -> bool:
        found = stack.capture(sys._getframe(2))
        pair = found.frames[0] if found.frames else found.inner
        if pair is None or stack.resolve(*pair)[:2] != self._place:
            return False
        if not self._stays or not stack.capture(sys._getframe(2), nn.Module._call_impl.__code__).recompute:
            return True
        _tell(place(*self._place))
        return False


@cache
def _tell(line: str) -> None:
    """Once of each line."""
    log.warning("numscope: no operand is changed at %s: activation checkpointing begins within its module's forward.", escape(line))


def stay(modules: Sequence[nn.Module], make: Callable[[], AtLine]) -> Callable[[], None]:
    """Have a mode on during these modules' calls, once where one calls another; no copy of a module, and no file, has anything of it.

    Returns: what ends it.
    """
    inside, key, is_on = threading.local(), new_id(), [True]

    def before(*_: object) -> None:
        if torch.compiler.is_compiling():
            return
        modes = vars(inside).setdefault("modes", [])
        modes.append(None if modes or not is_on else make())
        if modes[-1] is not None:
            push_function_mode(modes[-1])  # type: ignore[no-untyped-call]

    def after(*_: object) -> None:
        if torch.compiler.is_compiling():
            return
        modes = vars(inside).get("modes")
        if modes and (mode := modes.pop()) is not None:
            taken_off(mode, *FUNCTION_MODES)

    def end() -> None:
        is_on.clear()
        for module in modules:
            unhook_calls(module, key)
        while vars(inside).get("modes"):  # it ends within a call
            after()

    for module in modules:
        hook_calls(module, key, Hook(before), Hook(after), always=True, first=False)
    return end
