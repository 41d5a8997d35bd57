"""The command group: its help loads none of its commands, and each is loaded when it is called."""

from __future__ import annotations

import subprocess

import click
import pytest
from click.testing import CliRunner

from numscope.cli.command import COMMANDS, numscope
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
    assert CliRunner().invoke(numscope, [name, "--help"]).output.startswith(f"Usage: numscope {name}")


def test_unknown_command_is_refused() -> None:
    assert numscope.get_command(click.Context(numscope), "rnu") is None
    assert list(COMMANDS) == sorted(COMMANDS)
