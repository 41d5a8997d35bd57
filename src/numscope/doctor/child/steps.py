"""The phases that run in the child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numscope.doctor.child.backend import start
from numscope.doctor.child.collectives import run
from numscope.doctor.child.compute import measure
from numscope.doctor.child.desk import Desk, Failed
from numscope.doctor.child.pairs import exchange
from numscope.doctor.records import Phase

__all__ = ["PHASES", "Failed"]

PHASES: dict[Phase, Callable[[Desk, Mapping[str, Any]], None]] = {
    Phase.BACKEND: start,
    Phase.PAIRS: exchange,
    Phase.COLLECTIVES: run,
    Phase.COMPUTE: measure,
}
