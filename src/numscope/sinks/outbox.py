"""Sends in the background: training never waits for a service."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from numscope.records.words import count

MAX_WAITING = 512  # pieces of work; a service that is this far behind gets no further ones
PATIENCE_S = 30.0  # for what is under way when a run ends
SETTLE_S = 10.0  # for findings and alerts, when a finding is about to end the run

Work = Callable[[], object]


class Outbox:
    """Does work in order, on a thread that ends when there is nothing left to do: a replay forks only where no other thread runs.

    Findings and alerts go before statistics, are never left out, and are still sent where statistics have failed.

    *Cost:* for the caller, a lock; a thread's start, 50 µs, where none is at work.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[Work] = deque()
        self._news: deque[Work] = deque()
        self._num_news = 0  # findings and alerts that wait or are being sent
        self._changed = threading.Condition()
        self._at_work = self._is_late = False
        self._error: BaseException | None = None
        self.num_left_out = 0

    def put(self, work: Work) -> None:
        """Do it later; where too much waits already, it is counted and left out. Raises: what earlier work has raised."""
        self._check()
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self.num_left_out += 1
            else:
                self._add(self._waiting, work)

    def put_news(self, work: Work) -> None:
        """Do it next: it sends a finding or an alert."""
        with self._changed:
            self._num_news += 1
            self._add(self._news, work)

    def settle(self, patience_s: float = SETTLE_S) -> None:
        """Wait until all findings and alerts are sent, or for so long, once; what is late is sent later. Raises: what work has raised."""
        with self._changed:
            self._is_late = not self._changed.wait_for(lambda: not self._num_news, 0.0 if self._is_late else patience_s)
        self._check()

    def drain(self, patience_s: float = PATIENCE_S, *, last: Work | None = None) -> None:
        """Wait until all is done, and ``last`` after all else. Raises: what the work has raised; TimeoutError if it takes longer."""
        end = time.monotonic() + patience_s
        with self._changed:
            if last is not None and self._error is None:
                self._add(self._waiting, last)
            while self._at_work:
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no answer within {patience_s:.0f} s; {self._unsent()}")
        self._check()

    def _unsent(self) -> str:
        if not self._num_news:
            return "what was under way may be lost"
        told = count(self._num_news, "report")
        return f"{told} of findings or alerts may not have arrived. The terminal has them, and so has the log_dir, if there is one"

    def _check(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _add(self, to: deque[Work], work: Work) -> None:
        to.append(work)
        if not self._at_work:
            self._at_work = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._error is not None:
                    self._waiting.clear()
                if not self._news and not self._waiting:
                    self._at_work = False
                    self._changed.notify_all()
                    return
                is_news = bool(self._news)
                work = (self._news or self._waiting).popleft()
            try:
                work()
            except BaseException as error:  # also SystemExit of a library's
                self._error = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
            if is_news:
                with self._changed:
                    self._num_news -= 1
                    self._changed.notify_all()
