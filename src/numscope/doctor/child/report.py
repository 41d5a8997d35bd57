"""What the child tells its agent, a JSON line each: what it is about to do, what it has done, what it measured; and steps with a limit."""

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
    """A step did not end within its limit; the thread that hangs in it is left behind."""


class Report:
    """Lines on a file descriptor.

    Args:
        fd: that the agent reads from.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._left_behind: set[int] = set()
        self.now_doing = ""  # for messages
        self.before_step: Callable[[str], None] = lambda what: None  # where faults on request strike

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announces a step before and after it."""
        self.doing(what)
        began = time.perf_counter()
        yield
        self._write({"event": "done", "what": what, "seconds": time.perf_counter() - began})

    def doing(self, what: str) -> None:
        """Announces a step before it."""
        self._write({"event": "doing", "what": what})
        self.now_doing = what
        self.before_step(what)

    def set(self, **values: Any) -> None:
        """Sets keys of the phase's data."""
        self._write({"event": "set", "values": values})

    def add(self, name: str, value: Any) -> None:
        """Appends to a list of the phase's data."""
        self._write({"event": "add", "list": name, "value": value})

    def end(self, error: str) -> None:
        """Ends the phase; "" is well."""
        self._write({"event": "end", "error": error})

    def limited(self, seconds: float, function: Callable[[], _T]) -> _T:
        """The function's result, from a thread of its own, since neither torch's timeouts nor ours end what hangs in C++.

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
        thread.join(max(0.0, seconds))
        if raised:
            raise raised[0]
        if result:
            return result[0]
        with self._lock:
            self._left_behind.add(thread.ident or 0)
        raise StepTimeout(f"not done within {seconds:.1f} s")

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            if threading.get_ident() in self._left_behind:
                raise StepTimeout("left behind")  # it came back after all: nobody waits for it any more
            while data:
                data = data[os.write(self._fd, data) :]
