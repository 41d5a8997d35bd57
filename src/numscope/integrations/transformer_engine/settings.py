"""What a feature's part of a configuration asks for: the statistics or the alarm, and the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numscope.config.options import ON_NONFINITE, OnNonfinite
from numscope.config.plan import Collect, Schedule
from numscope.config.planning import plan_of
from numscope.plugins.guarded import Plugins
from numscope.records.errors import UsageError
from numscope.records.words import nearest

_ALARM = {"stats": ["num_nan", "num_inf"]}


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """One feature's settings for one tensor."""

    collect: Collect  # statistics and schedule
    plugins: Plugins  # whose statistics are among them
    on_nonfinite: OnNonfinite | None = None  # of the alarm; None of plain statistics

    @property
    def schedule(self) -> Schedule:
        return self.collect.schedule


def settings_of(feature: str, tensor: str, config: Mapping[str, Any], *, alarm: bool) -> FeatureSettings:
    """Settings checked.

    Args:
        feature: its name in the configuration, for messages.
        tensor: which one of a layer's.
        config: what the configuration says below the feature's name, for this tensor.
        alarm: whether it is the one for non-finite values; else for statistics.

    Raises: UsageError that lists everything wrong.
    """
    ours = ("enabled", "tensor", "tensors", "tensors_struct", "on_nonfinite")
    settings = {key: value for key, value in config.items() if key not in ours}
    on_nonfinite = config.get("on_nonfinite", "warn") if alarm else None
    if alarm and on_nonfinite not in ON_NONFINITE:
        raise UsageError(f"{feature}.on_nonfinite: got {on_nonfinite!r}, expected 'warn' or 'raise'.{nearest(on_nonfinite, ON_NONFINITE)}")
    if not alarm and "on_nonfinite" in config:
        raise UsageError(f"{feature}.on_nonfinite: unknown here. Use NumscopeNonFinite.")
    section = {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "statistics": {"enabled": True, **settings}}
    section["statistics"] |= {"tensors": [tensor], **(_ALARM if alarm else {})}  # type: ignore[operator]
    try:
        plan, plugins = plan_of({feature: section})
    except UsageError as error:
        raise UsageError(str(error).replace(f"config: {feature}.statistics", feature)) from None
    (collect,) = plan.collects
    return FeatureSettings(collect, plugins, on_nonfinite)
