"""The ``numscope`` command: its subcommands, and its errors."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from click import exceptions as wrong

from numscope.cli.config import config
from numscope.cli.diff import diff
from numscope.cli.doctor import doctor
from numscope.cli.layers import layers
from numscope.cli.precision import precision
from numscope.cli.report import report
from numscope.cli.run import USAGE, run
from numscope.cli.stats import stats
from numscope.cli.top import top
from numscope.cli.view import view
from numscope.records.errors import NumscopeError, UsageError
from numscope.records.words import nearest
from numscope.version import __version__

WRONG_USAGE = 2  # also what Python itself ends with


@click.group(options_metavar="[options]", subcommand_metavar="COMMAND …")
@click.version_option(__version__, prog_name="numscope", message="%(prog)s %(version)s")
def numscope() -> None:
    """Find the first bad number in a PyTorch training run: which tensor, operation, line and rank, and why."""


for one in (diff, doctor, run, config, layers, precision, report, stats, top, view):
    numscope.add_command(one)


def main() -> NoReturn:
    """Entry point of the console script and of ``python -m numscope``."""
    try:
        outcome = numscope.main(prog_name="numscope", standalone_mode=False)
    except (click.ClickException, NumscopeError) as error:
        print(explain(error), file=sys.stderr)
        raise SystemExit(getattr(error, "exit_status", WRONG_USAGE)) from None
    except click.Abort:
        raise SystemExit(130) from None
    if callable(outcome):  # what has to run outside of click
        outcome()
    raise SystemExit(outcome if isinstance(outcome, int) else 0)


def explain(error: click.ClickException | NumscopeError) -> str:
    """A usage error in our form: where, what was given, what is expected, what to do."""
    command: click.Command = numscope
    where, words = "numscope", sys.argv[1:]
    while words and isinstance(command, click.Group) and words[0] in command.commands:  # not every error knows its command
        where, command = f"{where} {words[0]}", command.commands[words.pop(0)]
    if isinstance(error, NumscopeError):
        lines = str(error).splitlines()
        several = isinstance(error, UsageError) and len(lines) > 1
        return f"{where}: " + ("\n  ".join((f"{len(lines)} errors:", *lines)) if several else str(error))
    word = next(iter(words), "")
    ctx = getattr(error, "ctx", None)
    if isinstance(error, wrong.NoArgsIsHelpError):
        return error.format_message()
    if isinstance(error, wrong.NoSuchOption):
        if command is numscope and any(word in p.opts for p in run.params):
            return f"{where}: got {word!r}, expected a command first. Did you mean 'numscope run {word}'?"
        options = sorted(name for p in command.params for name in p.opts if name.startswith("-"))
        expected = f"one of {', '.join(options)}" if options else "no option"
        return f"{where}: got {error.option_name!r}, expected {expected}.{nearest(error.option_name, options)}"
    if isinstance(error, wrong.BadOptionUsage):
        return f"{where}: {error.option_name}: got nothing, expected a value. See {where} --help."
    if isinstance(error, wrong.MissingParameter) and command is run:
        return f"{where}: got no script, expected {USAGE}."
    if isinstance(error, wrong.MissingParameter) and error.param is not None and ctx is not None:
        usage = " ".join((where, *command.collect_usage_pieces(ctx)))
        return f"{where}: got no {error.param.metavar or error.param.name}, expected {usage}."
    if isinstance(error, wrong.BadParameter) and error.param is not None:
        return f"{where}: {error.param.opts[-1]}: {error.message}"
    if isinstance(command, click.Group):
        to_run = command is numscope and word.endswith(".py")
        near = f" Did you mean 'numscope run {word}'?" if to_run else nearest(word, command.commands)
        return f"{where}: got {word!r}, expected one of {', '.join(sorted(command.commands))}.{near}"
    return f"{where}: {error.format_message()}"
