"""Checks of arguments, with messages of one form: what was given, what is expected, the nearest right word."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from numscope.records import words
from numscope.records.errors import UsageError
from numscope.records.words import nearest


def check_one_of(where: str, value: object, choices: Collection[Any], shown: Callable[[Any], str] = str) -> None:
    """Raise UsageError unless the value is one of the choices.

    Args:
        where: the argument's name, and what stands before it in the message.
        shown: how the message shows a choice.
    """
    if value not in choices:
        hint = nearest(value, map(str, choices))
        raise UsageError(f"got {value!r}, expected {words.choices([*map(shown, choices)], hint)}", where)


def check_whole(where: str, value: object, least: int) -> None:
    """Raise UsageError unless the value is a whole number of at least ``least``; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"got {value!r}, expected a whole number of at least {least}.", where)
