"""A run in another storage is written to a folder of this machine first, which a process of its own empties into the storage."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import stat
import subprocess
import tempfile
import time
from typing import Any

from numscope.records.attempt import RANKS
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import escape, without_passwords
from numscope.report.ending import at_end
from numscope.report.page import python_of_ours
from numscope.report.stderr import say
from numscope.storage.address import is_address, is_shortened

START_S = 40.0  # the longest wait of a training for the storage's first answer
END_S = 60.0  # the longest wait at its end for the last files to be sent
SAID = ".sending.log"  # in the folder: output of the sending process when nobody waits for it

_spools: dict[tuple[str, int], _Spool] = {}  # by address and process: a fork has its own


def spooled(log_dir: str, rank: int) -> str:
    """The folder of this machine to write to for a log dir; a folder of this machine is that itself.

    Nothing in the training ever waits for the storage but its first answer: retries, uploads and the storage's packages are a process's
    of their own, which goes on for a while where the training is killed.

    Raises: UsageError for an address that can't be right: no such bucket, no permission, a missing package.
    """
    if not is_address(log_dir):
        if is_shortened(log_dir):
            raise UsageError(f"log_dir: got {log_dir!r}, which a Path has made of an address, expected the address as text.")
        return log_dir
    if log_dir.startswith("memory://"):
        raise UsageError(f"log_dir: got {log_dir!r}, which ends with the process that writes there, expected a storage that stays.")
    key = (log_dir.rstrip("/"), os.getpid())
    if key not in _spools:
        _spools[key] = _Spool(log_dir, rank)
        at_end(finish)  # before the watch asks for its own end, which is to come first
    return _spools[key].folder


class _Spool:
    def __init__(self, address: str, rank: int) -> None:
        self.address = without_passwords(address)
        try:
            self.folder = tempfile.mkdtemp(prefix=f"numscope-rank{rank}-")
            command = python_of_ours("numscope.storage.shipping", self.folder, str(rank), str(os.getpid()))
            # In a session of its own: what ends a training's group of processes must not keep its last records from getting there.
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            assert self.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended, as its answer shows
                self.process.stdin.write(address.encode() + b"\n")  # not among the words of a command, which others can see
                self.process.stdin.flush()
        except ours(OSError) as error:
            raise UsageError(
                f"log_dir: got {self.address!r}, which is written by way of the folder for temporary files, where nothing can be: {error}. "
                "Name another one by TMPDIR."
            ) from None
        answer = self._answer()
        if "error" in answer:
            self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise UsageError(answer["error"])
        if "down" in answer:
            # The number of an attempt that can't be asked for is later than all others: the seconds since 1970.
            os.makedirs(os.path.join(self.folder, RANKS), exist_ok=True)
            with open(os.path.join(self.folder, RANKS, f"rank{rank}-{int(time.time())}.json"), "x"):
                pass  # it stands for those before; empty ones are not sent
            say(
                f"numscope: log_dir: {escape(self.address)} does not answer: {escape(answer['down'])}. Training begins; what it records "
                f"is kept in {self.folder} and sent once the storage answers."
            )

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            return {"down": f"no answer in {START_S:.0f} s" if not ready else "the process that sends files has ended"}
        try:
            answer: dict[str, Any] = json.loads(line)
        except ours(ValueError):  # something that Python loads as it starts has printed
            answer = {"down": f"it says {line[:80].decode(errors='replace')!r}"}
        return answer

    def finish(self) -> None:
        """Wait until all is there, for some time."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            if self.process.wait(END_S):
                why = escape(self.process.stdout.read().decode(errors="replace").strip()) or f"it ended with {self.process.returncode}"
                told = f"the process that sends files has failed: {why}. What it has not sent is in {self.folder}."
                say(f"numscope: {escape(self.address)}: {told}")
        except subprocess.TimeoutExpired:
            told = f" and tells {self.folder}/{SAID} what came of it" if is_pipe(2) else ""
            say(f"numscope: {escape(self.address)}: not all is there yet; process {self.process.pid} goes on sending {self.folder}{told}.")
        self.process.stdout.close()


def is_pipe(number: int) -> bool:
    """Whether a file number is what another program reads to its end."""
    try:
        mode = os.fstat(number).st_mode
    except ours(OSError):  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def finish() -> None:
    """At the process's end: what its runs have written gets to where it belongs."""
    for (_, owner), spool in list(_spools.items()):
        if owner == os.getpid():
            spool.finish()
    _spools.clear()
