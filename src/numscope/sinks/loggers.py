"""Interfaces for a run's numbers: sinks, and loggers, which are anything with ``log_scalar``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.observation import Observation


@runtime_checkable
class Sink(Protocol):
    """Takes observations out of the run: into files, a dashboard, a user's program.

    A sink that has ``alert(alert)`` gets each ``Alert`` of its rank too; one that has ``finding(finding, report)``, each ``Finding``, with
    its report as the terminal has it, on the one rank that tells it; one that has ``describe(layers)``, the layers. ``settle()``, where
    there is one, is called when a finding is about to end the run: what was sent has to arrive.
    """

    def write(self, observations: Sequence[Observation]) -> None:
        """Take the observations of one scheduled step; called once per scheduled step, on the training thread.

        Observations with ``mine`` False are written by another rank; sinks that all ranks share (files) skip them.
        """

    def flush(self) -> None:
        """Called after each scheduled step's ``write``: pass on what is due; nothing unless a sink overrides it. A sink may hold
        observations back until ``close``."""
        return None

    def close(self) -> None:
        """Pass on everything and release resources; called once, as the last call."""


@runtime_checkable
class Logger(Protocol):
    """Any object with ``log_scalar``."""

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None: ...


class BaseLogger(ABC):
    """A base class for loggers: only ``log_scalar`` is required.

    A logger may also have ``log_alert(alert)``, ``log_finding(finding, report)`` with the report as the terminal has it, ``flush()``, which
    is called after each scheduled step, and ``close()``, called once at the end.

    Example:
        >>> class Printed(BaseLogger):
        ...     def log_scalar(self, name, value, iteration, **kwargs):
        ...         print(f"{iteration}: {name} = {value:.9g}")
    """

    @abstractmethod
    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Take one statistic.

        Args:
            name: ``<layer>_<tensor>_<stat>``.
            iteration: the training step, from 0.
            kwargs: nothing today; accept and ignore them, so that later versions can pass more.
        """


class LoggerSink(Sink):
    """Passes each statistic to a logger, except undefined values and histograms. Calls its ``flush`` and ``close`` if it has them."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def write(self, observations: Sequence[Observation]) -> None:
        log_scalar = self._logger.log_scalar
        for seen in observations:
            name, step = seen.name, seen.step
            for label, value in seen.values.items():
                if isinstance(value, (int, float)):  # a union takes three times as long
                    log_scalar(f"{name}_{label}", value, step)

    def alert(self, alert: Alert) -> None:
        call_if_there(self._logger, "log_alert", alert)

    def finding(self, finding: Finding, report: str) -> None:
        call_if_there(self._logger, "log_finding", finding, report)

    def flush(self) -> None:
        call_if_there(self._logger, "flush")

    def close(self) -> None:
        call_if_there(self._logger, "close")


def call_if_there(whose: object, name: str, *args: object) -> None:
    """Call a method that an object may lack."""
    method = getattr(whose, name, None)
    if callable(method):
        method(*args)
