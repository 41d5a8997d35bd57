"""The actor that keeps what Ray's workers report. It is a file of its own so that the actor's process loads no torch."""

from __future__ import annotations

from numscope.records.alert import Alert
from numscope.records.finding import Finding


class Reports:
    """An actor to which workers report findings and alerts."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._alerts: list[Alert] = []

    def add(self, findings: list[Finding], alerts: list[Alert]) -> None:
        self._findings += [finding for finding in findings if finding not in self._findings]
        self._alerts += [alert for alert in alerts if alert not in self._alerts]

    def all(self) -> tuple[list[Finding], list[Alert]]:
        return self._findings, self._alerts
