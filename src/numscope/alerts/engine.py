"""The rules over each step's rows: which there are, and when they are asked."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from numscope.alerts.board import Board
from numscope.alerts.rows import Rows
from numscope.alerts.rules.gradients import EXPLODE, VANISH, gradients_from_step_to_step, gradients_through_depth
from numscope.alerts.rules.growth import divergence_ahead
from numscope.alerts.rules.loss import loss_spike
from numscope.alerts.rules.overflow import overflow_ahead
from numscope.alerts.rules.scaler import NAME as SCALE_FALLS
from numscope.alerts.rules.scaler import Scales
from numscope.config.alerting import AlertPlan
from numscope.detect.journal import Journal
from numscope.probe import optimizer as optimizer_probe
from numscope.records.alert import Alert
from numscope.records.faults import ours

log = logging.getLogger("numscope")

Rule = Callable[[Board, dict[str, Any]], Iterator[Alert]]

EACH_STEP: Mapping[str, Rule] = {"loss spike": loss_spike}
EACH_TICK: Mapping[str, Rule] = {
    "overflow ahead": overflow_ahead,
    "divergence ahead": divergence_ahead,
    VANISH: gradients_through_depth,
    EXPLODE: gradients_from_step_to_step,
}


class Engine:
    """Rules over one model's steps; detection's onlooker. An error of theirs ends them; it is said once, and detection goes on.

    Args:
        plan: which rules are on, and their settings.
        post: takes the alerts.

    *Cost:* on the host, about 0.3 µs a site and step and 0.1 ms; nothing on a device.
    """

    def __init__(self, plan: AlertPlan, post: Callable[[Iterable[Alert]], None]) -> None:
        self.board = Board()
        self._post: Callable[[Iterable[Alert]], None] | None = post
        self._rows = Rows(self.board)
        self._scales = Scales()
        self._plan = plan
        self._each_step, self._each_tick = (
            [(rule, plan.settings(name)) for name, rule in rules.items() if plan.is_on(name)] for rules in (EACH_STEP, EACH_TICK)
        )

    def step(self, number: int, journal: Journal) -> None:
        self._ask(self.of_step, number, journal)

    def skipped(self, number: int, scale: float | None) -> None:
        self._ask(self.of_skip, number, scale)

    def _ask(self, rules: Callable[..., Iterable[Alert]], *args: Any) -> None:
        if self._post is None:
            return
        try:
            found = [*rules(*args)]
        except ours() as error:
            self._post = None
            text = "".join(traceback.format_exception(error))
            log.error("alerts over each step's rows are off: %s: %s\n%s", type(error).__name__, error, text)
        else:
            self._post(found)

    def of_step(self, number: int, journal: Journal) -> Iterable[Alert]:
        """Alerts of a step, whose rows have been read."""
        with np.errstate(all="ignore"):  # a script may have NumPy raise
            self.board.is_scaled = self.board.is_scaled or optimizer_probe.in_scaler()
            self._rows.add(number, journal)
            self._scales.stepped()
            rules = self._each_step + (self._each_tick if self.board.ticks else [])
            return [alert for rule, settings in rules for alert in rule(self.board, settings)]

    def of_skip(self, number: int, scale: float | None) -> Iterable[Alert]:
        """Alerts of a step that GradScaler has left out."""
        return self._scales.skipped(number, scale, self._plan.settings(SCALE_FALLS)) if self._plan.is_on(SCALE_FALLS) else ()
