"""Types of option values; each error names the given and the expected value."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from numscope.records.words import nearest
from numscope.storage.address import is_address


class Expected(ValueError):
    """A value is wrong. The text is the end of the sentence "got …, expected …", with its full stop."""


class Value(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A value that a function reads from a word.

    Args:
        name: stands for the value in the help.
        read: raises ``Expected``, or another ValueError in place of ``Expected(f"{expected}.")``.
        expected: what a value has to be.
    """

    def __init__(self, name: str, read: Callable[[str], Any], expected: str = "") -> None:
        self.name = name
        self._read = read
        self._expected = expected

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # an option's default
            return value
        try:
            return self._read(value)
        except ValueError as error:
            expected = str(error) if isinstance(error, Expected) else f"{self._expected}."
        return self.fail(f"got {value!r}, expected {expected}", param, ctx)


def whole_number(least: int | None = None) -> Value:
    """A whole number, at least ``least`` if given."""

    def read(text: str) -> int:
        number = int(text)
        if least is not None and number < least:
            raise Expected(f"a whole number of at least {least}.")
        return number

    return Value("N", read, "a whole number")


def real(what: str, least: float, most: float = float("inf")) -> Value:
    """A finite number within bounds; ``what`` describes it."""

    def read(text: str) -> float:
        number = float(text)
        if not least <= number <= most or number == float("inf"):
            raise ValueError
        return number

    return Value("X", read, what)


def one_of(*words: str) -> Value:
    """One of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise Expected(f"one of {', '.join(map(repr, words))}.{nearest(text, words)}")
        return text

    return Value("WORD", read)


def listed(name: str, read: Callable[[str], Any], expected: str = "") -> Value:
    """Values with commas in between, each read on its own."""
    return Value(name, lambda text: tuple(read(word.strip()) for word in text.split(",")), expected)


def output_file(text: str) -> str:
    """The absolute path of a file to write."""
    if is_address(text):
        raise Expected("a file of this machine. Only --log-dir may be in another storage.")
    path = os.path.abspath(text)
    if os.path.isdir(path):
        raise Expected("a file's path. It is a folder: add a file's name.")
    if not os.path.isdir(os.path.dirname(path)):
        raise Expected(f"a file in a folder that exists. Make {os.path.dirname(text)!r} first.")
    if not os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK):
        raise Expected("a file that can be written.")
    return path


def _output_folder(text: str) -> str:
    if is_address(text):
        return text
    path = os.path.abspath(text)
    if os.path.exists(path) and not os.path.isdir(path):
        raise Expected("a folder, or a path where one can be created. It is a file.")
    return path


# Paths are absolute from here on: a script may change its folder.
OUTPUT_FILE = Value("FILE", output_file)  # it must be writable, so that a run does not end with an error
OUTPUT_FOLDER = Value("DIR", _output_folder)  # created if missing
