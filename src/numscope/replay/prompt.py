"""A debugger's prompt in frames that are at work, or that were kept when they ended."""

from __future__ import annotations

import bdb
import contextlib
import importlib
import pdb
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from numscope.records.errors import UsageError
from numscope.records.faults import ours

Entry = tuple[FrameType, int]  # a frame and the line to show in it


class _Frames:
    """A debugger's knowledge of ours; goes before its class."""

    entries: Sequence[Entry] = ()

    def get_stack(self, frame: FrameType | None, trace: object) -> tuple[list[Entry], int]:
        return list(self.entries), len(self.entries) - 1

    def _refuse(self, words: str) -> None:
        print(f"*** {self._why} c or q leaves.", file=self.stdout)  # type: ignore[attr-defined]

    _why = "Nothing can be run on from here."
    do_next = do_n = do_step = do_s = do_return = do_r = do_until = do_unt = do_jump = do_j = _refuse


def debugger_class(name: str) -> type[Any]:
    """The debugger that ``MODULE:CLASS`` names; "" is Python's own.

    Raises: UsageError if there is none.
    """
    if not name:
        return pdb.Pdb
    module, _, cls = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), cls)
    except ours(ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--pdbcls: got {name!r}, expected MODULE:CLASS, such as IPython.terminal.debugger:TerminalPdb: {error}."
        ) from None
    if not (isinstance(found, type) and issubclass(found, pdb.Pdb)):
        raise UsageError(f"--pdbcls: got {name!r}, expected a subclass of pdb.Pdb.")
    return found


def prompt(entries: Sequence[Entry], debugger: str) -> None:
    """Let the user look around in these frames, outermost first; the prompt stands in the last one. Returns when they leave it."""
    kind = debugger_class(debugger)
    asked = type("Prompt", (_Frames, kind), {})(**({"nosigint": True} if kind is pdb.Pdb else {}))
    asked.entries = entries
    asked.reset()
    asked.tb_lineno = dict(entries)
    traced = sys.gettrace()
    with contextlib.suppress(bdb.BdbQuit):
        try:
            asked.interaction(entries[-1][0], None)
        finally:
            sys.settrace(traced)
