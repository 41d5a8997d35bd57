"""Where alerts go: one line a rule and layer, until it has calmed down."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from numscope.records.alert import Alert

CALM_STEPS = 50  # without a rule's alert at a layer, after which the next one is news


class Desk:
    """Takes what rules and checks find in a step, and passes on what is news.

    Args:
        deliver: is called with each alert that is news.

    Attributes:
        alerts: the news so far, in order.
    """

    def __init__(self, deliver: Callable[[Alert], None]) -> None:
        self.alerts: list[Alert] = []
        self._deliver = deliver
        self._last: dict[tuple[str, str], int] = {}  # the step at which a rule last spoke of a layer

    def post(self, found: Iterable[Alert]) -> None:
        """Rules post at each step at which their condition holds."""
        for alert in found:
            key = alert.rule, alert.layer
            last = self._last.get(key)
            self._last[key] = alert.step
            if last is None or alert.step - last > CALM_STEPS:
                self.alerts.append(alert)
                self._deliver(alert)
