"""``numscope.watch``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from numscope.config.alert_plan import Mode
from numscope.config.options import Level, OnNonfinite, WatchOptions
from numscope.probe.hook import can_be_hooked
from numscope.probe.naming import class_name, peel
from numscope.records.errors import UsageError
from numscope.replay import fork
from numscope.scope.model_watch import ModelWatch
from numscope.scope.open_scopes import live
from numscope.scope.scope import Scope

log = logging.getLogger("numscope")

replaces = False  # a watch takes the place of an earlier one of the same model: a notebook's cells run again


def watch(
    model: nn.Module,
    *,
    optimizer: Optimizer | None = None,
    level: Level = "modules",
    on_nonfinite: OnNonfinite | None = "raise",
    alerts: Mode | Literal["warn"] | Mapping[str, Any] | None = None,
    gradients: bool = True,
    replay: bool = True,
    check: str | None = None,
    frames: int | None = None,
    trace: Iterable[int] = (),
    abort_after: int | None = None,
    json: str | os.PathLike[str] | None = None,
    sarif: str | os.PathLike[str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    loggers: str | object | Iterable[str | object] = (),
    features: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    default_logging: bool = True,
    first_step: int = 0,
    debugger: str | None = None,
) -> Scope:
    """Watch a model until ``close``, or until the process ends: find the first bad number of each step, its operation and its line; collect
    statistics by ``config``.

    >>> scope = numscope.watch(model)  # before training; the loop stays as it is

    Args:
        model: any module; wrappers (DDP, DataParallel, FSDP2, torch.compile) are seen through.
        optimizer: only where its steps can't be found through torch's hooks.
        level: ``modules``: every module's weights, inputs, outputs and gradients; ``sentinel``: the model's output, gradients and weights
            as a whole.
        on_nonfinite: ``raise`` NonFiniteError before the optimizer touches the weights, ``warn`` (``note``) and go on, or ``skip`` steps
            whose gradients are not finite, ten in a row at most; ``heal`` also keeps the module in float32 that this cured; ``off`` or
            None: no detection.
        alerts: what is about to go wrong and what goes wrong in silence: ``note`` it, ``raise`` AlertError, or ``off``; or settings by
            rule, such as ``{"overflow ahead": False, "scale falls": {"finding": 2}, "mode": "raise"}``. None: as ``config`` says, else
            noted. Alerts need detection.
        gradients: also those of outputs and parameters; without them a finding is the later, on the loss or a weight.
        replay: find the operation and its line by doing a bad call again; without it a finding names a module and a tensor, unless the
            fault lies outside the model.
        check: do some steps' calls again, and compare, at the second step and each 1,000th, else as ``"again:every=100"`` or
            ``"again:at=1,500"`` say. Several with a comma: ``again`` (the same bits?), ``rank`` (on all ranks?), ``gradients`` (of each
            ``autograd.Function``, by differences of its forward), ``float64`` (each operation's result), ``eager`` (compiled code
            against eager), ``precision`` (what low precision does to the gradient). What differs is an alert. With ``capsule`` a
            finding leaves its operation and operands in a folder. *Cost:* at a checked step three to twelve times the step.
        frames: print so many last module calls above a report, as DebugUnderflowOverflow does; a finding has these, or 21.
        trace: batches (outermost calls, from 0) whose frames are printed; detection is off then.
        abort_after: stop after this batch.
        json: file that findings are written to.
        sarif: file for the same as SARIF, which code hosts show at their lines.
        log_dir: folder for reports, findings, frames and statistics, a file a rank; an address such as ``s3://…`` too.
        config: statistics to collect: a YAML file's path, or the same as a dict; None: none.
        loggers: where statistics, findings and alerts go: ``"tensorboard:DIR"``, ``"wandb:PROJECT"``, ``"mlflow:EXPERIMENT"`` (without
            the colon: the script's own run), TensorBoard's ``SummaryWriter``, or objects with ``log_scalar(name, value, iteration)``.
        features: files and folders with statistics, features, loggers and rules of the user's own.
        default_logging: whether statistics go to the text log too.
        first_step: number of the first step, for a run that goes on from a checkpoint.
        debugger: at a finding, open a prompt in the frame that ran the operation at fault: "" for Python's pdb, ``MODULE:CLASS`` for
            another one; None: don't.

    Returns: a Scope, also a context manager.

    Raises: UsageError for a wrong option or configuration; later, from the training step itself, NonFiniteError or AlertError.

    *Cost:* of detection one pass over each tensor at its module's boundary; of statistics one over each selected tensor, on scheduled
    steps; see benchmarks/.
    """
    given = {name: value for name, value in [*locals().items()] if name not in ("model", "optimizer")}
    if not isinstance(model, nn.Module):
        raise UsageError(f"watch: got {type(model).__name__}, expected an nn.Module.")
    if not can_be_hooked(peel(model)):
        raise UsageError(
            f"watch: got a {type(model).__name__}, expected a model that runs as Python. Watch it before torch.jit scripts it."
        )
    for scope in live() if replaces else ():
        if scope.model is peel(model):
            scope.close()
    if any(scope.model is peel(model) for scope in live()):
        log.warning("watch: this %s is watched already, and both watches stay. Close the first one: scope.close().", class_name(model))
    options, recorder = WatchOptions.of(**given), None
    if config is not None:
        from numscope.inspect.recorder import Recorder  # loads what reads configurations, which a watch without one does not need

        recorder = Recorder.of(options)
    try:
        begun = ModelWatch(model, options, optimizer=optimizer, recorder=recorder, owns_recorder=True)
    except BaseException:
        if recorder is not None:
            recorder.close()
        raise
    begun.ends_by_itself = True
    return Scope(begun)


def _leave_parent() -> None:
    """In a forked child: the watches are the parent's; what the child runs of the model runs bare."""
    for scope in () if fork.is_forking else live():
        scope.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)
