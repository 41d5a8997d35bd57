"""Prints commands' output. Names come from strangers' folders and files, so unprintable characters are escaped, here and nowhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from numscope.records.words import escape

if TYPE_CHECKING:
    from rich.table import Table


def say(text: object, *, err: bool = False) -> None:
    """Print text with its line breaks; other unprintable characters are escaped."""
    click.echo(printable(text), err=err)


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


def show(table: Table) -> None:
    """Print a table, in a file as wide as it needs."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=200, color_system=None)
    console.print(table)
