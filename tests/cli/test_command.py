"""The command group: its help loads none of its commands, and each is loaded when it is called."""

from __future__ import annotations

import subprocess

import click
import pytest
from click.testing import CliRunner

from numscope.cli.command import COMMANDS, main, numscope
from tests.warm import COLD


def test_help_names_all_commands_and_loads_none() -> None:
    code = (
        "import sys\nfrom numscope.cli.command import numscope\nnumscope.main(['--help'], standalone_mode=False)\n"
        "print('loaded', sorted(name for name in sys.modules if name.startswith(('numscope.', 'rich', 'torch', 'numpy', 'pydantic'))))"
    )
    done = subprocess.run([COLD, "-c", code], capture_output=True, text=True, check=True)
    for name, line in COMMANDS.items():
        assert f"  {name:<9}  {line}\n" in done.stdout
    ours = ["cli", "cli.command", "cli.printing", "lazy", "records", "records.errors", "records.words", "version"]
    assert f"loaded {[f'numscope.{name}' for name in ours]}" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_in_the_file_of_its_name(name: str) -> None:
    command = numscope.get_command(click.Context(numscope), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    told = CliRunner().invoke(numscope, [name, "--help"]).output
    assert told.startswith(f"Usage: numscope {name}")
    assert CliRunner().invoke(numscope, [name, "-h"]).output == told


def options(command: click.Command) -> int:
    inner = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ()
    own = sum(isinstance(param, click.Option) for param in command.params)
    return own + sum(options(command.get_command(click.Context(command), name)) for name in inner)  # type: ignore[attr-defined,arg-type]


def test_there_are_at_most_70_options() -> None:
    assert options(numscope) <= 70


@pytest.mark.parametrize(
    ("words", "use"),
    [
        (["top", "--once", "run"], "Use a pipe, as in numscope top RUN | cat."),
        (["top", "--follow", "run"], "Use numscope top RUN, which shows new records as they come."),
        (["diff", "--tol", "1", "a", "b"], "Did you mean '--tolerance'?"),
        (["precision", "advise", "--seed", "3", "train.py"], "Use seed in the file of --settings."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_error_about_an_option_of_an_earlier_version_names_what_to_use(
    words: list[str], use: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["numscope", *words])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.endswith(f"{use}\n")


def test_unknown_command_is_refused() -> None:
    assert numscope.get_command(click.Context(numscope), "rnu") is None
    assert list(COMMANDS) == sorted(COMMANDS)
