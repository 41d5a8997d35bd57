"""A failing sink is disabled and logged once; training goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numscope.records.observation import Observation
from numscope.sinks.protocol import Sink

Say = Callable[[str, int], None]


class GuardedSink:
    """Passes everything to a sink until the sink raises; then logs the error once and passes nothing more.

    Args:
        name: of the sink in the log.
        say: takes a message and its level of Python's logging.
    """

    def __init__(self, sink: Sink, name: str, say: Say) -> None:
        self.sink = sink
        self.name = name
        self.failed = False
        self._say = say

    def write(self, observations: Sequence[Observation]) -> None:
        self._do(self.sink.write, observations)

    def flush(self) -> None:
        self._do(self.sink.flush)

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Pass on this rank's layers known so far, each as JSON values by name, if the sink takes them."""
        describe = getattr(self.sink, "describe", None)
        if callable(describe):
            self._do(describe, layers)

    def close(self) -> None:
        self._do(self.sink.close)

    def _do(self, method: Callable[..., None], *args: object) -> None:
        if self.failed:
            return
        try:
            method(*args)
        except Exception as error:  # whatever it is, also in the user's own logger: the run goes on
            self.failed = True
            self._say(f"{self.name} is off from here on: it raised {type(error).__name__}: {error}. Training goes on.", logging.WARNING)
