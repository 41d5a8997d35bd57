"""Sends in the background: training never waits for a service."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

MAX_WAITING = 512  # pieces of work; a service that is this far behind gets no further ones
PATIENCE_S = 30.0  # for what is under way when a run ends


class Outbox:
    """Does work in order, on a thread that ends when there is nothing left to do: a replay forks only where no other thread runs.

    *Cost:* for whoever puts, a lock; a thread's start, 50 µs, where none is at work.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._at_work = False
        self._error: BaseException | None = None
        self.num_left_out = 0

    def put(self, work: Callable[[], object]) -> None:
        """Do it later; where too much waits already, it is counted and left out. Raises: what earlier work has raised."""
        self._check()
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self.num_left_out += 1
                return
            self._waiting.append(work)
            if not self._at_work:
                self._at_work = True
                threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def drain(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until all is done. Raises: what the work has raised; TimeoutError if it takes longer."""
        end = time.monotonic() + patience_s
        with self._changed:
            while self._at_work:
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no answer within {patience_s:.0f} s; what was under way may be lost")
        self._check()

    def _check(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting or self._error is not None:
                    self._waiting.clear()
                    self._at_work = False
                    self._changed.notify_all()
                    return
                work = self._waiting.popleft()
            try:
                work()
            except BaseException as error:  # also SystemExit of a library's
                self._error = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
