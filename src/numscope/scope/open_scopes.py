"""The open scopes of a process, and what becomes of them when it ends."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from numscope.probe.living import Living
from numscope.probe.naming import class_name
from numscope.records.errors import STOPS, AbortAfter
from numscope.records.faults import ours, suppress, told
from numscope.report import page
from numscope.scope import signals

log = logging.getLogger("numscope")

_live: Living[Any] = Living()


def live() -> tuple[Any, ...]:
    """The open ``ModelWatch``es of this process, in the order of their start."""
    return tuple(_live)


def opened(scope: Any) -> None:
    _live.add(scope)


def closed(scope: Any) -> None:
    _live.discard(scope)


def write_all() -> None:
    """The process is being ended: what is known goes into the files, without a judgment."""
    for scope in live():
        with suppress(Exception):  # the other scopes' files
            scope.write()


def leave_ranks() -> None:
    """The process is about to be gone: give ranks whose statistics are merged with its own a moment to hear it."""
    if (ranks := sys.modules.get("numscope.inspect.ranks")) is not None:
        ranks.say_goodbyes()


def end_all() -> None:
    """The interpreter ends: close, the last one first, what the script has left open.

    What a daemon's thread still trains is not taken from under it: what is known goes into the files.
    """
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # what has ended the script
    with signals.ending():
        for scope in reversed(live()):
            if scope.ends_by_itself or scope.findings or scope.alerts:
                try:
                    scope.write() if scope.is_in_other_thread else scope.close(error)
                except (*STOPS, AbortAfter):  # it was reported, and nobody is left to be stopped
                    pass
                except ours() as fault:
                    log.error("numscope could not end the watch of %s: %s", class_name(scope.model), told(fault))
        parquet = sys.modules.get("numscope.sinks.parquet")
        folders = set() if parquet is None else parquet.close_all()
    leave_ranks()
    if folders and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from numscope.runs.compaction import compact_ended

        compact_ended(folders)


page.first(end_all)
