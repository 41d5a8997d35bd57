"""Work that threads do again and again, each time when somebody asks for its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Refresher:
    """Does work in a thread when somebody asks, at most one at a time, and not before its last run's pause is over.

    Args:
        name: the threads' name.
        work: returns the seconds to pause after it; it raises nothing.
    """

    def __init__(self, name: str, work: Callable[[], float]) -> None:
        self._name, self._work = name, work
        self._thread = threading.Thread()
        self._next = 0.0  # monotonic time before which the work is not done again
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether the work is being done."""
        return self._thread.is_alive()

    def ask(self, wait_s: float) -> None:
        """Begin the work if it is due, and wait a moment for its end."""
        with self._lock:
            if not self.is_busy and time.monotonic() >= self._next:
                self._thread = threading.Thread(target=self._run, daemon=True, name=self._name)
                self._thread.start()
            thread = self._thread
        thread.join(wait_s)

    def _run(self) -> None:
        self._next = self._work() + time.monotonic()
