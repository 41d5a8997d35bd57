"""Ends the process without what C++ runs at exit, where that could change the status."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO

_FLUSH_FAILED = 120  # what Python ends with when standard output can't be written
_FILES_S = 10.0  # for files that nobody closed: one may be a pipe that nobody reads


def teardown_may_abort() -> bool:
    """Whether this process has, or had, a torch.distributed process group.

    Its threads (gloo's loop, the store's, a watchdog) outlive the interpreter, hold Python objects and ask for the interpreter's lock to
    release them. An interpreter that is taking itself apart answers by unwinding the thread's stack; where that meets C++ that may not
    throw, the process aborts: "terminate called without an active exception", and -6 in place of the status. Bare torch does so in up
    to one run of ten on a busy machine. Destroying the group first does not help: a DDP holds it as well.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    # the name of the first group's backend stays when the group is destroyed
    return distributed.is_initialized() or getattr(distributed.distributed_c10d, "_backend", None) is not None


def leave(status: int) -> NoReturn:
    """Does what Python does at exit, in its order, up to where it takes itself apart; then ends the process with this status.

    Threads that are no daemons are waited for, exit handlers run, and what was written but not flushed, to open files too, is flushed.
    Left out: ``__del__`` of what is still alive, and exit handlers of C libraries.

    *Cost:* a walk over all objects, some 50 ms.
    """
    _do(threading._shutdown)  # type: ignore[attr-defined]  # what multiprocessing calls in its own children, before os._exit
    _do(atexit._run_exitfuncs)
    files = threading.Thread(target=_flush_files, daemon=True)
    files.start()
    files.join(_FILES_S)
    if not _flushed(sys.stdout):
        status = _FLUSH_FAILED
    _flushed(sys.stderr)
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # what C code printed
    os._exit(status & 0xFF)


def _do(step: Callable[[], object]) -> None:
    """A step that fails is told, and the next one is done; as Python does at exit."""
    try:
        step()
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()


def _flushed(stream: TextIO | None) -> bool:
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except Exception:
        with contextlib.suppress(Exception):
            traceback.print_exc()
        return False
    return True


def _flush_files() -> None:
    """Python would close the files that the script left open; text goes first, into the bytes below it."""
    found = [one for one in gc.get_objects() if issubclass(type(one), (io.TextIOBase, io.BufferedIOBase))]
    for file in sorted(found, key=lambda one: not issubclass(type(one), io.TextIOBase)):
        with contextlib.suppress(Exception):  # detached, or the disk is full: silent, as in a destructor
            if not file.closed and file.writable():
                file.flush()
