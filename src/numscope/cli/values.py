"""Types of option values; each error says what was given and what is expected."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from numscope.records.words import nearest


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A type of values with errors of one form."""

    def refuse(self, value: object, expected: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        self.fail(f"got {str(value)!r}, expected {expected}.", param, ctx)


class Batches(_Value):
    """Batch numbers, counted from 0, with commas in between."""

    name = "N,N…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            return tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.refuse(value, "batch numbers from 0 with commas in between, such as 149,150", param, ctx)


class OneOf(_Value):
    """One of a few words."""

    name = "WORD"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self._words:
            words = ", ".join(map(repr, self._words))
            self.fail(f"got {str(value)!r}, expected one of {words}.{nearest(value, self._words)}", param, ctx)
        return str(value)


class WholeNumber(_Value):
    """A whole number, at least ``least`` if given."""

    name = "N"

    def __init__(self, least: int | None = None) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value))
        except ValueError:
            self.refuse(value, "a whole number", param, ctx)
        if self._least is not None and number < self._least:
            self.refuse(value, f"a whole number of at least {self._least}", param, ctx)
        return number


class Real(_Value):
    """A number within bounds; ``what`` describes it."""

    name = "X"

    def __init__(self, what: str, least: float, most: float = sys.float_info.max) -> None:
        self._what, self._least, self._most = what, least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = float("nan")
        if not self._least <= number <= self._most:
            self.refuse(value, self._what, param, ctx)
        return number


class OutputFile(_Value):
    """A file to write; its folder must exist, so that the run does not end with an error."""

    name = "FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = Path(str(value))
        if path.is_dir():
            self.refuse(value, "a file's path. It is a folder: add a file's name", param, ctx)
        if not path.absolute().parent.is_dir():
            self.refuse(value, f"a file in a folder that exists. Make {str(path.parent)!r} first", param, ctx)
        return str(path)


class OutputFolder(_Value):
    """A folder to write into; it is created if missing."""

    name = "DIR"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = Path(str(value))
        if path.exists() and not path.is_dir():
            self.refuse(value, "a folder, or a path where one can be created. It is a file", param, ctx)
        return str(path)
