"""The checks that a watch makes unless they are switched off."""

from __future__ import annotations

from numscope.alerts.checks.protocol import Check

CHECKS: tuple[type[Check], ...] = ()
