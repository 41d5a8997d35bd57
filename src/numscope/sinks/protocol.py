"""The protocol of sinks, which take observations out of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from numscope.records.observation import Observation


@runtime_checkable
class Sink(Protocol):
    """Takes observations out of the run: into files, a dashboard, a user's program."""

    def write(self, observations: Sequence[Observation]) -> None:
        """Take the observations of one scheduled step; called once per scheduled step, on the training thread.

        Observations with ``mine`` False are written by another rank; sinks that all ranks share (files) skip them.
        """

    def flush(self) -> None:
        """Called after each scheduled step's ``write``: pass on what is due. A sink may hold observations back until ``close``."""

    def close(self) -> None:
        """Pass on everything and release resources; called once, as the last call."""


@runtime_checkable
class LayerSink(Sink, Protocol):
    """A sink that also takes the layers of this rank."""

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Take the layers of this rank known so far, each as JSON values by name."""
