"""The statistics that parts of a plan ask of a site, and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from numscope.config.plan import Collect, StatRequest
from numscope.plugins.loading import Plugins
from numscope.records.observation import Histogram, Value
from numscope.summary.derived import KNOWN, Derived
from numscope.summary.state import Summary
from numscope.summary.statistics import STATISTICS, formula_of

Formula = Callable[[Summary, Mapping[str, float | Histogram]], Value | Histogram]


class Asked:
    """Some parts of a plan that want the same site's numbers.

    Args:
        collects: the parts, in the plan's order.
        plugins: custom statistics.
    """

    def __init__(self, collects: Iterable[Collect], plugins: Plugins) -> None:
        self.collects = tuple(collects)
        numbers: dict[str, str] = {}  # attributes of a summary that C derives, by label
        self._formulas: list[tuple[str, Formula]] = []
        for asked in (asked for collect in self.collects for asked in self._once(collect)):
            custom = plugins.statistics.get(asked.statistic)
            attribute = "" if custom is not None else STATISTICS[asked.statistic].attribute
            if attribute in KNOWN:
                numbers.setdefault(asked.label, attribute)
            else:
                self._formulas.append((asked.label, formula_of(asked) if custom is None else custom.value))
        self._numbers = Derived(numbers)
        self._order = [asked.label for collect in self.collects for asked in collect.stats] if self._formulas else []

    @staticmethod
    def _once(collect: Collect) -> Iterable[StatRequest]:
        """The statistics of a part; the first of a label counts."""
        found: dict[str, StatRequest] = {}
        for asked in collect.stats:
            found.setdefault(asked.label, asked)
        return found.values()

    def of(self, row: list[float], extras: Mapping[str, float | Histogram]) -> tuple[dict[str, Value], dict[str, Value | Histogram]]:
        """A row's fields by name, in order, and the statistics by the names that they are asked by."""
        fields, numbers = self._numbers.of(row)
        if not self._formulas:
            return fields, numbers  # type: ignore[return-value]  # a dict of its own
        found: dict[str, Value | Histogram] = {**dict.fromkeys(self._order), **numbers}
        summary = Summary(*fields.values())  # type: ignore[arg-type]
        for label, formula in self._formulas:
            if found[label] is None:  # of two kinds of casts under one name, a layer has one
                found[label] = formula(summary, extras)
        return fields, found
