"""What a watch may be told: by arguments, or by the environment variables that switch the debug tool on from outside."""

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
OnNonfinite = Literal["raise", "warn"]

LEVELS: tuple[Level, ...] = get_args(Level)
ON_NONFINITE: tuple[OnNonfinite, ...] = get_args(OnNonfinite)


@dataclass(frozen=True)
class WatchOptions:
    """Options of ``numscope.watch`` and ``numscope run``, checked when made.

    Args:
        level: ``modules``: every module's weights, inputs, outputs and gradients; ``sentinel``: the model's output, gradients and weights
            as a whole.
        on_nonfinite: ``raise`` NonFiniteError before the optimizer touches the weights, or ``warn`` and go on; None: detection off.
        alerts: what is about to go wrong and what goes wrong in silence: ``note`` it, ``raise`` AlertError, or ``off``; or settings by
            rule, such as ``{"overflow ahead": False, "mode": "raise"}``. None: as ``config`` says, else noted. Alerts need detection.
        gradients: also those of outputs and parameters; without them a finding is the later, on the loss or a weight.
        replay: find the operation and its line by doing a bad call again; without it a finding names a module and a tensor, unless the
            fault lies outside the model.
        frames: how many frames a report shows.
        trace: batches (outermost calls, from 0) whose frames are printed; detection is off then.
        abort_after: stop after this batch.
        max_scaler_skips: so many steps in a row that GradScaler leaves out are a finding. Before the first one that it does not leave out,
            the skips that lead from its first scale below 1 (17 from 65536) do not count.
        dead_steps: so many steps in a row with all gradients exactly zero are a finding.
        json: file that findings are written to.
        sarif: file for the same as SARIF, which code hosts show at their lines.
        log_dir: folder for reports, findings, frames and statistics, a file a rank.
        config: statistics to collect: a YAML file's path, or the same as a dict; None: none.
        tb_writer: TensorBoard's writer that statistics, findings and alerts go to, on the ranks that have one.
        loggers: where statistics, findings and alerts go: ``"tensorboard:DIR"``, ``"wandb:PROJECT"``, ``"mlflow:EXPERIMENT"`` (without
            the colon: the script's own run), or objects with ``log_scalar(name, value, iteration)``.
        features: files and folders with statistics, features, loggers and rules of the user's own.
        default_logging: whether statistics go to the text log too.
        first_step: number of the first step, for a run that goes on from a checkpoint.
        debugger: at a finding, open a prompt in the frame that ran the operation at fault: "" for Python's pdb, ``MODULE:CLASS`` for
            another one; None: don't.

    Raises: UsageError.
    """

    level: Level = "modules"
    on_nonfinite: OnNonfinite | None = "raise"
    alerts: Mode | Mapping[str, Any] | None = None
    gradients: bool = True
    replay: bool = True
    frames: int = 21
    trace: tuple[int, ...] = ()
    abort_after: int | None = None
    max_scaler_skips: int = 10
    dead_steps: int = 10
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
        check_whole("frames", self.frames, 1)
        check_whole("max_scaler_skips", self.max_scaler_skips, 1)
        check_whole("dead_steps", self.dead_steps, 1)
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
        if self.config is None:
            if self.features:
                raise UsageError("given without config, expected statistics to write. Add config=, or leave features out.", "features")
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


ENABLED = "NV_DEBUG_TOOL_ENABLED"
CONFIG = "NV_DEBUG_TOOL_CONFIG"
LOG_DIR = "NV_DEBUG_TOOL_LOG_DIR"


def switched_on() -> dict[str, str] | None:
    """The options of a watch that the environment gives; None where the debug tool is off, whatever the other variables say.

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
