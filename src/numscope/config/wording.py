"""How a configuration's errors read: where, what was got, what was expected, the nearest right name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import closest

_LONGEST = 80  # characters of a value that a message shows
KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}  # what settings may be
_FEW = 8  # names that a message lists when it also knows the one that was meant


class Errors:
    """The errors of one source, in the order found, each once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines: dict[str, None] = {}

    def add(self, place: str, text: str) -> None:
        self._lines[f"{self.source}: {place}: {text}" if place else f"{self.source}: {text}"] = None

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Give a place to an error that is raised within, which ends the check."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.source}: {place}: {error}") from None

    def extend(self, lines: Iterable[str]) -> None:
        """Lines of another such list of the same source."""
        self._lines.update(dict.fromkeys(lines))

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def raise_any(self) -> None:
        """
        Raises:
            UsageError: there is an error; all of them, a line each.
        """
        if self._lines:
            raise UsageError("\n".join(self._lines))


def shown(value: Any) -> str:
    """A value as a configuration would have it, shortened."""
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
    """As ``records.words.nearest``, with the double quotes in which a configuration's values are shown."""
    return "".join(f' Did you mean "{near}"?' for near in closest(word, choices))


def one_of(word: object, choices: Iterable[str], also: Iterable[str] = ()) -> str:
    """``got "x", expected one of a, b, c. Did you mean "a"?``; ``also`` are right names that the list leaves out."""
    return f"got {shown(word)}, expected {listed(word, choices, also)}"


def listed(word: object, choices: Iterable[str], also: Iterable[str] = ()) -> str:
    """``one of a, b, c. Did you mean "a"?``; a long list is cut short where the nearest name is known."""
    names = list(choices)
    hint = meant(word, [*names, *also])
    few = [*names[:_FEW], "…"] if hint and len(names) > _FEW + 2 else names
    return f"one of {', '.join(few)}.{hint}"
