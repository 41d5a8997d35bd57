"""The child's reports to its agent, as JSON lines: the next step, finished steps, measurements. Also steps with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")


class StepTimeout(Exception):
    """A step did not end within its limit; its thread is abandoned."""


class Report:
    """Writes lines to a file descriptor from which the agent reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._abandoned: set[int] = set()
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
        """The function's result, from a thread of its own, since no timeout can interrupt what hangs in C++.

        Raises: StepTimeout; whatever the function raises.
        """
        result: list[_T] = []
        raised: list[BaseException] = []

        def call() -> None:
            try:
                result.append(function())
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        seconds = max(0.0, seconds)
        thread.join(seconds)
        if raised:
            raise raised[0]
        if result:
            return result[0]
        with self._lock:
            self._abandoned.add(thread.ident or 0)
        raise StepTimeout(f"not done within {seconds:.1f} s")

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            if threading.get_ident() in self._abandoned:
                raise StepTimeout("abandoned")  # the thread resumed after its time limit
            while data:
                data = data[os.write(self._fd, data) :]
