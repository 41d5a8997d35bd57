"""Observations to write, and sinks that take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numscope.records.alert import Alert
from numscope.records.observation import FIELDS, Observation
from numscope.sinks.opening import Sinks
from numscope.summary.state import Summary


def fields_of(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in FIELDS}


def observation(
    step: int = 0,
    layer: str = "fc1",
    tensor: str = "activation",
    *,
    cls: str = "Linear",
    dtype: str = "float32",
    order: int = 0,
    rank: int = 0,
    summary: Summary | None = None,
    extras: Mapping[str, Any] | None = None,
    **values: Any,
) -> Observation:
    fields = fields_of(summary if summary is not None else Summary(numel=1, num_zero=1, min=0.0, max=0.0, abs_max=0.0))
    return Observation(step, layer, cls, tensor, dtype, order, rank, 1, 1, fields, extras or {}, values)


def opened(**options: Any) -> Sinks:
    """The sinks of a process, by default of rank 0 and without a folder."""
    return Sinks(**{"log_dir": None, "rank": 0, "run": {}, **options})


ALERT = Alert(7, "loss spike", "h<b>e</b>ad\n", "output", 9.0, 2.0, "It is *high*.", "Look at the batch.")
ALERT_LINE = "step 7: loss spike: h<b>e</b>ad\\n output: It is *high*. Look at the batch."
