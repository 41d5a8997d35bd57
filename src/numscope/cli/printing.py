"""Prints commands' output. Names come from strangers' folders and files, so unprintable characters are escaped, here and nowhere else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from numscope.records.errors import UsageError
from numscope.records.words import escape

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1  # of the documents of layers and config


def say(text: object, *, err: bool = False) -> None:
    """Print text with its line breaks; other unprintable characters are escaped."""
    click.echo(printable(text), err=err)


def note(text: object) -> None:
    """Print a message to stderr."""
    say(f"numscope: {text}", err=True)


def put(to: str, document: Mapping[str, Any] | Iterable[str], option: str = "--json") -> None:
    """Write a command's result to where the user wants it.

    Args:
        to: a file's path; "-": standard output.
        document: what JSON can hold, without nan and infinities; or the parts of a text.

    Raises: UsageError where the file can't be written.
    """
    parts = [json.dumps(document, indent=1, allow_nan=False), "\n"] if isinstance(document, Mapping) else document
    if to == "-":
        for part in parts:
            click.echo(part, nl=False)
        return
    from numscope.records.files import write_where_asked

    try:
        write_where_asked(to, "".join(parts).encode())
    except OSError as error:
        raise UsageError(f"got {to!r}, expected a file that can be written: {error.strerror}.", option) from None


def printable(text: object) -> str:
    """Text with its lines, and with nothing that could color, turn or overwrite them."""
    return "\n".join(map(escape, str(text).split("\n")))


def plain_table(*columns: str) -> Table:
    """A table without a frame, whose long cells are folded."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text."""
    from rich.text import Text

    table.add_row(*(Text(escape(cell)) for cell in cells))


def cells(table: Table | None) -> list[dict[str, str]]:
    """A table's rows by their columns' names, for JSON; none without a table."""
    columns = [] if table is None else [(str(column.header), [str(cell) for cell in column.cells]) for column in table.columns]
    return [dict(zip([name for name, _ in columns], row, strict=True)) for row in zip(*(told for _, told in columns), strict=True)]


def show(table: Table) -> None:
    """Print a table, in a file as wide as it needs."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=200, color_system=None)
    console.print(table)
