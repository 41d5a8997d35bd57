"""``numscope top``: a run in a terminal, while it goes on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from numscope.cli.top_screen import screen
from numscope.page.overview import Overview, overview_of
from numscope.records.errors import UsageError
from numscope.records.words import escape
from numscope.report.text import print_plain
from numscope.runs.sources import Local, Signature, source_of
from numscope.storage.address import is_address
from numscope.view.refresher import Refresher

UNCUT = 10_000  # columns of a pipe or a file
TICK_S = 0.25  # between looks at the folder, the keys and the terminal's size
REST = 4  # times as long as a reading took: at most a fifth of a core goes into reading
LOOK_REMOTE_S = 10.0  # between two looks at another storage: it takes money for each
MOST_AGE_S = 1.0  # after which the screen is drawn again: it shows the last record's age


@click.command(options_metavar="[options]")
@click.argument("run", metavar="RUN")
def top(run: str) -> None:
    """Show a run's findings, alerts, events and worst tensors, each with the course of its largest magnitude; new records appear.

    RUN is the run's log_dir. q or Ctrl-C ends it. In a pipe or a file, it is printed once.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        _Live(console, run).loop()
    else:
        print_once(run)


def print_once(run: str) -> Overview:
    console = Console()
    overview, width = overview_of(run), console.width if console.is_terminal else UNCUT
    print_plain(screen(overview, time.time() - overview.written, width), sys.stdout, width)
    return overview


class _Live:
    """The screen of one run."""

    def __init__(self, console: Console, run: str) -> None:
        self._console, self._run, self._source = console, run, source_of(run)
        if isinstance(self._source, Local):
            self._source.check()
        self._refresher = Refresher("numscope top", self._read)  # so that keys are heard meanwhile
        self._stamp: Signature | None = None
        self._overview: Overview | None = None
        self._problem = ""

    def loop(self) -> None:
        before = signal.signal(signal.SIGTERM, _leave)
        try:
            with Live(console=self._console, screen=True, auto_refresh=False) as live, _keys() as keys:
                drawn: object = None
                while not {"q", "Q", "\x03", "\x04"} & set(keys(TICK_S if drawn else 0)):
                    self._refresher.ask(0.0)
                    shown = (id(self._overview), self._problem, self._console.size, int(time.monotonic() / MOST_AGE_S))
                    if shown != drawn:
                        live.update(self._screen(), refresh=True)
                        drawn = shown
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
            if self._refresher.is_busy:  # the end of Python would wait for a query: seconds, of a large run
                sys.stdout.flush()
                os._exit(0)

    def _read(self) -> float:
        """Read the run if something in it is new. Returns: the seconds until the next look."""
        least = LOOK_REMOTE_S if is_address(self._run) else 0.0
        start = time.monotonic()
        try:
            stamp = self._source.signature()
            if stamp == self._stamp:
                return least
            self._stamp = stamp
            self._overview, self._problem = overview_of(self._run, self._source.fetch(stamp)), ""
        except UsageError as error:  # nothing there yet, or no longer
            self._problem = str(error)
        except Exception as error:  # the next records may be better
            self._problem = escape(f"{type(error).__name__}: {error}")
        return max(least, REST * (time.monotonic() - start))

    def _screen(self) -> RenderableType:
        width, height = self._console.size
        footer = "q quits" + (f"   {self._problem}" if self._problem and self._overview is not None else "")
        if self._overview is None:
            return Text(f"Nothing to show yet. {self._problem}\n\nq quits" if self._problem else "reading …")
        return screen(self._overview, time.time() - self._overview.written, width, height, footer)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Gives the keys pressed within some seconds, or as soon as there are any; "" if there are none, and where stdin is no terminal."""

    def rest(seconds: float) -> str:
        time.sleep(seconds)
        return ""

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([file], [], [], seconds)
        return os.read(file, 1024).decode(errors="replace") if ready else ""

    try:
        import termios
        import tty

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
    except Exception:  # another system; no stdin, or no terminal
        yield rest
        return
    try:
        tty.setcbreak(file)  # Ctrl-C stays a signal
        yield wait
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # through what puts the terminal back
