"""``--quick``: of each file the quickest tests, by what the last runs here have measured, about a minute in all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

BUDGET_S = 60.0  # of the tests' own time, which two cores share; to collect them takes half a minute besides
UNKNOWN_S = 0.2  # of a test that has not run here yet
SLOW_S = 2.0  # what takes longer is left out
_KEY = "numscope/seconds"


class Quick:
    """Measures tests, and chooses among them where ``--quick`` is given."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        if self._seconds and cache is not None and not hasattr(self._config, "workerinput"):
            cache.set(_KEY, cache.get(_KEY, {}) | self._seconds)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._config.getoption("--quick"):
            cache = getattr(self._config, "cache", None)
            known = {} if cache is None else cache.get(_KEY, {})
            chosen = quickest([(item.nodeid, item.path, known.get(item.nodeid, UNKNOWN_S)) for item in items])
            items[:] = [item for item in items if item.nodeid in chosen]


def quickest(tests: list[tuple[str, Path, float]], budget: float = BUDGET_S) -> set[str]:
    """Of each file its quickest test, then of each the next one, until the time is used.

    Args:
        tests: name, file and seconds of each.
    """
    turns: Counter[Path] = Counter()
    order = []
    for name, path, seconds in sorted(tests, key=lambda test: test[2]):
        turns[path] += 1
        order.append((turns[path], seconds, name))
    chosen: set[str] = set()
    for _, seconds, name in sorted(order):
        if seconds <= min(budget, SLOW_S):
            budget -= seconds
            chosen.add(name)
    return chosen
