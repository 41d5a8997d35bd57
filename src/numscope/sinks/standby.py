"""A destination that another rank speaks to, until this rank has something to say that the other one can't know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.observation import Observation
from numscope.sinks.loggers import call_if_there
from numscope.sinks.protocol import Sink


class Standby(Sink):
    """Opens a sink for the first finding or alert that this rank alone has to tell; statistics are rank 0's.

    Args:
        make: opens the sink.
    """

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sink: Sink | None = None

    def write(self, observations: Sequence[Observation]) -> None:
        return None

    def finding(self, finding: Finding, report: str) -> None:
        """Pass it on: it comes only to the rank that speaks."""
        call_if_there(self._opened(), "finding", finding, report)

    def told(self, alert: Alert) -> None:
        """Pass on an alert that this rank tells for all that have it."""
        call_if_there(self._opened(), "alert", alert)

    def settle(self) -> None:
        if self._sink is not None:
            call_if_there(self._sink, "settle")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._make()
        return self._sink
