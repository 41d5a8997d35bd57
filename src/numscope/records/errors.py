"""The errors that numscope raises. A message names the place, what was given, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from numscope.records.words import escape

if TYPE_CHECKING:
    from numscope.records.alert import Alert
    from numscope.records.finding import Finding


class NumscopeError(Exception):
    """Base of all errors that numscope raises."""


class AbortAfter(NumscopeError):
    """The batch named by ``abort_after`` is over; the run ends as requested."""

    exit_status = 0

    def __init__(self, batch: int) -> None:
        super().__init__(f"stopped after batch {batch}, as abort_after={batch} asks")
        self.batch = batch

    def __reduce__(self) -> tuple[type[AbortAfter], tuple[int]]:
        return (type(self), (self.batch,))


class UsageError(NumscopeError, ValueError):
    """A wrong argument; the message names it, the valid values, and the nearest one.

    Messages may quote files that others wrote, so unprintable characters are escaped: a terminal shows them and obeys none.

    Args:
        text: what is wrong.
        place: the argument, key or file that it is about, with which the message begins; "" where the text itself names it.
    """

    exit_status = 2

    def __init__(self, text: str, place: str = "") -> None:
        self.text, self.place = text, place
        super().__init__("\n".join(map(escape, (f"{place}: {text}" if place else text).split("\n"))))


stop_listeners: list[Callable[[NumscopeError], None]] = []
"""Called with each NonFiniteError and AlertError as it is made, since the script may catch it."""


class AlertError(NumscopeError):
    """An alert, where alerts are to stop the run.

    Args:
        alert: the first one.
    """

    exit_status = 4

    def __init__(self, alert: Alert) -> None:
        super().__init__(escape(alert.line()))
        self.alert = alert
        for listener in tuple(stop_listeners):
            listener(self)

    def __reduce__(self) -> tuple[type[AlertError], tuple[Alert]]:
        return (type(self), (self.alert,))


class NonFiniteError(NumscopeError, ValueError):
    """A nan or inf escaped into the loss, a gradient, a weight or the optimizer's state.

    Args:
        finding: what was found; ``str(error)`` contains its ``file:line`` if the replay found one.
    """

    exit_status = 3

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.headline())
        self.finding = finding
        for listener in tuple(stop_listeners):
            listener(self)

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[Finding]]:
        return (type(self), (self.finding,))  # survives a process boundary (spawned workers, pytest-xdist)


STOPS = (NonFiniteError, AlertError)  # what numscope has seen, raised into the script
