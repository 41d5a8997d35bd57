"""Rules over a step's observations: the user's, with what came before at the same site where they ask for that, and the one over casts."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numscope.alerts.rules.loss import ROBUST
from numscope.config.alert_plan import AlertPlan
from numscope.plugins.custom_parts import CustomRule
from numscope.records.alert import Alert
from numscope.records.observation import Observation

STEPS = 100  # scheduled ones that a history has
FP8 = "fp8 out of range"
IN_A_ROW = 2  # scheduled steps of a site
_WIDE = ("fp16", "bf16", "fp32")  # formats that are no fp8
_ENDS = {"num_underflow": "underflow", "num_overflow": "overflow"}


class SiteHistory:
    """One site's statistics of its last scheduled steps, without the present one.

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


class OutOfRange:
    """fp8 out of range: too many elements of an operand become zero, or lie beyond the format's largest number, two steps in a row.

    Read from statistics' columns, so it speaks where a configuration counts casts, those that GEMMs make or those on paper.
    """

    def __init__(self) -> None:
        self._beyond: dict[tuple[str, str, str], int] = {}

    def read(self, observation: Observation, settings: Mapping[str, Any]) -> Iterator[Alert]:
        """Alerts about one site's casts in a step."""
        for column, count in observation.extras.items():
            what = next((kind for end, kind in _ENDS.items() if column.endswith(f"_{end}")), "")
            cast = column.removesuffix(f"_num_{what}")
            if not what or cast.startswith(_WIDE) or not isinstance(count, int | float):
                continue
            whole = observation.extras.get(f"{cast}_numel", observation.fields.get("numel"))
            if not isinstance(whole, int | float) or not whole:
                continue
            share, limit = 100 * count / whole, settings[f"{what}_pct"]
            key = observation.layer, observation.tensor, column
            self._beyond[key] = self._beyond.get(key, 0) + 1 if share > limit else 0
            if self._beyond[key] >= IN_A_ROW:
                yield _alert(observation, cast, what, share, limit)


def _alert(observation: Observation, cast: str, what: str, share: float, limit: float) -> Alert:
    is_operand = cast.startswith("operand")
    where = "the GEMM's cast" if is_operand else f"a cast ({cast})"
    if what == "underflow":
        text = f"{share:.3g}% of the elements become zero in {where} (limit {limit:g}%)."
        advice = "Scale smaller blocks (mxfp8, fp8_block_scaling), use e5m2 for this operand, or keep this layer in high precision."
    else:
        stale = ": its scale is older than its values, as where delayed scaling's history is stale" if is_operand else ""
        text = f"{share:.3g}% of the elements lie beyond the format's largest number in {where}{stale} (limit {limit:g}%)."
        advice = "Use current scaling or a shorter history of amaxes, or keep this layer in high precision."
    evidence = {"cast": cast, "steps_in_a_row": IN_A_ROW}
    return Alert(observation.step, FP8, observation.layer, observation.tensor, share, limit, text, advice, evidence, observation.rank)


class Rules:
    """A run's rules over statistics: the user's own by name, and the one over casts, whose settings are in ``plan``."""

    def __init__(self, rules: Mapping[str, CustomRule], rank: int) -> None:
        self._rules = rules
        self._rank = rank
        self._looks_back = any(rule.looks_back for rule in rules.values())
        self._histories: dict[tuple[str, str], SiteHistory] = {}
        self._casts = OutOfRange()
        self.plan = AlertPlan()

    def read(self, observations: Sequence[Observation]) -> list[Alert]:
        """The rules' alerts of a step. Its numbers are history from here on."""
        settings = self.plan.settings(FP8) if self.plan.is_on(FP8) else None
        found = [] if settings is None else [alert for one in observations if one.extras for alert in self._casts.read(one, settings)]
        for observation in observations if self._rules else ():
            site = observation.layer, observation.tensor
            history = self._histories.setdefault(site, SiteHistory()) if self._looks_back else None
            for name, rule in self._rules.items():
                said = rule(observation, history) if rule.looks_back else rule(observation)
                if isinstance(said, Alert):
                    found.append(replace(said, rule=name, rank=self._rank))
                elif said:
                    found.append(Alert(observation.step, name, *site, None, None, said, rank=self._rank))
            if history is not None:
                history.add(observation)
        return found
