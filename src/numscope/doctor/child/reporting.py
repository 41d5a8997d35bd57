"""The child's reports to its agent, as JSON lines: the next step, finished steps, measurements. Also steps with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from numscope.doctor.budget import Overdue, limited

_T = TypeVar("_T")


class Report:
    """Writes lines to a file descriptor from which the agent reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._abandoned: set[threading.Thread] = set()
        self.now_doing = ""  # for error messages

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announces a step before and after it."""
        self._write({"event": "doing", "what": what})
        self.now_doing = what
        began = time.perf_counter()
        yield
        self._write({"event": "done", "what": what, "seconds": time.perf_counter() - began})

    def set(self, **values: Any) -> None:
        """Sets keys in the phase's data."""
        self._write({"event": "set", "values": values})

    def add(self, name: str, value: Any) -> None:
        """Appends to a list in the phase's data."""
        self._write({"event": "add", "list": name, "value": value})

    def end(self, error: str) -> None:
        """Ends the phase; "" means success."""
        self._write({"event": "end", "error": error})

    def limited(self, seconds: float, function: Callable[[], _T]) -> _T:
        """The function's result; if it is late, its thread can't report anything any more. Raises: Overdue; whatever it raises."""
        try:
            return limited(seconds, function)
        except Overdue as late:
            with self._lock:
                self._abandoned.add(late.thread)
            raise

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            if threading.current_thread() in self._abandoned:
                raise SystemExit  # the thread resumed after its time limit
            while data:
                data = data[os.write(self._fd, data) :]
