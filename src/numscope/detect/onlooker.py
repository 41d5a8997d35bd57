"""Protocols of those beside the judge: one that sees each step's rows, and one whose news detection carries from rank to rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numscope.detect.journal import Journal


class Onlooker(Protocol):
    """Handles its own errors."""

    def step(self, number: int, journal: Journal) -> None:
        """A step's rows have been read, and its weights are untouched; not called where the judge finds something bad in them."""

    def skipped(self, number: int, scale: float | None) -> None:
        """GradScaler has left a step out; ``scale``: its present one, where it is known."""


class Messenger(Protocol):
    """Its exceptions are meant for the training script."""

    @property
    def has_news(self) -> bool:
        """Whether this rank has something to say to all ranks."""

    def news(self) -> Any:
        """Its news, JSON-ready. Asked of all ranks where one has any."""

    def hear(self, told: Mapping[int, Any], *, stops: bool) -> None:
        """Take each rank's news, this one's among them; the lowest one reports it. ``stops``: it may end the run."""
