"""What a watch's checks have said."""

from __future__ import annotations

import numscope
from numscope.records.alert import Alert


def told(scope: numscope.Scope, *rules: str) -> list[Alert]:
    """The alerts so far, of some rules or of all."""
    return [alert for alert in scope._desk.alerts if not rules or alert.rule in rules]
