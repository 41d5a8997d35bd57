"""Loads what users add: feature files, installed entry points, decorators in the script itself."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from numscope.plugins.custom_parts import CustomFeature, CustomLogger, CustomPart, CustomRule, CustomStatistic, Say, place_in
from numscope.plugins.registry import PROCESS, Registry, filling
from numscope.records.errors import UsageError
from numscope.records.faults import ours

GROUP = "numscope.features"  # group of entry points: modules whose import runs the decorators

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

log = logging.getLogger("numscope")

_loaded: dict[str, Registry] = {}  # executed sources of this process, and the parts of each


@dataclass
class Plugins:
    """The user's own parts of a run, by name."""

    statistics: dict[str, CustomStatistic] = field(default_factory=dict)
    features: dict[str, CustomFeature] = field(default_factory=dict)
    loggers: dict[str, CustomLogger] = field(default_factory=dict)
    rules: dict[str, CustomRule] = field(default_factory=dict)
    messages: tuple[tuple[str, int], ...] = ()  # (text, level) for the log: loaded sources, and those left out with the reason
    say: Say = lambda text, level: log.log(level, "%s", text)  # reports errors at run time; Python's logging unless set

    def add(self, part: CustomPart) -> None:
        """Add a copy of a part, which reports its errors here."""
        getattr(self, f"{part.kind}s")[part.name] = replace(part, say=lambda text, level: self.say(text, level))


def load(paths: Paths = (), *, taken: Iterable[str] = ()) -> Plugins:
    """Loads what the script's own decorators, installed entry points and feature files add, ready for a run.

    A file is executed once in a process, under a module name of its own; one that fails is left out, with a line in ``messages``.

    Args:
        paths: files, or folders that are searched for ``*.py``, those inside them too, in the order of their names.
        taken: names of built-in statistics.

    Raises: UsageError for a path that is not there or holds no Python, and for a name that two of them want.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = [file for path in listed for file in _files(Path(path))]
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


# ---- files and entry points


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
