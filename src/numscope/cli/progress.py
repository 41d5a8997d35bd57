"""How far a search is: a bar on a terminal, plain lines elsewhere; on stderr, so that stdout is the answer alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """What a search tells as it goes."""

    def say(self, text: str) -> None:
        """A run is over."""

    def stage(self, text: str, num_runs: int) -> None:
        """What is sought now, after so many runs."""


class _Lines:
    def __init__(self) -> None:
        self._stage = ""

    def say(self, text: str) -> None:
        print(f"numscope: {text}", file=sys.stderr, flush=True)

    def stage(self, text: str, num_runs: int) -> None:
        if text != self._stage:
            self._stage = text
            self.say(f"now: {text}")


@contextlib.contextmanager
def progress_of(total: int) -> Iterator[Progress]:
    """Progress over at most ``total`` runs."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)

        class Rich:
            num_runs = 0

            def say(self, text: str) -> None:
                self.num_runs += 1
                bar.console.print(Text(text))
                bar.update(task, completed=self.num_runs)

            def stage(self, text: str, num_runs: int) -> None:
                self.num_runs = num_runs
                bar.update(task, description=text, completed=num_runs)

        yield Rich()
