"""Finds out whether a script that caught numscope's own error was stopped by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numscope.cli.uncaught import exit_status, print_stop, stop_in_words
from numscope.records import errors
from numscope.records.errors import STOPS


class Stop(NamedTuple):
    """An error of numscope's that has stopped a training."""

    status: int
    words: str  # where the script stood
    num_steps: int  # training steps that had ended by then


@dataclass(eq=False)
class Stops:
    """Remembers the last error that was to stop the run, and whether the script has trained on since.

    A wrapper around the script (hydra, a launcher) may turn the error into an exit status or an error of its own, and a thread may end with
    it. A script that catches it and trains on has its own end. The error itself is not kept: its traceback holds the script's tensors.
    """

    num_steps: Callable[[], int]  # counts the training steps that have ended
    _last: Stop | None = None
    _in_thread: bool = False  # the error has ended a thread
    _hook: Callable[[Any], object] = threading.excepthook

    def listen(self) -> None:
        """Begin to remember."""
        errors.stop_listeners.append(self._made)
        self._hook = threading.excepthook
        threading.excepthook = self._thread_ended

    def close(self) -> None:
        """Remember no more. Safe to call twice."""
        if self._made in errors.stop_listeners:
            errors.stop_listeners.remove(self._made)
        if threading.excepthook == self._thread_ended:
            threading.excepthook = self._hook

    def behind(self, error: BaseException | None) -> Stop | None:
        """numscope's error behind an end with another error or status; None if the script ended by itself."""
        last = self._last
        if last is None or self.num_steps() > last.num_steps + 1:  # the step at work may end with the error
            return None
        fails = error is not None and (not isinstance(error, SystemExit) or bool(error.code))
        return last if fails or self._in_thread else None

    def _made(self, error: BaseException) -> None:
        self._last, self._in_thread = Stop(exit_status(error) or 0, stop_in_words(error), self.num_steps()), False

    def _thread_ended(self, ended: Any) -> None:
        if isinstance(ended.exc_value, STOPS):
            self._in_thread = True
            print_stop(ended.exc_value)
        else:
            self._hook(ended)
