"""``numscope capsule``: where a run's capsules are, or the command that makes one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from itertools import pairwise

import click

from numscope.cli.printing import note, say
from numscope.config.check_plan import CAPSULE, CHECK
from numscope.page.recorded import read_recorded
from numscope.records.faults import suppress


@click.command(options_metavar="[options]")
@click.argument("run", metavar="RUN")
def capsule(run: str) -> int:
    """Name the capsules of a run: the operation at fault alone, and a script that shows it. If there is none, say how to get one.

    RUN is the run's log_dir. It holds no tensors unless a capsule was asked for, and nothing that it names is run.

    Exit status: 1 if there is no capsule.
    """
    recorded = read_recorded(run, "RUN")
    for problem in recorded.problems:
        note(problem)
    folders = [os.path.join(recorded.path, name) for name in _names(recorded.path) if name.startswith(f"{CAPSULE}-step")]
    for folder in folders:
        say(f"{folder}: python {shlex.quote(os.path.join(folder, 'repro.py'))} shows the failure without numscope")
    if folders:
        return 0
    found = next((one for one in recorded.findings if not one.contained), None)
    if found is None:
        say("no capsule: the run has no finding")
        return 1
    words = _words(recorded.command)
    if any(CAPSULE in value for word, value in pairwise(words) if word == f"--{CHECK}"):
        say("no capsule: one was asked for, and the run's output says why there is none")
        return 1
    say(f"no capsule: none was asked for. The run's first finding is at step {found.step}; run again like this it leaves one there:")
    say(f"  {shlex.join(_with_capsule(words))}")
    return 1


def _names(folder: str) -> list[str]:
    """Of what is in it; nothing of a run in another storage."""
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _words(command: str) -> list[str]:
    """Of a shell's command line; none where it is cut."""
    with suppress(ValueError):
        return shlex.split(command)
    return []


def _with_capsule(words: Sequence[str]) -> list[str]:
    """A run's command, changed so that a finding leaves a capsule."""
    option = f"--{CHECK}"
    at = next((i for i, word in enumerate(words) if word == "run" and "numscope" in "".join(words[max(i - 1, 0) : i])), -1)
    if at < 0:  # watched by its own script
        script = next((i for i, word in enumerate(words) if word.endswith(".py") or word == "-m"), len(words))
        return ["numscope", "run", option, CAPSULE, *words[script:]]
    if option in words[at:-1]:
        value = words.index(option, at) + 1
        return [*words[:value], f"{CAPSULE},{words[value]}", *words[value + 1 :]]
    return [*words[: at + 1], option, CAPSULE, *words[at + 1 :]]
