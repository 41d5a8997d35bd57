"""Memory that the ranks of one host share: each writes its place there, and reads whether some rank has spoken.

A rank at a place of its step writes one number and reads another; nothing waits. The file behind the memory lies in ``/dev/shm``, belongs
to the user alone, and goes with the last rank. Locks on it are those of processes: they end with them, and no forked child has them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from numscope.records.faults import ours, suppress

fcntl: Any
try:
    import fcntl
except ImportError:  # no POSIX: each rank has a board of its own
    fcntl = None

MOST_SLOTS = 4096
_PAIRS = 4  # rings that a rank may not have looked at yet
# Cells: the last ring heard; somebody hears; nobody will any more; asked whether it was said; where slots begin.
_RING, _READY, _OVER, _ASKED, _HEAD = 0, 1, 2, 3, 8
_NODE, _PID, _AT, _FIRST = 0, 1, 2, 3  # of a slot; then pairs of a ring and the place at which it is told
_WIDTH = _FIRST + 2 * _PAIRS
_SIZE = 8 * (_HEAD + MOST_SLOTS * _WIDTH)
_STALE_S = 60.0
_open: set[str] = set()  # files of this process: whoever closes one a second time loses the locks on it
NOWHERE = -1  # a ring's place, if its ranks did not answer


class At(IntEnum):
    """Where a rank is at a place."""

    ENTERS = 0  # about to look whether somebody has spoken
    STANDS = 1  # will look again before it goes on
    PASSED = 2


class HostMemory:
    """The memory of one host. A process that can share none has it alone.

    Args:
        job: a name that the job's ranks have in common, and no other job.

    *Cost:* an open file; a page of memory for 46 ranks.
    """

    def __init__(self, job: str) -> None:
        self._pid = os.getpid()
        self._path, self._file = _opened(f"numscope-{_user()}-{job}-{_namespace()}")
        self._memory = mmap.mmap(self._file, _SIZE)
        self._cells = memoryview(self._memory).cast("q")
        self._threads = threading.Lock()
        self._leads = False

    # ---- for the one that hears

    def lead(self) -> bool:
        """Whether this process hears for its host from now on; it does until it ends or resigns."""
        if self._leads or not self._is_mine:
            return False
        if self._file != -1:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except ours(OSError):  # another process does
                return False
        self._leads = True
        return True

    def resign(self) -> None:
        """Let another process hear."""
        if self._leads and self._is_mine:
            self._leads = False
            if self._file != -1:
                self._cells[_READY] = 0
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)

    def hears(self) -> None:
        """This process, which leads, hears from now on."""
        self._cells[_READY] = 1

    def wait_for_leader(self, seconds: float) -> None:
        """Until the process that leads hears."""
        end = time.monotonic() + seconds
        while not self._cells[_READY] and time.monotonic() < end:
            time.sleep(0.001)

    @property
    def ring(self) -> int:
        """The last ring that was heard."""
        return self._cells[_RING]

    @ring.setter
    def ring(self, number: int) -> None:
        self._cells[_RING] = number

    @property
    def is_over(self) -> bool:
        """Whether nothing will be heard any more: the job's store is gone."""
        return bool(self._cells[_OVER])

    def end(self) -> None:
        """Nothing will be heard any more."""
        self._cells[_OVER] = 1

    def is_first(self) -> bool:
        """Whether no rank of this host has asked this before."""
        with self._locked():
            self._cells[_ASKED] += 1
            return self._cells[_ASKED] == 1

    def slots_of(self, nodes: set[int]) -> list[Slot]:
        """Those of the given watches that are on this host."""
        return [slot for slot in self._slots() if slot.node in nodes]

    # ---- for each rank

    def take(self, node: int) -> tuple[Slot | None, int]:
        """A slot for a watch, None where there is none left; and the watch of a process that has died, if the slot was its."""
        with self._locked():
            for slot in self._slots(all_of_them=True):
                dead = slot.node
                if not dead or not slot.is_alive:
                    slot.clear()
                    slot.node = node
                    return slot, dead
        return None, 0

    def close(self) -> None:
        """Share no more; the last rank takes the file away."""
        if self._is_mine and self._file != -1:
            self.resign()
            with self._locked():
                if not any(slot.is_alive for slot in self._slots()):
                    with suppress(OSError):
                        os.unlink(self._path)
            os.close(self._file)
            self._file = -1
            _open.discard(self._path)

    @property
    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _slots(self, *, all_of_them: bool = False) -> Iterator[Slot]:
        """Those taken so far. They are taken from the front, and an empty one may lie between."""
        for index in range(MOST_SLOTS):
            start = _HEAD + index * _WIDTH
            if self._cells[start + _NODE] or self._cells[start + _PID] or all_of_them:
                yield Slot(self._cells, start)
            else:
                return

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._threads:
            if self._file == -1:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, 1)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 1)


class Slot:
    """Where one rank is in the steps of one model."""

    __slots__ = ("_cells", "_start")

    def __init__(self, cells: memoryview, start: int) -> None:
        self._cells, self._start = cells, start

    @property
    def node(self) -> int:
        """Number of the watch in this job; 0 once it has ended."""
        return int(self._cells[self._start + _NODE])

    @node.setter
    def node(self, node: int) -> None:
        self._cells[self._start + _PID] = os.getpid()
        self._cells[self._start + _NODE] = node

    @property
    def is_alive(self) -> bool:
        """Whether its watch is open, and its process lives."""
        if not self.node:
            return False
        try:
            os.kill(self._cells[self._start + _PID], 0)
        except ours(ProcessLookupError):
            return False
        except ours(OSError):  # another user's
            pass
        return True

    def clear(self) -> None:
        """Its watch has ended. The process stays noted: slots are looked through up to the first that was never taken."""
        self._cells[self._start + _NODE] = 0
        for cell in range(_AT, _WIDTH):
            self._cells[self._start + cell] = 0

    # ---- written by the rank

    def mark(self, place: int, at: At) -> None:
        self._cells[self._start + _AT] = 4 * place + at

    def told_at(self, ring: int) -> int | None:
        """The place at which a ring is told, 0 if it is not known yet; None if this watch is not concerned."""
        pair = self._start + _FIRST + 2 * (ring % _PAIRS)
        return int(self._cells[pair + 1]) if self._cells[pair] == ring else None

    # ---- written by the one that hears

    def concern(self, ring: int, place: int = 0) -> None:
        pair = self._start + _FIRST + 2 * (ring % _PAIRS)
        self._cells[pair + 1] = place
        self._cells[pair] = ring

    def next_place(self, seconds: float) -> int:
        """The place at which this rank can be told something next."""
        end = time.monotonic() + seconds
        while (place_at := divmod(self._cells[self._start + _AT], 4))[1] == At.ENTERS and place_at[0] and time.monotonic() < end:
            time.sleep(0.0005)
        return int(place_at[0]) + (place_at[1] == At.PASSED or not place_at[0])


def _namespace() -> int:
    """Of this process's number: those of another container mean nothing here."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except ours(OSError):
        return 0


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _opened(name: str) -> tuple[str, int]:
    """The shared file, made by the first; -1 where there can be none."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    if fcntl is None:
        return "", -1
    try:
        _sweep(folder)
        path = os.path.join(folder, name)
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
        if os.fstat(file).st_uid != _user():
            os.close(file)
            return "", -1
    except ours(OSError):
        return "", -1
    try:
        if os.fstat(file).st_size < _SIZE:
            reserve = getattr(os, "posix_fallocate", lambda number, start, size: os.ftruncate(number, size))  # macOS has none
            reserve(file, 0, _SIZE)  # now, as where there is no room the first write would kill the process
        _open.add(path)
        return path, file
    except ours(OSError):
        os.close(file)
        return "", -1


def _sweep(folder: str) -> None:
    """Take away what killed jobs of this user have left."""
    for entry in os.scandir(folder):
        if entry.name.startswith(f"numscope-{_user()}-") and entry.path not in _open:
            with suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_S:
                    file = os.open(entry.path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
                    try:
                        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                        os.unlink(entry.path)
                    finally:
                        os.close(file)
