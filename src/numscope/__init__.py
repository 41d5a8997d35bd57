"""Finds the first bad number in a PyTorch training run: which tensor, operation, line and rank, and why.

Importing the package loads nothing but itself: each name below is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numscope.lazy import lazy_names

if TYPE_CHECKING:
    from numscope.errors import NonFiniteError, UsageError
    from numscope.local import check
    from numscope.record import Culprit, Finding
    from numscope.registry import feature, logger, rule, statistic
    from numscope.remedy import high_precision
    from numscope.runs.query import load
    from numscope.scope import Scope
    from numscope.summary.dispatch import summarize
    from numscope.summary.state import Summary
    from numscope.watching import watch

__version__ = "0.1.0"

# Name → the module it comes from. The imports above are the same table for type checkers; a test compares the two.
_HOMES = {
    "Culprit": "numscope.record",
    "Finding": "numscope.record",
    "NonFiniteError": "numscope.errors",
    "Scope": "numscope.scope",
    "Summary": "numscope.summary.state",
    "UsageError": "numscope.errors",
    "check": "numscope.local",
    "feature": "numscope.registry",
    "high_precision": "numscope.remedy",
    "load": "numscope.runs.query",
    "logger": "numscope.registry",
    "rule": "numscope.registry",
    "statistic": "numscope.registry",
    "summarize": "numscope.summary.dispatch",
    "watch": "numscope.watching",
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
