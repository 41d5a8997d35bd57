"""The protocol of sinks, which take observations out of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from numscope.records.observation import Observation


@runtime_checkable
class Sink(Protocol):
    """Takes observations out of the run: into files, a dashboard, a user's program.

    A sink that has ``alert(alert)`` gets each ``Alert`` of its rank too; one that has ``finding(finding, report)``, each ``Finding``, with
    its report as the terminal has it, on the one rank that tells it; one that has ``describe(layers)``, the layers. ``settle()``, where
    there is one, is called when a finding is about to end the run: what was sent has to arrive.
    """

    def write(self, observations: Sequence[Observation]) -> None:
        """Take the observations of one scheduled step; called once per scheduled step, on the training thread.

        Observations with ``mine`` False are written by another rank; sinks that all ranks share (files) skip them.
        """

    def flush(self) -> None:
        """Called after each scheduled step's ``write``: pass on what is due; nothing unless a sink overrides it. A sink may hold
        observations back until ``close``."""
        return None

    def close(self) -> None:
        """Pass on everything and release resources; called once, as the last call."""
