"""A run in another storage is written to a folder of this machine first, which a process of its own empties into the storage."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from numscope.records.attempt import RANKS
from numscope.records.errors import UsageError
from numscope.records.words import escape
from numscope.report.stderr import say
from numscope.storage.address import is_address

START_S = 40.0  # that a training waits for the storage's first answer, at most
END_S = 60.0  # that it waits at its end for the last files to be there

_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The script's folder is not on its path: a file there must not stand in for a library's.
_CODE = """\
import sys
sys.path = [one for one in sys.path if one] + [sys.argv.pop()]
from numscope.storage.shipping import main
main(*sys.argv[1:])
"""

_spools: dict[tuple[str, int], _Spool] = {}  # by address and process: a fork has its own


def spooled(log_dir: str, rank: int) -> str:
    """The folder of this machine to write to for a log dir; a folder of this machine is that itself.

    Nothing in the training ever waits for the storage but its first answer: retries, uploads and the storage's packages are a process's
    of their own, which goes on for a while where the training is killed.

    Raises: UsageError for an address that can't be right: no such bucket, no permission, a missing package.
    """
    if not is_address(log_dir):
        return log_dir
    key = (log_dir, os.getpid())
    if key not in _spools:
        _spools[key] = _Spool(log_dir, rank)
    return _spools[key].folder


class _Spool:
    def __init__(self, address: str, rank: int) -> None:
        self.address = address
        try:
            self.folder = tempfile.mkdtemp(prefix=f"numscope-rank{rank}-")
            command = [sys.executable, "-c", _CODE, address, self.folder, str(rank), str(os.getpid()), _SOURCES]
            # In a session of its own: what ends a training's group of processes must not keep its last records from getting there.
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise UsageError(
                f"log_dir: got {address!r}, which is written by way of the folder for temporary files, where nothing can be: {error}. "
                "Name another one by TMPDIR."
            ) from None
        answer = self._answer()
        if "error" in answer:
            self.process.wait()
            raise UsageError(answer["error"])
        if "down" in answer:
            # The number of an attempt that can't be asked for is later than all others: the seconds since 1970.
            os.makedirs(os.path.join(self.folder, RANKS), exist_ok=True)
            with open(os.path.join(self.folder, RANKS, f"rank{rank}-{int(time.time())}.json"), "x"):
                pass  # it stands for those before; empty ones are not sent
            say(
                f"numscope: log_dir: {escape(address)} does not answer: {escape(answer['down'])}. Training begins; what it records is kept "
                f"in {self.folder} and sent once the storage answers."
            )

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            return {"down": f"no answer in {START_S:.0f} s" if not ready else "the process that sends files has ended"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def finish(self) -> None:
        """Wait until all is there, for some time."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            say(f"numscope: {escape(self.address)}: not all is there yet; process {self.process.pid} goes on sending {self.folder}.")
        self.process.stdout.close()


def finish() -> None:
    """At the process's end: what its runs have written gets to where it belongs."""
    for (_, owner), spool in list(_spools.items()):
        if owner == os.getpid():
            spool.finish()
    _spools.clear()


# Registered with the import, which comes before any watch: exit handlers run backwards, so the watches have ended by then.
atexit.register(finish)
