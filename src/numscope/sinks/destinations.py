"""Destinations by name, as ``--to`` and ``loggers`` take them: ``tensorboard:DIR``, ``wandb:PROJECT``, ``mlflow:EXPERIMENT``."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import why_unwritable
from numscope.records.words import nearest

KINDS = ("mlflow", "tensorboard", "wandb")  # also the names of the packages and of numscope's extras
FORMS = ("tensorboard[:DIR]", "wandb[:PROJECT]", "mlflow[:EXPERIMENT or URI]")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where statistics, findings and alerts are sent."""

    kind: str  # one of ``KINDS``
    # what follows the colon: a folder, a project, an experiment or a tracking server's address; "" for the script's own run
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}" if self.place else self.kind

    def below(self, name: str) -> Destination:
        """The same for another process or rank, which needs files of its own."""
        return Destination(self.kind, os.path.join(self.place, name)) if self.kind == "tensorboard" and self.place else self


def destination(text: str, where: str = "loggers") -> Destination:
    """The destination that a text names. Nothing is imported. ``where``: what messages call the argument.

    Raises: UsageError for an unknown kind, a missing package, or a folder that is none.
    """
    kind, colon, place = text.partition(":")
    if kind not in KINDS:
        raise UsageError(f"{where}: got {text!r}, expected one of {', '.join(FORMS)}.{nearest(kind, KINDS)}")
    if colon and not place:
        raise UsageError(f"{where}: got {text!r}, expected a name after the colon. Leave the colon out to use the script's own run.")
    if not is_installed(kind):
        raise UsageError(f"{where}: got {text!r}, but {kind} is not installed. Install it: pip install 'numscope[{kind}]'.")
    if kind == "tensorboard" and place:
        if "://" in place:
            raise UsageError(f"{where}: got {text!r}, expected a local folder. To write elsewhere, pass loggers=SummaryWriter(…).")
        place = os.path.abspath(place)  # a script may change its folder
        if why := why_unwritable(place, folder=True):
            raise UsageError(f"{where}: got {text!r}, expected {why}")
    return Destination(kind, place)


def scripts_run(kind: str) -> Any:
    """The run that the script has begun, of W&B or MLflow; None without one. A script that has one has imported its library."""
    library = sys.modules.get(kind)
    return getattr(library, "run", None) if kind == "wandb" else getattr(library, "active_run", lambda: None)()


def is_installed(package: str) -> bool:
    """Whether a package is there. It is not imported."""
    if package in sys.modules:
        return sys.modules[package] is not None
    try:
        spec = importlib.util.find_spec(package)
    except ours(ValueError):
        return False
    return spec is not None and spec.origin is not None  # a folder that a library writes its runs to has no origin
