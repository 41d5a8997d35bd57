"""Which row of the statistics a finding or an alert is about, and what it and its culprit are called there."""

from __future__ import annotations

from collections.abc import Mapping

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.site import Phase, Site, tensor_of

LOSS = "loss"


def layer_of(site: Site, model: str) -> str:
    """The name in statistics of a site's layer: the model itself stands there under its class."""
    if site.phase is Phase.LOSS and not site.cls:
        return LOSS
    return site.module or site.cls or model


def row_of_alert(alert: Alert, model: str, rows: Mapping[tuple[str, str], int]) -> int:
    """The row of an alert's tensor, or of another tensor of its layer; -1 if there is none."""
    layer = alert.layer or (LOSS if alert.tensor == LOSS else model)
    return rows.get((layer, alert.tensor), next((row for (name, _), row in rows.items() if name == layer), -1))


def row_of(finding: Finding, rows: Mapping[tuple[str, str], int]) -> int:
    """The row of a finding's site, or of another tensor of its layer; -1 if there is none."""
    layer = layer_of(finding.site, finding.model)
    exact = rows.get((layer, tensor_of(finding.site.phase, finding.site.slot)))
    if exact is not None:
        return exact
    return next((row for (name, _), row in rows.items() if name == layer), -1)
