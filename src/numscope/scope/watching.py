"""``numscope.watch``."""

from __future__ import annotations

import logging
import os
from typing import Any

from torch import nn
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.probe.hook import can_be_hooked
from numscope.probe.naming import class_name, peel
from numscope.records.errors import UsageError
from numscope.replay import fork
from numscope.scope.open_scopes import live
from numscope.scope.scope import Scope

log = logging.getLogger("numscope")

replaces = False  # a watch takes the place of an earlier one of the same model: a notebook's cells run again


def watch(model: nn.Module, *, optimizer: Optimizer | None = None, **options: Any) -> Scope:
    """Watch a model until ``close``, or until the process ends: find the first bad number of each step, its operation and its line; collect
    statistics by ``config``.

    Args:
        model: any module; wrappers (DDP, DataParallel, FSDP2, torch.compile) are seen through.
        optimizer: only where its steps can't be found through torch's hooks.
        options: those of ``WatchOptions``.

    Returns: a Scope, also a context manager.

    Raises: UsageError for a wrong option or configuration; later, from the training step itself, NonFiniteError.

    *Cost:* of detection one pass over each tensor at its module's boundary; of statistics one over each selected tensor, on scheduled
    steps; see benchmarks/.
    """
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
    scope = Scope(model, WatchOptions.of(**options), optimizer=optimizer)
    scope.ends_by_itself = True
    return scope


def _leave_parent() -> None:
    """In a forked child: the watches are the parent's; what the child runs of the model runs bare."""
    for scope in () if fork.is_forking else live():
        scope.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)
