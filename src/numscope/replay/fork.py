"""Work in a forked process, so that nothing of the run can change: no generator, list, counter, file, or tensor of the user's."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from numscope.records.parent import die_with

T = TypeVar("T")

IDLE_SECONDS = 30  # a process that has used next to no CPU for so long waits for something that a fork does not have
LIMIT_SECONDS = 5  # for work for which the run waits, and goes on
MOST_SECONDS = 600  # for any
PATIENCE_SECONDS = 5  # after which who waits is told that it goes on

# Where a thread does nothing but wait, by module and function: for another one, for work, for bytes.
_RESTS = {
    *(("threading", name) for name in ("wait", "join", "_wait_for_tstate_lock")),
    ("numscope.distributed.bell", "_listen"),
    ("numscope.distributed.channel", "rest"),
    ("wandb.sdk.lib.service.service_finalizer", "_publish_queue"),
    *(("selectors", "select"), ("queue", "get"), ("concurrent.futures.thread", "_worker"), ("socket", "accept"), ("socket", "readinto")),
}

_FEW_TICKS = 10  # of CPU in a second: less is a look now and then whether what it waits for has come

is_forking = False  # this module's fork is running: handlers of others' forks have nothing to do


def can_fork() -> bool:
    """Whether a child can do what this process does: on a device, or beside other threads that are at work, it can not. Nor can one be made
    where the script is told of children's ends: it would hear of one that it has not made."""
    alone = sys.platform == "linux" and others_rest() and not _hears_of_children()
    return alone and not torch.cuda.is_initialized() and not _used_accelerator()  # type: ignore[no-untyped-call]


def _hears_of_children() -> bool:
    """Whether the script handles SIGCHLD. Torch's data loaders do too, once they have workers; theirs hands on to the one before."""
    handler: Any = signal.getsignal(signal.SIGCHLD)
    while getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling":
        handler = next((cell.cell_contents for cell in handler.__closure__ or ()), None)
    return callable(handler)


def others_rest() -> bool:
    """Whether Python's other threads only wait, as those of progress bars, notebooks, loaders and loggers do. One that is in other code may
    hold a lock that nobody would release in a child."""
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # it would keep all that the script's functions hold, until the collector comes
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread is not threading.current_thread() and (
            frame is None or (frame.f_globals.get("__name__"), frame.f_code.co_name) not in _RESTS
        ):
            return False
    return True


def _used_accelerator() -> bool:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type != "cuda"


def in_child(
    work: Callable[[], T],
    failed: Callable[[str], T],
    *,
    goes_on: bool = False,
    num_threads: int = 1,
    confined: bool = True,
    lasts: Callable[[], None] = lambda: None,
) -> T | None:
    """Call ``work`` in a forked process, and return what it returns.

    Args:
        work: its result is pickled.
        failed: makes the result if the process fails or gets stuck, from the reason: to do the work here then would risk the same.
        goes_on: the run does, whatever is found, and must not be kept waiting.
        num_threads: of torch's operations there; the bits of some depend on it.
        lasts: called once here when it has taken ``PATIENCE_SECONDS``.
        confined: it reaches nothing outside of itself (``confine``); else, where it compiles, the user's files and terminal are there, too.

    Returns: None if there can be no such process.

    *Cost:* the fork, 1 ms and the process's page tables (2 ms a GB); its memory is shared until written.
    """
    global is_forking
    if not can_fork():
        return None
    with contextlib.suppress(ImportError):  # the child tells of it
        from numscope.replay import confine  # noqa: F401  # here, else each child would load it anew: a third of a small one's time
    parent = os.getpid()
    reading, writing = os.pipe()
    is_forking = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, of threads that other libraries have started
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    finally:
        is_forking = False
    if not child:
        _work(work, writing, parent, num_threads, confined)
    os.close(writing)
    try:
        told = _hear(reading, child, LIMIT_SECONDS if goes_on else MOST_SECONDS, lasts)
    finally:
        os.close(reading)
        try:
            os.kill(child, signal.SIGKILL)  # it is done, or will never be
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):  # the script reaps its children itself
            pass
    late = f"did nothing for {IDLE_SECONDS} s" + (f", or was not done within {LIMIT_SECONDS} s" if goes_on else "")
    result, why = pickle.loads(told) if told else (None, f"its process ended without a result, or {late}")
    return failed(why) if why else result


def _work(work: Callable[[], object], writing: int, parent: int, num_threads: int, confined: bool) -> None:
    """In the child: do it, send the result, and exit without the run's own exit handlers."""
    try:
        gc.freeze()  # garbage of the run is the parent's to collect: a process group's end would wait for threads that a fork does not have
        die_with(parent)
        try:
            from numscope.replay.confine import confine  # POSIX's alone

            if confined:
                confine(writing)
            gc.freeze()  # what that has left
            told = pickle.dumps((_with_threads(work, num_threads), ""))
        except BaseException as error:  # also SystemExit of the user's code
            told = pickle.dumps((None, f"it raised {type(error).__name__}: {error}"))
        while told:
            told = told[os.write(writing, told) :]
    finally:
        os._exit(0)


def _with_threads(work: Callable[[], T], num: int) -> T:
    """The result of work for which torch has so many threads. The parent's pool is that of the thread that has been forked: a new thread
    gets another one."""
    if num == 1:
        torch.set_num_threads(1)
        return work()
    found: list[T | BaseException] = []

    def run() -> None:
        try:
            torch.set_num_threads(num)
            found.append(work())
        except BaseException as error:  # also SystemExit of the user's code
            found.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _hear(reading: int, child: int, limit: float, lasts: Callable[[], None]) -> bytes:
    told, used, idle, begin, waits = b"", -1, 0, time.monotonic(), True
    while idle < IDLE_SECONDS and (now := time.monotonic()) < begin + limit:
        if waits and now > begin + PATIENCE_SECONDS:
            waits = False
            lasts()
        if select.select([reading], [], [], min(1, limit))[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return told
            told += part
        else:
            ticks = _cpu_ticks(child)
            idle, used = (idle + 1 if ticks - used < _FEW_TICKS else 0), ticks
    return b""


def _cpu_ticks(process: int) -> int:
    """CPU time that a process has used, in ticks of the kernel's clock."""
    with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
