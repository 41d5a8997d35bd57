"""What a watch may be told."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from numscope.config.alerting import AlertPlan, Mode, read_alerts
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.words import nearest

Level = Literal["modules", "sentinel"]
OnNonfinite = Literal["raise", "warn", "note", "off"]

LEVELS: tuple[Level, ...] = get_args(Level)
ON_NONFINITE: tuple[OnNonfinite, ...] = get_args(OnNonfinite)
_SAME: dict[str, OnNonfinite | None] = {"note": "warn", "off": None}  # of on_nonfinite


@dataclass(frozen=True)
class WatchOptions:
    """Options of ``numscope.watch``, which explains them, and of ``numscope run``; checked when made.

    Raises: UsageError.
    """

    level: Level = "modules"
    on_nonfinite: OnNonfinite | None = "raise"
    alerts: Mode | Literal["warn"] | Mapping[str, Any] | None = None
    gradients: bool = True
    replay: bool = True
    frames: int = 21
    trace: tuple[int, ...] = ()
    abort_after: int | None = None
    json: str | None = None
    sarif: str | None = None
    log_dir: str | None = None
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None
    tb_writer: Any = None
    loggers: tuple[Any, ...] = ()
    features: tuple[str, ...] = ()
    default_logging: bool = True
    first_step: int = 0
    debugger: str | None = None

    def __post_init__(self) -> None:
        check_one_of("level", self.level, LEVELS, repr)
        if self.on_nonfinite is not None:
            check_one_of("on_nonfinite", self.on_nonfinite, ON_NONFINITE, repr)
            object.__setattr__(self, "on_nonfinite", _SAME.get(self.on_nonfinite, self.on_nonfinite))
        check_whole("frames", self.frames, 1)
        check_whole("first_step", self.first_step, 0)
        folder: object = self.log_dir
        if folder is not None:
            if not isinstance(folder, str | os.PathLike):
                raise UsageError(f"log_dir: got {folder!r}, expected a folder's path.")
            object.__setattr__(self, "log_dir", os.fspath(folder))
        if self.abort_after is not None:
            check_whole("abort_after", self.abort_after, 0)
        for name in ("loggers", "features"):
            given: object = getattr(self, name)
            alone = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
            object.__setattr__(self, name, (given,) if alone else tuple(given))  # type: ignore[arg-type]
        if self.config is None:
            if self.features:
                raise UsageError("features: given without config, expected statistics to write. Add config=, or leave features out.")
        trace: object = self.trace
        if isinstance(trace, str | bytes) or not isinstance(trace, Iterable):
            raise UsageError(f"trace: got {trace!r}, expected batch numbers from 0, as in trace=(149, 150).")
        object.__setattr__(self, "trace", tuple(trace))
        for number in self.trace:
            check_whole("trace", number, 0)
        plan = self.alert_plan(None if self.config is not None else ())
        if self.alerts is not None and plan.mode != "off" and not self.detecting and self.config is None:
            raise UsageError(f"alerts: got {self.alerts!r} without detection, expected it on. Leave alerts out, or on_nonfinite and trace.")

    @property
    def detecting(self) -> bool:
        """Whether detection is on."""
        return self.on_nonfinite is not None and not self.trace

    def alert_plan(self, customs: Collection[str] | None = ()) -> AlertPlan:
        """What is said of alerts here.

        Args:
            customs: names of users' own rules; None: they are not known yet.

        Raises: UsageError that lists everything wrong with it.
        """
        wrong: list[str] = []
        plan = AlertPlan()
        if self.alerts is not None:
            plan = read_alerts(self.alerts, lambda place, text: wrong.append(": ".join(filter(None, ("alerts", place, text)))), customs)
        if wrong:
            raise UsageError("\n".join(wrong))
        return plan

    @classmethod
    def of(cls, **given: Any) -> WatchOptions:
        """From keyword arguments; an unknown one is refused with the nearest known name."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f"watch: got the argument {name!r}, expected one of {', '.join(known)}.{nearest(name, known)}")
        return cls(**given)
