"""What a watch sees coming: the engine's rules over each step's rows, and the desk that all alerts go to."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from numscope.alerts.desk import Desk
from numscope.detect.journal import Journal
from numscope.records.alert import Alert
from numscope.records.faults import ours

log = logging.getLogger("numscope")


class Engine(Protocol):
    """Rules over rows."""

    def step(self, number: int, journal: Journal) -> Iterable[Alert]:
        """Alerts of a step, whose rows have been read."""

    def skipped(self, number: int, scale: float | None) -> Iterable[Alert]:
        """GradScaler has left a step out. ``scale``: its present one, where it is known."""


class Outlook:
    """Detection's onlooker. An error in the engine switches the engine off; it is said once, and detection goes on.

    Args:
        desk: takes the alerts.
        engine: None: alerts come from others alone.
    """

    def __init__(self, desk: Desk, engine: Engine | None) -> None:
        self.desk = desk
        self.engine = engine

    def step(self, number: int, journal: Journal) -> None:
        if self.engine is not None:
            self._ask(self.engine.step, number, journal)

    def skipped(self, number: int, scale: float | None) -> None:
        if self.engine is not None:
            self._ask(self.engine.skipped, number, scale)

    def _ask(self, rules: Callable[..., Iterable[Alert]], *args: Any) -> None:
        try:
            found = list(rules(*args))
        except ours() as error:
            self.engine = None
            text = "".join(traceback.format_exception(error))
            log.error("alerts over each step's rows are off: %s: %s\n%s", type(error).__name__, error, text)
        else:
            self.desk.post(found)

    @property
    def has_news(self) -> bool:
        return self.desk.has_news

    def news(self) -> Any:
        return self.desk.news()

    def hear(self, told: Mapping[int, Any], *, stops: bool) -> None:
        self.desk.hear(told, stops=stops)
