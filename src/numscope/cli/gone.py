"""Keeps the exit status of a finding in a process that trains with others."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys


class LastHandler:
    """Ends the process with our status before the interpreter tears itself down.

    Threads of a torch.distributed process group (gloo's loop, the store's, a watchdog) outlive the interpreter and ask for its lock. An
    interpreter that is being torn down then unwinds the thread's stack, and C++ that may not throw aborts the process: "terminate called
    without an active exception", status -6. Bare torch does so in up to one run of ten on a busy machine, destroyed groups included.

    Exit handlers run in reverse order, so this one, registered before the script's first line, runs after all of the script's and after
    its threads have ended. Skipped are ``__del__`` of living objects and exit handlers of C libraries.

    *Cost:* where a group existed, a walk over all objects, some 50 ms.
    """

    def __init__(self) -> None:
        self.status: int | None = None  # to end with; None: as the interpreter would
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.status is None or not _had_process_group():
            return
        for file in gc.get_objects():  # files that the script left open: the interpreter would flush them
            if type(file) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
                with contextlib.suppress(Exception):
                    file.flush()
        os._exit(self.status & 0xFF)


def _had_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    return getattr(distributed.distributed_c10d, "_backend", None) is not None  # the first group's; it stays when the group is destroyed
