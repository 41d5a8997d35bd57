"""What a user adds by decorator: statistics, features, loggers and rules, each under a name that is taken once.

A decorator adds to the registry at work: the process's own, or, while a feature file is loaded, that file's.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from numscope.records.errors import UsageError
from numscope.records.observation import TENSORS
from numscope.records.words import nearest

Kind = Literal["statistic", "feature", "logger", "rule"]
Of = Literal["summary", "tensor"]
Merge = Literal["sum", "max", "min", "mean"]

OFS: tuple[Of, ...] = get_args(Of)
MERGES: tuple[Merge, ...] = get_args(Merge)
SETTING_TYPES: tuple[type, ...] = (bool, int, float, str, list, dict)  # what YAML can say

C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a feature: its type, and its default where it may be left out."""

    type: type
    default: Any = None
    required: bool = True

    def accepts(self, value: object) -> bool:
        """Whether a value is of the type: a whole number is also a float, True and False are no numbers."""
        if isinstance(value, bool):
            return self.type is bool
        return isinstance(value, self.type) or (self.type is float and isinstance(value, int))


@dataclass(frozen=True, slots=True)
class CustomStatistic:
    """A statistic that a plug-in brought.

    Args:
        function: of ``summary``: Summary → float or None; of ``tensor``: Tensor → number, or a tensor of one element.
        of: what it is computed from.
        merge: how the numbers of several tensors become one; None where it is computed from a summary, which merges by itself.
        place: file:line.
    """

    name: str
    function: Callable[[Any], Any]
    of: Of
    merge: Merge | None
    place: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class CustomFeature:
    """A feature that a plug-in brought: called with (layer, tensor_name, tensor, step, settings) at scheduled steps.

    Args:
        tensors: those it may be given; a configuration that names none asks for all of them.
        settings: by name, what a configuration may say beside ``enabled``, ``tensors`` and the schedule.
        place: file:line.
    """

    name: str
    function: Callable[..., Any]
    tensors: tuple[str, ...]
    settings: Mapping[str, Setting]
    place: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class CustomLogger:
    """A logger that a plug-in brought: a class made without arguments that has ``log_scalar(name, value, iteration, **kwargs)``."""

    name: str
    function: Callable[[], Any]
    place: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A rule that a plug-in brought: Observation → a sentence that becomes an alert, or None."""

    name: str
    function: Callable[[Any], Any]
    place: str
    summary: str = ""


Entry = CustomStatistic | CustomFeature | CustomLogger | CustomRule


def kind_of(entry: Entry) -> Kind:
    """What an entry is, as its decorator is called."""
    return _KINDS[type(entry)]


_KINDS: dict[type, Kind] = {CustomStatistic: "statistic", CustomFeature: "feature", CustomLogger: "logger", CustomRule: "rule"}


@dataclass
class Registry:
    """Names and what they stand for, a table a kind.

    Its decorators refuse a name that is taken, with both places; the same function defined again (a cell or a module that is
    run again) takes its own old place.
    """

    entries: dict[tuple[Kind, str], Entry] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    def names(self, kind: Kind) -> list[str]:
        """The names of one kind, in the order in which they came."""
        return [name for k, name in self.entries if k == kind]

    def get(self, kind: Kind, name: str) -> Entry:
        """What a name stands for.

        Raises: UsageError with the nearest known name.
        """
        found = self.entries.get((kind, name))
        if found is None:
            known = self.names(kind)
            expected = f"expected one of {', '.join(known)}" if known else f"but no {kind} was added"
            raise UsageError(f"{kind}: got {name!r}, {expected}.{nearest(name, known)}")
        return found

    def add(self, entry: Entry) -> None:
        """Add an entry.

        Raises: UsageError where another one has its name.
        """
        key = (kind_of(entry), entry.name)
        taken = self.entries.get(key)
        if taken is not None and not _is_same(taken, entry):
            raise UsageError(
                f"{key[0]} {entry.name!r}: got a second one at {entry.place}, expected each name once: "
                f"it is taken at {taken.place}. Rename one."
            )
        self.entries[key] = entry

    # ---- decorators

    def statistic(self, name: str, *, of: Of = "summary", merge: Merge | None = None) -> Callable[[C], C]:
        """Add a statistic; see ``numscope.statistic``."""
        where = f"statistic {_checked(name, 'statistic')!r}"
        _one_of(where, "of", of, OFS)
        if of == "summary" and merge is not None:
            raise UsageError(f"{where}: merge: got {merge!r}, expected nothing: a summary merges by itself. Leave merge out.")
        if of == "tensor":
            if merge is None:
                raise UsageError(
                    f"{where}: merge: got nothing, expected one of {_words(MERGES)}: how the numbers of two tensors become one."
                )
            _one_of(where, "merge", merge, MERGES)

        def add(function: C) -> C:
            self.add(CustomStatistic(name, _callable(where, function), of, merge, place_of(function), _sentence(function)))
            return function

        return add

    def feature(
        self, name: str, *, tensors: Sequence[str] = TENSORS, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> Callable[[C], C]:
        """Add a feature; see ``numscope.feature``."""
        where = f"feature {_checked(name, 'feature')!r}"
        if isinstance(tensors, str) or not tensors:
            raise UsageError(f"{where}: tensors: got {tensors!r}, expected a list of some of {_words(TENSORS)}.")
        for tensor in tensors:
            _one_of(where, "tensors", tensor, TENSORS)
        known = {key: _setting(where, key, value) for key, value in settings.items()}

        def add(function: C) -> C:
            checked = _callable(where, function)
            self.add(CustomFeature(name, checked, tuple(tensors), MappingProxyType(known), place_of(function), _sentence(function)))
            return function

        return add

    def logger(self, name: str) -> Callable[[C], C]:
        """Add a logger; see ``numscope.logger``."""
        where = f"logger {_checked(name, 'logger')!r}"

        def add(cls: C) -> C:
            if not callable(getattr(_callable(where, cls), "log_scalar", None)):
                got = getattr(cls, "__name__", cls)
                raise UsageError(f"{where}: got {got}, expected a class with log_scalar(self, name, value, iteration, **kwargs).")
            self.add(CustomLogger(name, cls, place_of(cls), _sentence(cls)))
            return cls

        return add

    def rule(self, name: str) -> Callable[[C], C]:
        """Add a rule; see ``numscope.rule``."""
        where = f"rule {_checked(name, 'rule')!r}"

        def add(function: C) -> C:
            self.add(CustomRule(name, _callable(where, function), place_of(function), _sentence(function)))
            return function

        return add


PROCESS = Registry()  # what scripts and imported modules add
_at_work: ContextVar[Registry] = ContextVar("numscope_registry", default=PROCESS)


@contextmanager
def filling(registry: Registry) -> Iterator[Registry]:
    """Within, the decorators below add to this registry."""
    token = _at_work.set(registry)
    try:
        yield registry
    finally:
        _at_work.reset(token)


def statistic(name: str, *, of: Of = "summary", merge: Merge | None = None) -> Callable[[C], C]:
    """Add a statistic that configurations may ask for by its name.

    Args:
        name: what configurations and logs call it.
        of: ``summary``: the function gets a Summary and gives a float, or None where it is undefined; it merges over micro-batches
            and ranks by itself. ``tensor``: the function gets the tensor, detached, and gives a number or a tensor of one element.
        merge: of ``tensor`` only: how the numbers of several tensors become one: ``sum``, ``max``, ``min``, or ``mean``, weighted by
            their numbers of elements.

    Raises: UsageError.

    *Cost:* of a summary: none beside the pass that all statistics share; of a tensor: its own pass, and a sync where it calls ``.item()``.
    """
    return _at_work.get().statistic(name, of=of, merge=merge)


def feature(name: str, *, tensors: Sequence[str] = TENSORS, settings: Mapping[str, Any] = MappingProxyType({})) -> Callable[[C], C]:
    """Add a feature that configurations may enable by its name: code that is given tensors at scheduled steps.

    The function is called with ``(layer, tensor_name, tensor, step, settings)``: names, the tensor, detached, a number from 0, a dict. It
    gives nothing, a number, or a dict of numbers, which are logged as ``<layer>_<tensor>_<name>``.

    Args:
        name: the key in configurations.
        tensors: those it may be given.
        settings: what a configuration may set: a type where it must, a default where it may; ``{"threshold": 0.5, "mode": str}``.

    Raises: UsageError.
    """
    return _at_work.get().feature(name, tensors=tensors, settings=settings)


def logger(name: str) -> Callable[[C], C]:
    """Add a logger: a class made without arguments, given each statistic by ``log_scalar(name, value, iteration, **kwargs)``.

    Args:
        name: what messages call it.

    Raises: UsageError.
    """
    return _at_work.get().logger(name)


def rule(name: str) -> Callable[[C], C]:
    """Add a rule: the function reads each Observation and gives a sentence, which becomes an alert, or None.

    Args:
        name: what alerts call it.

    Raises: UsageError.
    """
    return _at_work.get().rule(name)


# ---- what the refusals need


def place_of(function: Callable[..., Any]) -> str:
    """Where something callable was written, as file:line; its name where Python does not know."""
    try:
        found = inspect.unwrap(function)
        code = getattr(found, "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):  # built in, or typed at a prompt
        return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _is_same(old: Entry, new: Entry) -> bool:
    """Whether one takes the place of the other: written at the same place, or, where no file holds it (a prompt, a notebook), so named."""
    if old.place == new.place:
        return True
    names = [(getattr(e.function, "__module__", None), getattr(e.function, "__qualname__", None)) for e in (old, new)]
    return names[0] == names[1] and not os.path.isfile(old.place.rpartition(":")[0])


def _checked(name: str, kind: Kind) -> str:
    if callable(name):
        raise UsageError(f'{kind}: got a function, expected a name first: @numscope.{kind}("name").')
    if not isinstance(name, str) or not name or any(letter.isspace() for letter in name):
        raise UsageError(f"{kind}: got the name {name!r}, expected a word without spaces.")
    return name


def _callable(where: str, function: C) -> C:
    if not callable(function):
        raise UsageError(f"{where}: got {type(function).__name__}, expected something to call.")
    return function


def _setting(where: str, key: str, value: Any) -> Setting:
    kind = value if isinstance(value, type) else type(value)
    if kind not in SETTING_TYPES:
        words = ", ".join(t.__name__ for t in SETTING_TYPES)
        raise UsageError(f"{where}: settings.{key}: got {value!r}, expected one of the types {words}, or a default of one of these.")
    return Setting(kind) if isinstance(value, type) else Setting(kind, value, required=False)


def _one_of(where: str, name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{where}: {name}: got {value!r}, expected one of {_words(allowed)}.{nearest(str(value), allowed)}")


def _words(allowed: Sequence[str]) -> str:
    return ", ".join(map(repr, allowed))


def _sentence(function: Callable[..., Any]) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
