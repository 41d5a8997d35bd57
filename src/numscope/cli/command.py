"""The ``numscope`` command: its subcommands, and its errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click import exceptions as wrong

from numscope.cli.printing import say
from numscope.records.errors import NumscopeError, UsageError
from numscope.records.words import choices, closest, nearest
from numscope.version import __version__

# Each command with its line of the help. Its file is loaded when the command is called: all of them take 0.2 s.
COMMANDS = {
    "capsule": "Name a run's capsules, or the command that makes one.",
    "config": "Check or explain a configuration.",
    "diff": "Find where two runs, or two steps, begin to differ.",
    "doctor": "Find the rank, host or link that is broken.",
    "layers": "List layers, and those that a configuration selects.",
    "parity": "Find where two layouts of one training part.",
    "precision": "Find what low precision harms.",
    "report": "Make an HTML page of a run.",
    "run": "Run a training script under watch.",
    "stats": "Query a run's statistics, or merge them by groups.",
    "top": "Look at a run in a terminal while it goes on.",
    "view": "Show runs in a browser while they go on.",
}
# Options of earlier versions, and what to use instead.
REPLACED = {
    "--min-sqnr": "min_sqnr_db in the file of --settings",
    "--max-saturated": "max_saturated_pct in the file of --settings",
    "--max-flushed": "max_flushed_pct in the file of --settings",
    **{f"--{name}": f"{name} in the file of --settings" for name in ("repeats", "runs", "seed", "tolerance")},
    "--fresh": "rm -r on the folder of the trials",
    "--compact": "the word, as in numscope stats RUN compact",
    "--every-steps": "--steps A-B/N, or --steps /N",
    "--follow": "numscope top RUN, which shows new records as they come",
    "--host": "--port HOST:PORT",
    "--once": "a pipe, as in numscope top RUN | cat",
    "--open": "the link that is printed",
}
WRONG_USAGE = 2  # also what Python itself ends with


class Commands(click.Group):
    """Loads a command when it is called, and none for the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"numscope.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},  # commands take them over
    options_metavar="[options]",
    subcommand_metavar="COMMAND …",
)
@click.version_option(__version__, prog_name="numscope", message="%(prog)s %(version)s")
def numscope() -> None:
    """Find the first bad number in a PyTorch training run: which tensor, operation, line and rank, and why."""


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script and of ``python -m numscope``; ``words``: those of the command line unless given."""
    words = sys.argv[1:] if words is None else words
    try:
        outcome = numscope.main(list(words), prog_name="numscope", standalone_mode=False)
    except (click.ClickException, NumscopeError) as error:
        say(explain(error, words), err=True)
        raise SystemExit(getattr(error, "exit_status", WRONG_USAGE)) from None
    except click.Abort:
        raise SystemExit(130) from None
    if callable(outcome):  # what has to run outside of click
        outcome()
    raise SystemExit(outcome if isinstance(outcome, int) else 0)


def explain(error: click.ClickException | NumscopeError, given: Sequence[str]) -> str:
    """A usage error in our form: what was given, what is expected, what to do."""
    if isinstance(error, NumscopeError):
        lines = str(error).splitlines()
        several = isinstance(error, UsageError) and len(lines) > 1 and not lines[-1].startswith(" ")  # SQL's last line is an arrow
        return "numscope: " + ("\n  ".join((f"{len(lines)} errors:", *lines)) if several else str(error))
    if isinstance(error, wrong.NoArgsIsHelpError):
        return error.format_message()
    return f"numscope: {_explained(error, list(given))}"


def _explained(error: click.ClickException, words: list[str]) -> str:
    command: click.Command = numscope
    where = "numscope"
    ctx = click.Context(numscope)
    while words and isinstance(command, click.Group) and (inner := command.get_command(ctx, words[0])):  # not every error knows its command
        where, command = f"{where} {words.pop(0)}", inner
    word = next(iter(words), "")
    ctx = getattr(error, "ctx", None) or ctx
    if isinstance(error, wrong.NoSuchOption):
        if command is numscope and (run := numscope.get_command(ctx, "run")) and any(word in param.opts for param in run.params):
            return f"got {word!r}, expected a command first. Did you mean 'numscope run {word}'?"
        options = sorted(name for p in command.params for name in p.opts if name.startswith("-"))
        bare = {name.lstrip("-"): name for name in options}  # the dashes are alike in all
        begun = error.option_name.lstrip("-")
        names = [name for name in bare if len(begun) > 2 and name.startswith(begun)] or closest(begun, bare, least=0.65)
        alike = [repr(bare[name]) for name in names[:1]]
        words_of = " ".join(param.metavar or "" for param in command.params if isinstance(param, click.Argument))
        if begun in words_of.strip("[]").split(" | "):  # a word that stands for an argument
            return f"got {error.option_name!r}, expected the word without dashes: {where} RUN {begun}"
        hint = (
            f" Use {REPLACED[error.option_name]}." if error.option_name in REPLACED else "".join(f" Did you mean {one}?" for one in alike)
        )
        if not hint and any(param.name == "target" for param in command.params):
            hint = f" The script's own options go after its name: {where} train.py {error.option_name} …"
        return f"got {error.option_name!r}, expected {choices(options, hint) if options else f'no option.{hint}'}"
    if isinstance(error, wrong.BadOptionUsage):
        return f"{error.option_name}: got nothing, expected a value. See {where} --help."
    if isinstance(error, wrong.MissingParameter) and command.name == "run":
        from numscope.cli.run import USAGE

        return f"got no script, expected {USAGE}."
    if isinstance(error, wrong.MissingParameter) and error.param is not None:
        usage = " ".join((where, *command.collect_usage_pieces(ctx)))
        return f"got no {error.param.metavar or error.param.name}, expected {usage}."
    if isinstance(error, wrong.BadParameter) and error.param is not None:
        return f"{error.param.opts[-1]}: {error.message}"
    if isinstance(command, click.Group):
        to_run = command is numscope and word.endswith(".py")
        names = sorted(name for name in command.list_commands(ctx) if not getattr(command.commands.get(name), "hidden", False))
        near = f" Did you mean 'numscope run {word}'?" if to_run else nearest(word, names)
        return f"got {word!r}, expected {choices(names, near)}"
    return error.format_message()
