"""What numscope raises. Each message says where, what was got, what was expected, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numscope.records.finding import Finding


class NumscopeError(Exception):
    """Any error that numscope raises on purpose."""


class AbortAfter(NumscopeError):
    """The batch that ``abort_after`` names is over; the run ends as it was asked to."""

    exit_status = 0

    def __init__(self, batch: int) -> None:
        super().__init__(f"stopped after batch {batch}, as abort_after={batch} asks")
        self.batch = batch

    def __reduce__(self) -> tuple[type[AbortAfter], tuple[int]]:
        return (type(self), (self.batch,))


class UsageError(NumscopeError, ValueError):
    """A wrong argument; the message names it, what it may be, and the nearest right one."""

    exit_status = 2


class NonFiniteError(NumscopeError, ValueError):
    """A nan or inf escaped into the loss, a gradient, a weight or the optimizer's state.

    Args:
        finding: what was found; ``str(error)`` holds its ``file:line`` where the replay showed one.
    """

    exit_status = 3

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.headline())
        self.finding = finding

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[Finding]]:
        return (type(self), (self.finding,))  # survives a process boundary (spawned workers, pytest-xdist)
