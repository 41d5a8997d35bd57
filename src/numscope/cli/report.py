"""``numscope report``: a run as one HTML file, or as a short digest."""

from __future__ import annotations

import os
from pathlib import Path

import click

from numscope.records.errors import UsageError
from numscope.records.words import escape

DEFAULT_NAME = "report.html"


@click.command(options_metavar="[options]", short_help="Make an HTML page of a run.")
@click.option("-o", "--output", metavar="FILE", help=f"Where to write it (default: RUN/{DEFAULT_NAME}).")
@click.argument("run", metavar="RUN")
def report(run: str, output: str | None) -> None:
    """Make one HTML file of a run: findings, their lines of code, and every tensor's history. It opens in a browser, without a network.

    RUN is the run's log_dir.
    """
    from numscope.page.document import render
    from numscope.page.payload import payload_of
    from numscope.page.recorded import read_recorded

    recorded = read_recorded(run)
    for problem in recorded.problems:
        click.echo(f"numscope report: {escape(problem)}", err=True)
    page = render([payload_of(recorded)], f"numscope: {os.path.basename(recorded.path)}")
    _write(output or os.path.join(recorded.path, DEFAULT_NAME), page)


def _write(path: str, text: str) -> None:
    """Write a file and print a link to it."""
    from numscope.records.files import write_where_asked

    if os.path.isdir(path):
        raise UsageError(f"--output: got {path!r}, a folder, expected a file. Did you mean {os.path.join(path, DEFAULT_NAME)!r}?")
    data = text.encode()
    try:
        write_where_asked(path, data)
    except OSError as error:
        raise UsageError(f"--output: got {path!r}, expected a file that can be written: {error.strerror}.") from None
    click.echo(Path(path).absolute().as_uri())
