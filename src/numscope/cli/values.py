"""Types of option values; each error names the given and the expected value."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from numscope.records.errors import UsageError
from numscope.records.files import why_unwritable
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


def output(text: str, *, folder: bool = False) -> str:
    """The absolute path of an output that can be written; a folder may be in another storage. Raises: Expected."""
    if is_address(text):
        if folder:
            return text
        raise Expected("a file of this machine. Only --log-dir may be in another storage.")
    if text == "-" and not folder:
        raise Expected("a file: standard output may hold other lines.")
    if why := why_unwritable(text, folder=folder):
        raise Expected(why)
    return os.path.abspath(text)


def writable(text: str, option: str, *, folder: bool = False) -> str:
    """The same of an output that has no option's type, such as one by default. Raises: UsageError as ``OUTPUT_FILE`` does."""
    try:
        return output(text, folder=folder)
    except Expected as error:
        raise UsageError(f"got {text!r}, expected {error}", option) from None


def _json_file(text: str) -> str:
    if text == "-":
        return text
    path, to_print = os.path.abspath(text), "To print JSON, put --json last, or write --json -."
    if os.path.isdir(path):
        raise Expected(f"a file to write JSON to. It is a folder. {to_print}")
    if os.path.isfile(path):  # an option's value may be left out: so a script, a log or a run's YAML that follows is taken for the file
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if file.read(1) not in (b"", b"{", b"["):
                raise Expected(f"a file to write JSON to. It holds something else. {to_print}")
    return output(text)


# Paths are absolute from here on: a script may change its folder.
OUTPUT_FILE = Value("FILE", output)  # it must be writable, so that a run does not end with an error
OUTPUT_FOLDER = Value("DIR", partial(output, folder=True))  # created if missing
JSON_FILE = Value("[FILE|-]", _json_file)


def json_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--json [FILE|-]`` of a command that prints results, which the command gets as ``json_to``: see ``printing.put``."""
    return click.option("--json", "json_to", type=JSON_FILE, is_flag=False, flag_value="-", help=f"{text}; alone or with -: print it.")
