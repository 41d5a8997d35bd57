"""Options of a watch: arguments, or the environment variables that switch the debug tool on from outside."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from numscope.config.alert_plan import AlertPlan, Mode, read_alerts
from numscope.config.check_plan import CAPSULE, CheckPlan
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.words import nearest

Level = Literal["modules", "sentinel"]
OnNonfinite = Literal["raise", "warn", "note", "skip", "heal", "off"]

LEVELS: tuple[Level, ...] = get_args(Level)
ON_NONFINITE: tuple[OnNonfinite, ...] = get_args(OnNonfinite)
_SAME: dict[str, OnNonfinite | None] = {"note": "warn", "off": None}  # synonyms for on_nonfinite


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
    check: str | None = None
    frames: int | None = None
    trace: tuple[int, ...] = ()
    abort_after: int | None = None
    json: str | None = None
    sarif: str | None = None
    log_dir: str | None = None
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None
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
            if self.leaves_out and not self.gradients:
                raise UsageError(
                    f"got {self.on_nonfinite!r} with gradients off, expected gradients to look at. Leave one of them out.", "on_nonfinite"
                )
        if self.frames is not None:
            check_whole("frames", self.frames, 1)
        check_whole("first_step", self.first_step, 0)
        folder: object = self.log_dir
        if folder is not None:
            if not isinstance(folder, str | os.PathLike):
                raise UsageError(f"got {folder!r}, expected a folder's path.", "log_dir")
            object.__setattr__(self, "log_dir", os.fspath(folder))
        if self.abort_after is not None:
            check_whole("abort_after", self.abort_after, 0)
        for name in ("loggers", "features"):
            given: object = getattr(self, name)
            alone = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
            object.__setattr__(self, name, (given,) if alone else tuple(given))  # type: ignore[arg-type]
        if self.config is None and self.features:
            raise UsageError("given without a configuration, expected statistics to write. Add --config FILE (config=).", "features")
        trace: object = self.trace
        if isinstance(trace, str | bytes) or not isinstance(trace, Iterable):
            raise UsageError(f"got {trace!r}, expected batch numbers from 0, as in trace=(149, 150).", "trace")
        object.__setattr__(self, "trace", tuple(trace))
        for number in self.trace:
            check_whole("trace", number, 0)
        plan = self.alert_plan(None if self.config is not None else ())
        if self.alerts is not None and plan.mode != "off" and not self.detecting and self.config is None:
            raise UsageError(
                f"got {self.alerts!r} without detection, expected it on. Leave alerts out, or on_nonfinite and trace.", "alerts"
            )

        if self.check is not None:
            is_told = plan.mode != "off" or not CheckPlan.of(self.check).does_again
            if not is_told or not self.detecting or self.level != "modules":
                raise UsageError(
                    f"got {self.check!r}, expected detection with level modules, and alerts, which say what comes of it. Leave the options "
                    "out that switch one of them off.", "check",
                )  # fmt: skip

    @property
    def raises(self) -> bool:
        """Whether a finding ends the run; with ``skip`` it is what leaving steps out can't help."""
        return self.on_nonfinite == "raise" or self.leaves_out

    @property
    def leaves_out(self) -> bool:
        """Whether steps are left out whose gradients are not finite."""
        return self.on_nonfinite in ("skip", "heal")

    @property
    def makes_capsules(self) -> bool:
        """Whether a finding's operation is to be written down alone."""
        return self.check is not None and CAPSULE in CheckPlan.of(self.check).kinds

    @property
    def detecting(self) -> bool:
        return self.on_nonfinite is not None and not self.trace

    def alert_plan(self, customs: Collection[str] | None = ()) -> AlertPlan:
        """The options of alerts. ``customs``: names of users' own rules; None: not known yet. Raises: UsageError, with all errors."""
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


ENABLED = "NV_DEBUG_TOOL_ENABLED"
CONFIG = "NV_DEBUG_TOOL_CONFIG"
LOG_DIR = "NV_DEBUG_TOOL_LOG_DIR"


def switched_on() -> dict[str, str] | None:
    """The options of a watch that the environment gives; None if the debug tool is off, whatever the other variables are.

    Returns: ``config``, without which the run collects nothing, and ``log_dir``, each if its variable is set.

    Raises: UsageError, where the switch is neither on nor off, or a path that was given is none.
    """
    switch = os.environ.get(ENABLED, "").strip()
    if switch not in ("", "0", "1"):
        hint = {"true": " Write 1.", "yes": " Write 1.", "on": " Write 1.", "false": " Write 0.", "no": " Write 0.", "off": " Write 0."}
        raise UsageError(f"{ENABLED}: got {switch!r}, expected 1 (on), 0 or nothing (off).{hint.get(switch.lower(), '')}")
    if switch != "1":
        return None
    config, log_dir = os.environ.get(CONFIG) or None, os.environ.get(LOG_DIR) or None
    if config is not None and not os.path.isfile(config):
        found = "a folder" if os.path.isdir(config) else "no such file"
        raise UsageError(f"{CONFIG}: got {config!r}, {found}, expected a YAML file's path. Leave it out for a run that collects nothing.")
    if log_dir is not None and os.path.exists(log_dir) and not os.path.isdir(log_dir):
        raise UsageError(f"{LOG_DIR}: got {log_dir!r}, a file, expected a folder's path.")
    return {name: value for name, value in (("config", config), ("log_dir", log_dir)) if value is not None}


_served = False


def serve(on: bool) -> None:
    """``numscope run`` watches each model of this process, by these variables among others; with False no longer."""
    global _served
    _served = on


def served() -> bool:
    """Whether what these variables ask for is done without the script's doing."""
    return _served


def how_to_set(rule: str, setting: Mapping[str, int] | Literal[False]) -> str:
    """How the user of this process gives a rule of alerts this setting: an option of ``numscope run``, or an argument."""
    if served():
        return f'--alerts "{rule}: {setting or "off"!s}"'.replace("'", "")
    return f"watch(alerts={ ({rule: setting}) })".replace("'", '"')
