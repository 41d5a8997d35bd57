"""The wording of a configuration's errors: the place, the value, the expected values, the nearest right name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from numscope.records import words
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import closest

_LONGEST = 80  # most characters of a value in a message
# Types of settings.
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a mapping"}


class ConfigurationError(UsageError):
    """All that is wrong with a configuration.

    Args:
        source: the file's name, or ``config``.
        found: each mistake's place ("" for the whole) and text.
    """

    def __init__(self, source: str, found: Iterable[tuple[str, str]]) -> None:
        self.source, self.found = source, tuple(found)
        super().__init__("\n".join(": ".join(filter(None, (source, place, text))) for place, text in self.found))

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, tuple[tuple[str, str], ...]]]:
        return ConfigurationError, (self.source, self.found)


class Errors:
    """The errors of one source, in the order found, each once: places and texts."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: dict[tuple[str, str], None] = {}

    def add(self, place: str, text: str) -> None:
        self._found[place, text] = None

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Give a place to an error that is raised within, which ends the check."""
        try:
            yield
        except UsageError as error:
            raise ConfigurationError(self.source, [(place, error.text)]) from None

    def extend(self, other: Errors) -> None:
        """Those of another such list of the same source."""
        self._found.update(other._found)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        return iter(str(ConfigurationError(self.source, self._found)).splitlines())

    def raise_any(self) -> None:
        """
        Raises:
            ConfigurationError: there is an error; all of them, a line each.
        """
        if self._found:
            raise ConfigurationError(self.source, self._found)


def shown(value: Any) -> str:
    """A value as written in a configuration, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, list) and not value:
        return "an empty list"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ours(TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def meant(word: object, choices: Iterable[str]) -> str:
    """As ``records.words.nearest``, with a configuration's double quotes."""
    return "".join(f' Did you mean "{near}"?' for near in closest(word, choices))


def one_of(word: object, choices: Iterable[str], also: Iterable[str] = ()) -> str:
    """``got "x", expected one of a, b, c. Did you mean "a"?``; ``also`` are right names that the list leaves out."""
    return f"got {shown(word)}, expected {listed(word, choices, also)}"


def listed(word: object, choices: Iterable[str], also: Iterable[str] = ()) -> str:
    """``one of a, b, c. Did you mean "a"?``; a long list is cut short where the nearest name is known."""
    names = list(choices)
    return words.choices(names, meant(word, [*names, *also]))
