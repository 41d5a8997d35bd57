"""Calls of the command line within the test's own process."""

from __future__ import annotations

import click
from click.testing import CliRunner, Result

from numscope.cli.command import main


def called(*words: str) -> Result:
    """A call as the console script makes it: errors are printed, and end it."""
    return CliRunner().invoke(click.Command("numscope", callback=lambda: main(words)))
