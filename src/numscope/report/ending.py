"""The end of a process: what is still open is ended in order before the interpreter goes."""

from __future__ import annotations

import atexit
import multiprocessing
from collections.abc import Callable
from multiprocessing.util import Finalize

_finalizers: dict[Callable[[], None], Finalize] = {}


def at_end(work: Callable[[], None]) -> None:
    """Call ``work`` when this process ends by itself, before all that was registered earlier. Asked again, it is called earlier, and once.

    By then the script's threads have ended, but for daemons. A process that ``multiprocessing`` has forked calls no exit handlers, and one
    that it has spawned calls both: ``work`` may be called twice.
    """
    not_at_end(work)
    atexit.register(work)
    if multiprocessing.parent_process() is not None:
        _finalizers[work] = Finalize(None, work, exitpriority=0)


def not_at_end(work: Callable[[], None]) -> None:
    """Take back what ``at_end`` was asked for."""
    atexit.unregister(work)
    if (finalizer := _finalizers.pop(work, None)) is not None:
        finalizer.cancel()
