"""Users' own parts (statistics, features, loggers, rules), ready to be called: their errors never reach the run."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numscope.records.alert import Alert
from numscope.records.faults import ours
from numscope.sinks.loggers import call_if_there
from numscope.summary.extras import Extra

if TYPE_CHECKING:
    from torch import Tensor

    from numscope.records.observation import Histogram
    from numscope.summary.state import Summary

Kind = Literal["statistic", "feature", "logger", "rule"]
Of = Literal["summary", "tensor"]
Merge = Literal["sum", "max", "min", "mean"]
Say = Callable[[str, int], None]  # takes a sentence and its level of Python's logging

log = logging.getLogger("numscope")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a feature: its type, and its default if it may be left out."""

    type: type
    default: Any = None
    required: bool = True

    def accepts(self, value: object) -> bool:
        """Whether a value is of the type: a whole number is also a float, True and False are not numbers."""
        if isinstance(value, bool):
            return self.type is bool
        return isinstance(value, self.type) or (self.type is float and isinstance(value, int))


@dataclass(eq=False)
class CustomPart:
    """Something a user added. Its first error disables it and is logged; from then on calls return None.

    A registry keeps the original; each run calls its own copy.
    """

    kind: ClassVar[Kind]
    name: str  # what configurations, logs and messages call it
    function: Callable[..., Any]  # the decorated function or class
    place: str  # where it is defined, as file:line
    summary: str  # first line of its docstring
    say: Say = field(default=lambda text, level: log.log(level, "%s", text), kw_only=True)
    disabled: bool = field(default=False, kw_only=True)

    def __call__(self, *args: Any) -> Any:
        return self._guard(self._call, *args)

    def _call(self, *args: Any) -> Any:
        """The guarded call: the user's function, and the checks of its result."""
        return self.function(*args)

    def _guard(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.disabled:
            return None
        try:
            return function(*args)
        except ours() as error:  # whatever a plug-in does, training goes on
            self.disabled = True
            where = place_in(error, self.place.rpartition(":")[0])
            self.say(f"{self.kind} {self.name!r} is off from here on: {type(error).__name__} at {where}: {error}", logging.ERROR)
            return None


@dataclass(eq=False)
class CustomStatistic(CustomPart):
    """A statistic: Summary → float or None, or Tensor → number or tensor of one element."""

    kind = "statistic"
    of: Of  # computed from a summary or a tensor
    merge: Merge | None  # how the numbers of several tensors become one; None if it is computed from a summary, which merges by itself

    @cached_property
    def extra(self) -> Extra | None:
        """The cells that it needs in addition to a summary; None if a summary is enough."""
        return None if self.merge is None else _extra(self.name, self.merge)

    def value(self, summary: Summary, extras: Mapping[str, float | Histogram]) -> float | None:
        """The statistic of all tensors together; ``extras`` are further columns by name, where ``extra`` asks for some."""
        if self.extra is None or self.disabled:
            number: float | None = self(summary)
            return number
        cells = [extras.get(column, 0.0) for column in self.extra.columns]
        return _decoded(self.merge, [cell for cell in cells if isinstance(cell, float | int)])

    def cells(self, tensor: Tensor) -> Tensor | None:
        """A tensor's cells of ``extra``: float64[extra.width] on its device; None once disabled."""
        cells: Tensor | None = self._guard(self._cells, tensor)
        return cells

    def _call(self, argument: Any) -> float | None:
        """The plain number of a Summary, or of a tensor."""
        value = self.function(argument)
        return None if value is None else float(value)

    def _cells(self, tensor: Tensor) -> Tensor:
        import torch

        with torch.no_grad():
            value = torch.as_tensor(self.function(tensor.detach()), dtype=torch.float64, device=tensor.device).detach()
            if value.numel() != 1:
                raise ValueError(f"gave {value.numel()} numbers, expected one")
            return _encoded(self.merge, value.reshape(()), tensor.numel())


@dataclass(eq=False)
class CustomFeature(CustomPart):
    """A feature: called with (layer, tensor_name, tensor, step, settings) at scheduled steps, gives numbers by name."""

    kind = "feature"
    tensors: tuple[str, ...]  # which tensors it can be given; all of them if a configuration names none
    settings: Mapping[str, Setting]  # by name, what a configuration can set besides ``enabled``, ``tensors`` and the schedule

    def __call__(self, layer: str, tensor_name: str, tensor: Tensor, step: int, settings: Mapping[str, Any]) -> dict[str, float]:
        """The feature's numbers, by the names that logs add to the tensor's; empty once disabled."""
        return super().__call__(layer, tensor_name, tensor, step, settings) or {}

    def _call(self, layer: str, tensor_name: str, tensor: Tensor, step: int, settings: Mapping[str, Any]) -> dict[str, float]:
        import torch

        with torch.no_grad():
            found = self.function(layer, tensor_name, tensor.detach(), step, dict(settings))
            if found is None:
                return {}
            if not isinstance(found, Mapping):
                found = {self.name: found}
            return {str(name): float(value) for name, value in found.items()}


class CustomLogger(CustomPart):
    """A logger: a class made without arguments, at the first number or alert, that has ``log_scalar(name, value, iteration, **kwargs)``."""

    kind = "logger"
    _made: Any = None

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Hand on one number."""
        self._guard(lambda: self._logger().log_scalar(name, value, iteration, **kwargs))

    def log_alert(self, alert: Alert) -> None:
        """Hand on an alert, where the logger takes them."""
        self._guard(lambda: call_if_there(self._logger(), "log_alert", alert))

    def flush(self) -> None:
        """Hand on whatever is held back, where the logger can."""
        self._guard(call_if_there, self._made, "flush")

    def close(self) -> None:
        """Let go, where the logger can."""
        self._guard(call_if_there, self._made, "close")

    def _logger(self) -> Any:
        if self._made is None:
            self._made = self.function()
        return self._made


@dataclass(eq=False)
class CustomRule(CustomPart):
    """A rule: Observation → a sentence that becomes an alert, an Alert, or None. With ``looks_back``, it gets the site's history too."""

    kind = "rule"
    looks_back: bool

    def _call(self, *args: Any) -> Alert | str | None:
        found = self.function(*args)
        if found is not None and not isinstance(found, str | Alert):
            raise TypeError(f"gave {found!r}, expected a sentence, an Alert or None")
        return found or None


def place_in(error: BaseException, file: str) -> str:
    """Where an error arose, as file:line: the last line of the given file that led to it, else the last of all."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if f.filename == file), frames[-1] if frames else None)
    return file if frame is None else f"{frame.filename}:{frame.lineno}"


# ---- the cells of a statistic that takes its own pass

_ADDED = ("count", "sum")
_ORDERED = ("count", "num_nan", "largest")  # for ``min``, the largest of the negated values


def _extra(name: str, merge: str) -> Extra:
    parts = _ADDED if merge in ("sum", "mean") else _ORDERED
    return Extra(f"plugin_{name}", tuple(f"{name}_{part}" for part in parts), kind="plugin")


def _encoded(merge: str | None, value: Tensor, numel: int) -> Tensor:
    """The cells of one tensor's number, a tensor of no dimensions, on its device and without a sync."""
    import torch

    one = torch.ones_like(value)
    if merge == "sum":
        return torch.stack([one, value])
    if merge == "mean":
        return torch.stack([one * numel, value * numel])
    nan = value.isnan()
    return torch.stack([one, nan.double(), torch.where(nan, -math.inf, -value if merge == "min" else value)])


def _decoded(merge: str | None, cells: Sequence[float]) -> float | None:
    """The number that merged cells hold; None of no tensor."""
    if not cells[0]:
        return None
    if merge == "sum":
        return cells[1]
    if merge == "mean":
        return cells[1] / cells[0]
    _, num_nan, largest = cells
    return math.nan if num_nan else -largest if merge == "min" else largest
