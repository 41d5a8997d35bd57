"""The decorators by which users add statistics, features, loggers and rules, each under a name that can be taken once.

A decorator adds to the registry being filled: the process's own, or a feature file's while that file is loaded.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from numscope.plugins.custom_parts import CustomFeature, CustomLogger, CustomPart, CustomRule, CustomStatistic, Kind, Merge, Of, Setting
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.observation import TENSORS

OFS: tuple[Of, ...] = get_args(Of)
MERGES: tuple[Merge, ...] = get_args(Merge)
SETTING_TYPES: tuple[type, ...] = (bool, int, float, str, list, dict)  # types that YAML has

C = TypeVar("C", bound=Callable[..., Any])


@dataclass
class Registry:
    """Added parts, by kind and name."""

    entries: dict[tuple[Kind, str], CustomPart] = field(default_factory=dict)

    def __iter__(self) -> Iterator[CustomPart]:
        return iter(self.entries.values())

    def add(self, part: CustomPart) -> None:
        """Add a part. The same function defined again (in a cell or a module that is run again) replaces the old one.

        Raises: UsageError with both places if another one has the name.
        """
        taken = self.entries.get((part.kind, part.name))
        if taken is not None and not _is_same(taken, part):
            raise UsageError(
                f"{part.kind} {part.name!r}: got a second one at {part.place}, expected each name once: "
                f"it is taken at {taken.place}. Rename one."
            )
        self.entries[part.kind, part.name] = part


PROCESS = Registry()  # what scripts and imported modules add
_being_filled: ContextVar[Registry] = ContextVar("numscope_registry", default=PROCESS)


@contextmanager
def filling(registry: Registry) -> Iterator[Registry]:
    """Make the decorators below add to this registry."""
    token = _being_filled.set(registry)
    try:
        yield registry
    finally:
        _being_filled.reset(token)


# ---- decorators


def statistic(name: str, *, of: Of = "summary", merge: Merge | None = None) -> Callable[[C], C]:
    """Add a statistic that configurations can ask for by its name.

    Args:
        name: what configurations and logs call it.
        of: ``summary``: the function gets a Summary and returns a float, or None where it is undefined; the statistic merges over
            micro-batches and ranks by itself. ``tensor``: the function gets the detached tensor and returns a number or a tensor of one
            element.
        merge: only for ``tensor``: how the numbers of several tensors become one: ``sum``, ``max``, ``min``, or ``mean``, weighted by
            their numbers of elements.

    Raises: UsageError.

    *Cost:* of a summary: nothing besides the pass that all statistics share; of a tensor: its own pass, and a sync if it calls ``.item()``.
    """
    where = _where("statistic", name)
    check_one_of(f"{where}: of", of, OFS, repr)
    if of == "summary" and merge is not None:
        raise UsageError(f"{where}: merge: got {merge!r}, expected nothing: a summary merges by itself. Leave merge out.")
    if of == "tensor":
        if merge is None:
            raise UsageError(f"{where}: merge: got nothing, expected one of {_words(MERGES)}: how the numbers of two tensors become one.")
        check_one_of(f"{where}: merge", merge, MERGES, repr)
    return _adding(where, lambda function: CustomStatistic(name, function, *_origin(function), of, merge))


def feature(name: str, *, tensors: Sequence[str] = TENSORS, settings: Mapping[str, Any] = MappingProxyType({})) -> Callable[[C], C]:
    """Add a feature that configurations can enable by its name: code that is given tensors at scheduled steps.

    The function is called with ``(layer, tensor_name, tensor, step, settings)``: two names, the detached tensor, a number from 0, a dict.
    It returns nothing, a number, or a dict of numbers, which are logged as ``<layer>_<tensor>_<name>``.

    Args:
        name: the key in configurations.
        tensors: which tensors it can be given.
        settings: what a configuration can set: a type if it must be set, a default if it can be left out;
            ``{"threshold": 0.5, "mode": str}``.

    Raises: UsageError.
    """
    where = _where("feature", name)
    if isinstance(tensors, str) or not tensors:
        raise UsageError(f"{where}: tensors: got {tensors!r}, expected a list of some of {_words(TENSORS)}.")
    for tensor in tensors:
        check_one_of(f"{where}: tensors", tensor, TENSORS, repr)
    known = MappingProxyType({key: _setting(where, key, value) for key, value in settings.items()})
    return _adding(where, lambda function: CustomFeature(name, function, *_origin(function), tuple(tensors), known))


def logger(name: str) -> Callable[[C], C]:
    """Add a logger: a class made without arguments, given each statistic by ``log_scalar(name, value, iteration, **kwargs)``.

    Raises: UsageError.
    """
    where = _where("logger", name)

    def made(cls: Callable[..., Any]) -> CustomLogger:
        if not callable(getattr(cls, "log_scalar", None)):
            got = getattr(cls, "__name__", cls)
            raise UsageError(f"{where}: got {got}, expected a class with log_scalar(self, name, value, iteration, **kwargs).")
        return CustomLogger(name, cls, *_origin(cls))

    return _adding(where, made)


def rule(name: str) -> Callable[[C], C]:
    """Add a rule: the function reads each Observation and returns a sentence, which becomes an alert, an Alert, or None.

    A function of two parameters also gets the site's history: what its statistics were in earlier scheduled steps.

    Raises: UsageError.
    """
    return _adding(_where("rule", name), lambda function: CustomRule(name, function, *_origin(function), _num_required(function) == 2))


def _adding(where: str, made: Callable[[Callable[..., Any]], CustomPart]) -> Callable[[C], C]:
    """A decorator that adds what ``made`` makes of the function, and returns the function."""
    registry = _being_filled.get()

    def add(function: C) -> C:
        if not callable(function):
            raise UsageError(f"{where}: got {type(function).__name__}, expected something to call.")
        registry.add(made(function))
        return function

    return add


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """Where something callable is defined, as file:line (its name if Python does not know), and its docstring's first line."""
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    try:
        found = inspect.unwrap(function)
        code = getattr(found, "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}", summary
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}", summary
    except ours(OSError, TypeError):  # built in, or typed at a prompt
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{getattr(function, '__module__', '?')}.{name}", summary


def _num_required(function: Callable[..., Any]) -> int:
    """How many parameters a function takes that have no default; 1 where Python does not know."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ours(TypeError, ValueError):
        return 1
    return sum(one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)


def _is_same(old: CustomPart, new: CustomPart) -> bool:
    """Whether one is a new version of the other: defined at the same place, or of the same name if there is no file (a notebook)."""
    if old.place == new.place:
        return True
    names = [(getattr(part.function, "__module__", None), getattr(part.function, "__qualname__", None)) for part in (old, new)]
    return names[0] == names[1] and not os.path.isfile(old.place.rpartition(":")[0])


def _where(kind: Kind, name: str) -> str:
    """How messages about a part begin."""
    if callable(name):
        raise UsageError(f'{kind}: got a function, expected a name first: @numscope.{kind}("name").')
    if not isinstance(name, str) or not name or any(letter.isspace() for letter in name):
        raise UsageError(f"{kind}: got the name {name!r}, expected a word without spaces.")
    return f"{kind} {name!r}"


def _setting(where: str, key: str, value: Any) -> Setting:
    kind = value if isinstance(value, type) else type(value)
    if kind not in SETTING_TYPES:
        words = ", ".join(t.__name__ for t in SETTING_TYPES)
        raise UsageError(f"{where}: settings.{key}: got {value!r}, expected one of the types {words}, or a default of one of these.")
    return Setting(kind) if isinstance(value, type) else Setting(kind, value, required=False)


def _words(allowed: Sequence[str]) -> str:
    return ", ".join(map(repr, allowed))
