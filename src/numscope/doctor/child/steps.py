"""The phases by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numscope.doctor.child.backend import start
from numscope.doctor.child.collectives import run
from numscope.doctor.child.compute import measure
from numscope.doctor.child.desk import Desk, Failed
from numscope.doctor.child.pairs import exchange

__all__ = ["PHASES", "Failed"]

PHASES: dict[int, Callable[[Desk, Mapping[str, Any]], None]] = {4: start, 5: exchange, 6: run, 7: measure}
