"""What a sink is: anything that takes observations out of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from numscope.records.observation import Observation


@runtime_checkable
class Sink(Protocol):
    """Takes observations out of the run: into files, a dashboard, a program of the user's own."""

    def write(self, observations: Sequence[Observation]) -> None:
        """Take one scheduled step's observations; called once a scheduled step, on the thread that trains.

        Those with ``mine`` False are written by another rank: what all ranks write to together (files) leaves them out.
        """

    def flush(self) -> None:
        """Called after each scheduled step's ``write``: hand on what is due. What is held back is a sink's own choice until ``close``."""

    def close(self) -> None:
        """Hand on everything and let go; called once, nothing comes after it."""


@runtime_checkable
class LayerSink(Sink, Protocol):
    """A sink that also wants to know which layers this rank has."""

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Take the layers of this rank, all that are known so far: each as plain JSON values by name."""
