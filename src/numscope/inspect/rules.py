"""Rules over a step's observations: the user's, with what came before at the same site where they ask for that, and the one over casts."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

from numscope.alerts.rules.fp8 import NAME as FP8
from numscope.alerts.rules.fp8 import OutOfRange
from numscope.alerts.rules.loss import ROBUST
from numscope.config.alerting import AlertPlan
from numscope.plugins.parts import CustomRule
from numscope.records.alert import Alert
from numscope.records.observation import Observation

STEPS = 100  # scheduled ones that a history has


class History:
    """What one site's statistics were in its last scheduled steps, the present one not among them.

    The median and the deviations are over finite numbers: a nan never blinds them.

    *Cost:* 8 bytes a statistic and step; a median of 100 numbers takes 10 µs.
    """

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}

    def values(self, column: str) -> list[float]:
        """The numbers of a statistic by its requested name, oldest first, at most ``STEPS``; undefined ones left out."""
        return list(self._columns.get(column, ()))[-STEPS:]

    def median(self, column: str) -> float | None:
        """None where there is no finite number yet."""
        numbers = self._finite(column)
        return statistics.median(numbers) if numbers else None

    def mad(self, column: str) -> float | None:
        """The median distance from the median, scaled so that it is the standard deviation of normal numbers."""
        numbers = self._finite(column)
        if not numbers:
            return None
        middle = statistics.median(numbers)
        return ROBUST * statistics.median(abs(number - middle) for number in numbers)

    def add(self, observation: Observation) -> None:
        """The present step is past."""
        for name, value in observation.values.items():
            if isinstance(value, int | float):
                column = self._columns.setdefault(name, array("d"))
                column.append(value)
                if len(column) >= 2 * STEPS:
                    del column[:-STEPS]

    def _finite(self, column: str) -> list[float]:
        return [number for number in self.values(column) if math.isfinite(number)]


class Rules:
    """A run's rules over statistics: the user's own, and the one over casts; with what they remember.

    Args:
        rules: by name.
        rank: this process's.

    Attributes:
        plan: settings of the one over casts.
    """

    def __init__(self, rules: Mapping[str, CustomRule], rank: int) -> None:
        self._rules = rules
        self._rank = rank
        self._looks_back = any(rule.looks_back for rule in rules.values())
        self._histories: dict[tuple[str, str], History] = {}
        self._casts = OutOfRange()
        self.plan = AlertPlan()

    def read(self, observations: Sequence[Observation]) -> list[Alert]:
        """What the rules find in a step. Its numbers are history from here on."""
        settings = self.plan.settings(FP8) if self.plan.is_on(FP8) else None
        found = [] if settings is None else [alert for one in observations if one.extras for alert in self._casts.read(one, settings)]
        for observation in observations if self._rules else ():
            site = observation.layer, observation.tensor
            history = self._histories.setdefault(site, History()) if self._looks_back else None
            for name, rule in self._rules.items():
                said = rule(observation, history) if rule.looks_back else rule(observation)
                if isinstance(said, Alert):
                    found.append(replace(said, rule=name, rank=self._rank))
                elif said:
                    found.append(Alert(observation.step, name, *site, None, None, said, rank=self._rank))
            if history is not None:
                history.add(observation)
        return found
