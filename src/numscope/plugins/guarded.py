"""Loads what users add (feature files, installed entry points, decorators in the script itself) and keeps its errors from the run."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numscope.plugins.registry import PROCESS, CustomFeature, CustomLogger, CustomPart, CustomRule, CustomStatistic, Registry, filling
from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.sinks.loggers import call_if_there
from numscope.summary.extras import Extra

if TYPE_CHECKING:
    from torch import Tensor

    from numscope.records.observation import Histogram
    from numscope.summary.state import Summary

GROUP = "numscope.features"  # of entry points: modules whose import runs the decorators

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Say = Callable[[str, int], None]

log = logging.getLogger("numscope")

_loaded: dict[str, Registry] = {}  # what was executed in this process, and what each added


class Guarded:
    """A part that a user added, to call. Its first error disables it and is logged; from then on calls return None.

    Args:
        part: what was added.
        say: takes a sentence and its level of Python's logging.
    """

    def __init__(self, part: CustomPart, say: Say) -> None:
        self.part = part
        self.disabled = False
        self._function = part.function
        self._say = say

    def __call__(self, *args: Any) -> Any:
        return self._guard(self._call, *args)

    def _call(self, *args: Any) -> Any:
        """What is guarded: the user's function, and the checks of what it returns."""
        return self._function(*args)

    def _guard(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.disabled:
            return None
        try:
            return function(*args)
        except ours() as error:  # whatever a plug-in does, training goes on
            self.disabled = True
            where = place_in(error, self.part.place.rpartition(":")[0])
            text = f"{self.part.kind} {self.part.name!r} is off from here on: {type(error).__name__} at {where}: {error}"
            self._say(text, logging.ERROR)
            return None


class GuardedStatistic(Guarded):
    """A custom statistic.

    Attributes:
        extra: the cells that it needs beside a summary; None where a summary is enough.
    """

    def __init__(self, part: CustomStatistic, say: Say) -> None:
        super().__init__(part, say)
        self._merge = part.merge
        self.extra = None if part.merge is None else _extra(part.name, part.merge)

    def value(self, summary: Summary, extras: Mapping[str, float | Histogram]) -> float | None:
        """The statistic of all tensors together; ``extras`` are further columns by name, where ``extra`` asks for some."""
        if self.extra is None or self.disabled:
            number: float | None = self(summary)
            return number
        cells = [extras.get(column, 0.0) for column in self.extra.columns]
        return _decoded(self._merge, [cell for cell in cells if isinstance(cell, float | int)])

    def cells(self, tensor: Tensor) -> Tensor | None:
        """What a tensor adds to the cells of ``extra``: float64[extra.width] on its device; None once disabled."""
        cells: Tensor | None = self._guard(self._cells, tensor)
        return cells

    def _call(self, argument: Any) -> float | None:
        """Of a Summary, or of a tensor: the plain number."""
        value = self._function(argument)
        return None if value is None else float(value)

    def _cells(self, tensor: Tensor) -> Tensor:
        import torch

        with torch.no_grad():
            value = torch.as_tensor(self._function(tensor.detach()), dtype=torch.float64, device=tensor.device).detach()
            if value.numel() != 1:
                raise ValueError(f"gave {value.numel()} numbers, expected one")
            return _encoded(self._merge, value.reshape(()), tensor.numel())


class GuardedFeature(Guarded):
    """A custom feature: called with (layer, tensor_name, tensor, step, settings), gives numbers by name."""

    part: CustomFeature

    def __call__(self, layer: str, tensor_name: str, tensor: Tensor, step: int, settings: Mapping[str, Any]) -> dict[str, float]:
        """What the feature gives, by the names that logs add to the tensor's; nothing once disabled."""
        return super().__call__(layer, tensor_name, tensor, step, settings) or {}

    def _call(self, layer: str, tensor_name: str, tensor: Tensor, step: int, settings: Mapping[str, Any]) -> dict[str, float]:
        import torch

        with torch.no_grad():
            found = self._function(layer, tensor_name, tensor.detach(), step, dict(settings))
            if found is None:
                return {}
            if not isinstance(found, Mapping):
                found = {self.part.name: found}
            return {str(name): float(value) for name, value in found.items()}


class GuardedLogger(Guarded):
    """A custom logger: made once, at the first number or alert."""

    _made: Any = None

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Hand on one number."""
        self._guard(self._log, name, value, iteration, kwargs)

    def log_alert(self, alert: Alert) -> None:
        """Hand on an alert, where the logger takes them."""
        self._guard(self._log_alert, alert)

    def flush(self) -> None:
        """Hand on whatever is held back, where the logger can."""
        self._guard(call_if_there, self._made, "flush")

    def close(self) -> None:
        """Let go, where the logger can."""
        self._guard(call_if_there, self._made, "close")

    def _log(self, name: str, value: float, iteration: int, kwargs: Mapping[str, Any]) -> None:
        self._make()
        self._made.log_scalar(name, value, iteration, **kwargs)

    def _log_alert(self, alert: Alert) -> None:
        self._make()
        call_if_there(self._made, "log_alert", alert)

    def _make(self) -> None:
        if self._made is None:
            self._made = self._function()


class GuardedRule(Guarded):
    """A custom rule: called with an Observation, and its site's history where it takes one; gives a sentence, an Alert or None."""

    part: CustomRule

    def _call(self, *args: Any) -> Alert | str | None:
        found = self._function(*args)
        if found is not None and not isinstance(found, str | Alert):
            raise TypeError(f"gave {found!r}, expected a sentence, an Alert or None")
        return found or None


@dataclass
class Plugins:
    """What a run has of its user's own, by name, each guarded."""

    statistics: dict[str, GuardedStatistic] = field(default_factory=dict)
    features: dict[str, GuardedFeature] = field(default_factory=dict)
    loggers: dict[str, GuardedLogger] = field(default_factory=dict)
    rules: dict[str, GuardedRule] = field(default_factory=dict)
    messages: tuple[tuple[str, int], ...] = ()  # (text, level) for the log: what was loaded, what was left out and why
    say: Say = lambda text, level: log.log(level, "%s", text)  # where errors at run time are told; Python's logging unless set

    @property
    def customs(self) -> dict[str, CustomFeature]:
        """The features as configurations are checked against them."""
        return {name: feature.part for name, feature in self.features.items()}

    def add(self, part: CustomPart) -> None:
        """Guard a part and take it in."""
        if isinstance(part, CustomStatistic):
            self.statistics[part.name] = GuardedStatistic(part, self._tell)
        elif isinstance(part, CustomFeature):
            self.features[part.name] = GuardedFeature(part, self._tell)
        elif isinstance(part, CustomLogger):
            self.loggers[part.name] = GuardedLogger(part, self._tell)
        elif isinstance(part, CustomRule):
            self.rules[part.name] = GuardedRule(part, self._tell)

    def _tell(self, text: str, level: int) -> None:
        self.say(text, level)


def load(paths: Paths = (), *, taken: Iterable[str] = ()) -> Plugins:
    """What the script's own decorators, installed entry points and feature files add, ready for a run.

    A file is executed once in a process, under a module name of its own; one that fails is left out, which ``messages`` says.

    Args:
        paths: files, or folders that are searched for ``*.py``, those inside them too, in the order of their names.
        taken: names of statistics that are no longer free.

    Raises: UsageError for a path that is not there or holds no Python, and for a name that two of them want.
    """
    files = [file for path in _listed(paths) for file in _files(path)]
    messages: list[tuple[str, int]] = []
    every = Registry()
    sources: dict[str, Callable[[], object]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        sources[f"entry point {point.name} = {point.value}"] = point.load
    for file in files:
        sources[str(file)] = partial(_execute, file)
    for source, execute in sources.items():
        registry = _once(source, execute, messages)
        if registry is not None:
            added = ", ".join(f"{part.kind} {part.name!r}" for part in registry)
            messages.append((f"{source} adds {added or 'nothing'}", logging.INFO))
        for part in registry or ():
            every.add(part)
    for part in PROCESS:
        every.add(part)
    found = Plugins()
    for part in every:
        if isinstance(part, CustomStatistic):
            if part.name in set(taken):
                raise UsageError(f"statistic {part.name!r}: got a second one at {part.place}, expected a name that is free. Rename it.")
            if part.of == "tensor":
                messages.append((f"statistic {part.name!r} takes its own pass over each tensor ({part.place})", logging.INFO))
        found.add(part)
    found.messages = tuple(messages)
    return found


def place_in(error: BaseException, file: str) -> str:
    """Where an error arose, as file:line: the last line of the given file that led to it, else the last of all."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if f.filename == file), frames[-1] if frames else None)
    return file if frame is None else f"{frame.filename}:{frame.lineno}"


# ---- files and entry points


def _listed(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path.resolve()]
    if not path.is_dir():
        raise UsageError(f"features: got {str(path)!r}, expected a Python file or a folder of such. It is not there.")
    found = sorted((p for p in path.rglob("*.py") if p.is_file()), key=lambda p: p.relative_to(path).parts)
    if not found:
        raise UsageError(f"features: got {str(path)!r}, expected a folder with Python files in it. It has none.")
    return [p.resolve() for p in found]


def _once(key: str, execute: Callable[[], object], messages: list[tuple[str, int]]) -> Registry | None:
    """The registry that a source fills, now or before; None where it fails, which leaves no trace."""
    if key not in _loaded:
        try:
            with filling(Registry()) as registry:
                execute()
        except ours(Exception, SystemExit) as error:
            messages.append((f"{key} is left out: {type(error).__name__} at {place_in(error, key)}: {error}", logging.ERROR))
            return None
        _loaded[key] = registry
    return _loaded[key]


def _execute(file: Path) -> None:
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:12]
    name = f"numscope_features_{file.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"features: got {str(file)!r}, expected a Python file: its name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent)
    sys.path.append(folder)  # so that files of one folder can import each other; behind all else, so that none hides a module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        if folder in sys.path:
            del sys.path[-1 - sys.path[::-1].index(folder)]  # the last one: the first may be the interpreter's own


# ---- the cells of a statistic that takes a pass of its own

_ADDED = ("count", "sum")
_ORDERED = ("count", "num_nan", "largest")  # of the smallest value, the largest of the negated ones


def _extra(name: str, merge: str) -> Extra:
    parts = _ADDED if merge in ("sum", "mean") else _ORDERED
    columns = tuple(f"{name}_{part}" for part in parts)
    return Extra(f"plugin_{name}", columns, (1,) * len(parts), tuple(part == "largest" for part in parts), kind="plugin")


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
