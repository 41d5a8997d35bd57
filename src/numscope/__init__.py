"""Finds the first bad number in a PyTorch training run: which tensor, operation, line and rank, and why.

Importing the package loads nothing but itself: each name below is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numscope.lazy import lazy_names
from numscope.version import __version__

if TYPE_CHECKING:
    from numscope.plugins.registry import feature, logger, rule, statistic
    from numscope.precision.high_precision import high_precision
    from numscope.records.errors import NonFiniteError, UsageError
    from numscope.records.finding import Culprit, Finding
    from numscope.runs.query import load
    from numscope.scope.scope import Scope
    from numscope.scope.watching import watch
    from numscope.summary.check import check
    from numscope.summary.dispatch import summarize
    from numscope.summary.state import Summary

# Name → the module it comes from. The imports above are the same table for type checkers; a test compares the two.
_HOMES = {
    "Culprit": "numscope.records.finding",
    "Finding": "numscope.records.finding",
    "NonFiniteError": "numscope.records.errors",
    "Scope": "numscope.scope.scope",
    "Summary": "numscope.summary.state",
    "UsageError": "numscope.records.errors",
    "check": "numscope.summary.check",
    "feature": "numscope.plugins.registry",
    "high_precision": "numscope.precision.high_precision",
    "load": "numscope.runs.query",
    "logger": "numscope.plugins.registry",
    "rule": "numscope.plugins.registry",
    "statistic": "numscope.plugins.registry",
    "summarize": "numscope.summary.dispatch",
    "watch": "numscope.scope.watching",
}

__all__ = [
    "Culprit",
    "Finding",
    "NonFiniteError",
    "Scope",
    "Summary",
    "UsageError",
    "__version__",
    "check",
    "feature",
    "high_precision",
    "load",
    "logger",
    "rule",
    "statistic",
    "summarize",
    "watch",
]


__getattr__ = lazy_names(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted(__all__)
