"""The phases by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numscope.doctor.child import backend, collectives, compute, pairs
from numscope.doctor.child.desk import Desk, Failed

__all__ = ["PHASES", "Failed"]

PHASES: dict[int, Callable[[Desk, Mapping[str, Any]], None]] = {
    4: backend.start,
    5: pairs.exchange,
    6: collectives.run,
    7: compute.measure,
}
