"""Where alerts go: one line a rule and layer, until it has calmed down, and one line for all ranks that have the same."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from numscope.config.alert_plan import AlertPlan
from numscope.distributed.agree import is_first, spread
from numscope.probe.living import Living
from numscope.records.alert import Alert, parse_alert
from numscope.records.errors import AlertError
from numscope.records.finding import plain

CALM_STEPS = 50  # without a rule's alert at a layer, after which the next one is news
MOST_KEPT = 1000  # alerts; of further ones only the number is known
_MANY = 4096  # rules at layers, after which those that have calmed down are forgotten


class Outlet(Protocol):
    """Takes alerts to people and files."""

    def keep(self, alert: Alert) -> None:
        """One of this rank's, as it comes."""

    def tell(self, alert: Alert, ranks: Sequence[int], *, is_own: bool) -> None:
        """Say one, once for all ranks that have it. ``ranks``: they, where this process is one of several; ``is_own``: it was kept here."""

    def overflow(self, most: int) -> None:
        """From now on alerts are only counted; called once."""


class Calm:
    """Knows at which step a rule last spoke of a layer. *Cost:* memory for the rules and layers of the last ``CALM_STEPS`` steps."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, bool], int] = {}
        self._most = _MANY
        self._asked: set[tuple[str, str, bool]] = set()  # by rules that merely ask, which is done once

    def is_news(self, alert: Alert) -> bool:
        """Whether an alert is news; it has been said from here on."""
        key = alert.rule, alert.layer, _is_over(alert)
        if alert.asks:
            if key in self._asked or len(self._asked) >= _MANY:
                return False
            self._asked.add(key)
            return True
        last = self._last.get(key)
        if last is None and len(self._last) >= self._most:
            self._last = {one: step for one, step in self._last.items() if 0 <= alert.step - step <= CALM_STEPS}
            self._most = max(_MANY, 2 * len(self._last))
        self._last[key] = alert.step
        return last is None or not 0 <= alert.step - last <= CALM_STEPS


_said: dict[Hashable, int] = {}  # places that alerts name, each with the number of the desk that spoke of it
_numbers = itertools.count()  # of desks, never twice
_open: Living[object] = Living()  # that remember them


def remember(user: object) -> None:
    """Until ``forget`` the process says an alert once for one place, whichever of its models finds it."""
    if not len(_open):
        _said.clear()
    _open.add(user)


def forget(user: object) -> None:
    _open.discard(user)


def _is_over(alert: Alert) -> bool:
    """Whether it says that what a rule has said is over, which is news of its own."""
    return "over" in alert.evidence


def _place(alert: Alert) -> Hashable | None:
    """The line of the script's, or the loss, that an alert is about; None where it is about one model's own parameters or layers."""
    if "line" in alert.evidence and "parameters" not in alert.evidence:
        return alert.rule, alert.layer, alert.evidence["line"]
    return (alert.rule, alert.step, alert.value) if (alert.layer, alert.tensor) == ("", "loss") else None


class Desk:
    """Takes what rules and checks find in a step, and passes on what is news.

    In a process of its own alerts are told at once; one of several ranks waits for the next place where all of them are. With the plan's
    mode "raise", the next place where a step is judged raises the first alert that does not merely ask.
    """

    def __init__(self, outlet: Outlet, plan: AlertPlan | None = None, rank: int = 0) -> None:
        self.alerts: list[Alert] = []  # the news so far, in order, at most ``MOST_KEPT``
        self.num_left_out = 0  # how many came after those
        self._outlet = outlet
        self._plan = plan or AlertPlan()
        self._rank = rank
        self._own = Calm()
        self._all = Calm()  # of all ranks; known to the first one
        self._waiting: list[Alert] = []  # to be told with the other ranks'
        self._stop: Alert | None = None
        self._number = next(_numbers)
        remember(self)

    def close(self) -> None:
        """No more comes; what was said at other desks stays said."""
        forget(self)

    def post(self, found: Iterable[Alert]) -> None:
        """Rules post at each step at which their condition holds. Raises nothing."""
        for alert in found:
            if self._plan.is_on(alert.rule) and self._own.is_news(alert) and not self._is_anothers(alert):
                self._pass_on(alert if alert.rank == self._rank else replace(alert, rank=self._rank))

    def _is_anothers(self, alert: Alert) -> bool:
        """Whether another model's desk has said it: a loss may be made of several models, and a line may call several."""
        place = _place(alert)
        return place is not None and _said.setdefault(place, self._number) != self._number and (alert.asks or self._plan.mode != "raise")

    def _pass_on(self, alert: Alert) -> None:
        if self._stop is None and self._plan.mode == "raise" and not alert.asks:
            self._stop = alert
        if len(self.alerts) >= MOST_KEPT:
            if not self.num_left_out:
                self._outlet.overflow(MOST_KEPT)
            self.num_left_out += 1
            return
        self.alerts.append(alert)
        self._outlet.keep(alert)
        if spread():
            self._waiting.append(alert)
        else:
            self._outlet.tell(alert, (), is_own=True)

    # ---- with the other ranks

    @property
    def has_news(self) -> bool:
        """Whether something waits for the other ranks, or is to end the run."""
        return bool(self._waiting) or self._stop is not None

    def news(self) -> Any:
        """Waiting alerts, JSON-ready, and whether some of them end the run."""
        told = [plain(replace(alert, evidence={"over": True} if _is_over(alert) else {})) for alert in self._waiting]
        return [told, None if self._stop is None else plain(replace(self._stop, evidence={}))]

    def hear(self, told: Mapping[int, Any], *, stops: bool) -> None:
        """Take each rank's alerts. The first rank reports them, a rule and layer once until no rank has news of it.

        Raises: AlertError on all ranks, where one is to end the run, and ``stops`` lets it: something else ends it otherwise.
        """
        self._waiting.clear()
        groups: dict[tuple[str, str, str, bool], list[Alert]] = {}
        for _, (alerts, _) in sorted(told.items()):
            for alert in map(parse_alert, alerts):
                groups.setdefault((alert.rule, alert.layer, alert.tensor, _is_over(alert)), []).append(alert)
        if self._rank == min(told):
            for same in filter(lambda same: self._all.is_news(same[0]), groups.values()):
                ranks = sorted({alert.rank for alert in same})
                self._outlet.tell(same[0], ranks if spread() else (), is_own=self._rank in ranks)
        stop = next((stop for _, (_, stop) in sorted(told.items()) if stop is not None), None)
        self._stop = None
        if stop is not None and stops:
            raise AlertError(parse_alert(stop))

    def flush(self, model: str = "") -> None:
        """Tell what still waits, without asking the other ranks, which may be elsewhere; of those that have the same, one tells it."""
        waiting, self._waiting = self._waiting, []
        for alert in waiting:
            if is_first(f"alert {model} {alert.step} {alert.rule} {alert.layer} {alert.tensor}"):
                self._outlet.tell(alert, [self._rank], is_own=True)

    def stop(self) -> None:
        """Raise what is to end the run, if anything is. Raises: AlertError."""
        stop, self._stop = self._stop, None
        if stop is not None:
            raise AlertError(stop)
