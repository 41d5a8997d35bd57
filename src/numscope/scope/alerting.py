"""Takes the alerts and findings of one watch from what finds them to the terminal, the files and the sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from numscope.alerts.desk import MOST_KEPT, Desk
from numscope.alerts.engine import Engine
from numscope.config.alert_plan import AlertPlan
from numscope.config.options import WatchOptions
from numscope.distributed import agree
from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.words import count, ranks_of
from numscope.report.delivery import Delivery, plain_report
from numscope.report.stderr import say
from numscope.sinks.opening import SharedSinks, Sinks

if TYPE_CHECKING:
    from numscope.detect.detection import Detection
    from numscope.inspect.recorder import Recorder

_WITHOUT = "alerts: detection is off, so only rules over statistics speak: yours, and 'fp8 out of range'. The others need detection."


class Alerting:
    """Makes the desk, puts the engine beside the judge, and is the desk's outlet.

    Args:
        options: with what ``watch`` was told of alerts; it counts before what a configuration says.
        delivery: has the terminal and the run's files.
        detection: None: without it only users' own rules speak.
        recorder: has the configuration, users' own rules and the sinks; None: there are none.

    Attributes:
        post: takes alerts of users' own rules; None where alerts are off.
    """

    def __init__(self, options: WatchOptions, delivery: Delivery, detection: Detection | None, recorder: Recorder | None) -> None:
        self.closed = False  # the watch is ending: nothing is raised any more
        self._others: list[str] = []
        self._num_ranks = 1  # that were known as an alert came: its group may be gone as it is told
        self._delivery = delivery
        self._taken = SharedSinks.take(options.loggers, options.log_dir, agree.rank()) if recorder is None else None
        self._sinks: Sinks = recorder or self._taken  # type: ignore[assignment]
        self._ends_run = options.raises
        delivery.outlet = self._found
        self.post: Callable[[Iterable[Alert]], None] | None = None
        self.plan = options.alert_plan(() if recorder is None else recorder.plugins.rules)
        if recorder is not None:
            self.plan = self.plan.over(recorder.plan.alerts)
            recorder.rules.plan = self.plan if detection is not None or self.plan.mode or self.plan.rules else AlertPlan("off")
        if detection is not None:
            detection.judge.go_by(self.plan)
        self.desk = Desk(self, self.plan, agree.rank())
        if self.plan.mode == "off":
            return
        self.post = self._post_alone if detection is None else self.desk.post
        if detection is not None:
            judge, optimizers = detection.judge, detection.evidence.steps.optimizers
            judge.onlooker = Engine(self.plan, self.desk.post, optimizers, judge.skips, judge.contained)
            judge.company.messenger = self.desk
        elif recorder is not None and (self.plan.mode or self.plan.rules):
            recorder.say_once(_WITHOUT, _WITHOUT, logging.WARNING)

    def close(self, *, stops: bool) -> None:
        """Tell what waits for other ranks. Raises: AlertError, where an alert is to end the run, and ``stops`` lets it."""
        self.desk.flush(self._delivery.model)
        if self._taken is not None:
            self._taken.flush()
            self._taken.settle()
        if stops:
            self.desk.stop()

    def _post_alone(self, found: Iterable[Alert]) -> None:
        """Without a judge nobody asks the other ranks. Raises: AlertError."""
        self.desk.post(found)
        self.desk.flush(self._delivery.model)
        if not self.closed:
            self.desk.stop()

    def release(self) -> None:
        """The watch has ended: let go of the sinks. Safe to call twice."""
        self.desk.close()
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.close()

    def end(self) -> None:
        """The process is being ended: what was sent has to arrive."""
        if self._taken is not None:
            self._taken.end()

    @property
    def words(self) -> list[str]:
        """Step, rule and layer of each alert that was kept or told here."""
        return [_words(alert) for alert in self.desk.alerts] + self._others

    # ---- the desk's outlet

    def keep(self, alert: Alert) -> None:
        self._num_ranks = max(self._num_ranks, agree.num_ranks())
        self._delivery.alert(alert)
        self._sinks.alert(alert)

    def tell(self, alert: Alert, ranks: Sequence[int], *, is_own: bool) -> None:
        who = ranks_of(ranks, max(self._num_ranks, agree.num_ranks())) if ranks else ""
        self._delivery.tell(alert, who)
        if is_own:
            self._sinks.told(alert)
        else:
            if len(self._others) < MOST_KEPT:
                self._others.append(_words(alert))
            self._sinks.alert(replace(alert, text=f"{alert.text} (on {who})", evidence={"ranks": list(ranks)}))

    def overflow(self, most: int) -> None:
        say(f"numscope: {count(most, 'alert')}: further ones are counted, and neither told nor kept")

    def _found(self, finding: Finding) -> None:
        if self._sinks.listens():
            self._sinks.finding(finding, plain_report(finding))
        if self._ends_run:
            self._sinks.settle()


def _words(alert: Alert) -> str:
    return f"{alert.step} {alert.rule} {alert.layer}"
