"""The process that sends a rank's files to another storage; see ``spool.py``. It loads no torch and never holds the training up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from numscope.records.attempt import RANKS
from numscope.records.errors import UsageError
from numscope.records.words import count, escape, without_passwords
from numscope.sinks.runfolder import RUN_FILE, STATISTICS
from numscope.storage.address import OBJECT_STORES, connect, text_of
from numscope.storage.spool import END_S, SAID, is_pipe

POLL_S = 0.5
LOG_S = 30.0  # between two copies of a log that grows: a storage can't append
LARGEST_REST_S = 30.0  # between two tries
LAST_S = 600.0  # for which it tries after the training has ended
LEAVES_BYTES = 2 << 20  # a part this large is merged with no other one (sinks/part_files.py): it need not stay on this machine
MOST_WAITING_BYTES = 8 << 30  # on this machine while the storage is away; then the oldest parts go

Sign = tuple[int, int, int]


def main(folder: str, rank: str, parent: str) -> None:
    """Send what comes to stand in ``folder`` until the process ``parent`` ends or closes stdin, and the rest of it after that.

    The line on stdin is the address. The first line on stdout is the answer: ``{}``, ``{"down": …}`` or ``{"error": …}``.
    """
    for sign in (signal.SIGINT, signal.SIGTERM):  # schedulers send them to all processes; this one ends once the training has
        signal.signal(sign, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a storage's package prints is no answer
    address = sys.stdin.buffer.readline().decode().rstrip("\n")
    told = without_passwords(address)
    try:
        shipper = Shipper(address, folder, int(rank))
        answer: dict[str, str] = {}
        try:
            shipper.begin()
        except (FileNotFoundError, PermissionError, NotImplementedError) as error:
            raise UsageError(f"log_dir: got {told!r}, expected a folder that can be written to: {text_of(error)}") from None
        except Exception as error:  # whatever a storage's package raises while the storage is away
            if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "RefreshError"):
                raise UsageError(f"log_dir: got {told!r}, expected a folder that can be written to: {text_of(error)}") from None
            answer = {"down": text_of(error)}
    except UsageError as error:
        os.write(answers, json.dumps({"error": str(error)}).encode() + b"\n")
        sys.exit(1)  # the folder is the training's: it may have begun by now
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os.close(answers)
    shipper.run(int(parent), answer.get("down", ""))


class Shipper:
    """Makes a storage's folder like the one on this machine, file by file.

    A file is sent in one piece where the storage shows writes whole, else under another name that is changed then: a part is there whole
    or not at all. What a rank has removed (parts that it has merged) is removed after what stands in for it is there.

    Args:
        address: of the run in the storage.
        folder: on this machine.
        rank: whose files they are.
    """

    def __init__(self, address: str, folder: str, rank: int) -> None:
        self.address, self.folder, self.rank = without_passwords(address), folder, rank
        self.files, self.root = connect(address, "log_dir")
        kinds = self.files.protocol
        self._kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        self._whole = bool(self._kinds & OBJECT_STORES)
        self._sent: dict[str, Sign] = {}  # by path in the run
        self._gone: set[str] = set()  # sent, and no longer on this machine
        self._missing: set[str] = set()  # sent, and not on this machine when it was last looked at
        self._logs: dict[str, float] = {}  # when each was sent
        self.num_lost = 0

    def begin(self) -> None:
        """Take an attempt of this rank's that no other process has, by creating its file, and get the run's own file.

        Raises what storages raise.
        """
        os.makedirs(os.path.join(self.folder, RANKS), exist_ok=True)
        number = 1 + max(self._attempts(), default=0)
        while True:
            name = f"{RANKS}/rank{self.rank}-{number}.json"
            try:
                self._put(name, b'{"rank": %d, "layers": []}\n' % self.rank, new=True)
                break
            except FileExistsError:
                number += 1
        self._sent[name] = (0, 0, 0)  # taken: from now on it is replaced
        if number > 1:  # the next number on this machine is ours
            with open(os.path.join(self.folder, RANKS, f"rank{self.rank}-{number - 1}.json"), "xb"):
                pass  # empty: it is not sent
        with contextlib.suppress(FileNotFoundError):
            data = self.files.cat_file(f"{self.root}/{RUN_FILE}")
            path = os.path.join(self.folder, RUN_FILE)
            with open(path, "xb") as file:
                file.write(data)
            self._sent[RUN_FILE] = _sign(os.stat(path))

    def _attempts(self) -> Iterator[int]:
        with contextlib.suppress(FileNotFoundError):
            for path in self.files.find(f"{self.root}/{RANKS}", **self._prefix(f"rank{self.rank}-")):
                match = re.fullmatch(rf"rank{self.rank}-(\d+)\.json", str(path).rsplit("/", 1)[-1])
                if match:
                    yield int(match[1])

    def _prefix(self, prefix: str) -> dict[str, str]:
        """One rank of a thousand asks for its own files only, where a storage can list by prefix."""
        return {"prefix": prefix} if {"s3", "gs"} & self._kinds else {}

    def run(self, parent: int, failing: str = "") -> None:
        """Until the training has ended and all is sent, or ``LAST_S`` after that. ``failing``: the known error, already printed."""
        rest, ended = POLL_S, 0.0
        while True:
            if ended:
                time.sleep(rest if failing else 0.0)
            elif _has_ended(parent, rest):
                ended, self._logs = time.monotonic(), {}
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if ended and time.monotonic() - ended > END_S and is_pipe(2):  # who reads it waits for the end of the training
                _say(f"{self.address} is still tried; what comes of it is told in {self.folder}/{SAID}")
                with open(os.path.join(self.folder, SAID), "a") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
            try:
                self.send()
                if ended:
                    self.send()  # what the first one found gone is removed
                if failing:
                    _say(f"{self.address} answers again: what was kept meanwhile is there.{self._lost()}")
                rest, failing = POLL_S, ""
                if ended:
                    break
            except Exception as error:  # whatever a storage's package raises; the storage may come back
                if not failing:
                    _say(
                        f"{self.address} can't be written for now: {text_of(error)}. It is tried again, what waits is in {self.folder}. "
                        "Training goes on."
                    )
                failing = text_of(error)
                rest = min(LARGEST_REST_S, 2 * rest) if not ended else 2.0
                self._make_room()
            if ended and time.monotonic() - ended > LAST_S:
                break
        waiting = [name for name, _ in self._waiting()]
        if failing or waiting:
            _say(
                f"{self.address} lacks {count(len(waiting), 'file')} of rank {self.rank}: {failing}. They are in {self.folder}; "
                f"copy them there to complete the run.{self._lost()}"
            )
            return
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self) -> None:
        """Send what is new, and remove what was gone the last time too: what stands in for it may not have been listed then.

        Raises what storages raise.
        """
        there = set()
        for name, sign in self._files():
            there.add(name)
            if self._sent.get(name) != sign and not self._rests(name):
                self._send(name, sign)
        missing = {name for name in self._sent if name not in there and name not in self._gone and not name.startswith(RANKS)}
        for name in sorted(missing & self._missing):
            with contextlib.suppress(FileNotFoundError):
                self.files.rm_file(f"{self.root}/{name}")
            del self._sent[name]
        self._missing = missing

    def _send(self, name: str, sign: Sign) -> None:
        path = os.path.join(self.folder, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:  # merged just now
            return
        if name == RUN_FILE and self.rank == 0 and name not in self._sent:
            data = self._with_earlier(data)
        new = name not in self._sent and (name.startswith((RANKS, STATISTICS)) or (name == RUN_FILE and self.rank != 0))
        try:
            self._put(name, data, new=new)
        except FileExistsError:  # our own, whose answer was lost; a run.json may be another rank's
            if name != RUN_FILE and self.files.info(f"{self.root}/{name}")["size"] != len(data):
                _say(f"{self.address}/{name} is there already, from another process of rank {self.rank}: it is kept, and ours is not sent.")
        self._sent[name] = sign
        self._logs[name] = time.monotonic()
        if sign[1] > LEAVES_BYTES and name.endswith((".parquet", ".safetensors")):
            self._gone.add(name)
            os.unlink(path)

    def _with_earlier(self, data: bytes) -> bytes:
        """The run's own file with the attempts that were there before: this one began while the storage was away."""
        try:
            there = json.loads(self.files.cat_file(f"{self.root}/{RUN_FILE}"))["attempts"]
            run = json.loads(data)
            numbers = {one["attempt"] for one in run["attempts"]}
            run["attempts"] = [*(one for one in there if one["attempt"] not in numbers), *run["attempts"]]
            return json.dumps(run, indent=1).encode() + b"\n"
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return data

    def _put(self, name: str, data: bytes, *, new: bool) -> None:
        place = f"{self.root}/{name}"
        if self._whole:
            if new:
                try:
                    self.files.pipe_file(place, data, mode="create")
                    return
                except (NotImplementedError, TypeError):  # the storage can't create exclusively
                    if self.files.exists(place):
                        raise FileExistsError(place) from None
            self.files.pipe_file(place, data)
            return
        if new and self.files.exists(place):
            raise FileExistsError(place)
        folder, _, last = place.rpartition("/")
        self.files.makedirs(folder, exist_ok=True)
        aside = f"{folder}/.{last}.{os.urandom(4).hex()}.tmp"
        self.files.pipe_file(aside, data)
        self.files.mv(aside, place)

    def _files(self) -> Iterator[tuple[str, Sign]]:
        """The files on this machine, without those being written."""
        for folder, _, names in os.walk(self.folder):
            for name in sorted(names):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    told = os.stat(path)
                    if not name.startswith(".") and told.st_size:
                        yield os.path.relpath(path, self.folder), _sign(told)

    def _waiting(self) -> list[tuple[str, Sign]]:
        return [(name, sign) for name, sign in self._files() if self._sent.get(name) != sign]

    def _rests(self, name: str) -> bool:
        """Whether it is a log that was sent just now."""
        return name.endswith((".log", ".txt")) and time.monotonic() - self._logs.get(name, -LOG_S) < LOG_S

    def _make_room(self) -> None:
        parts = sorted(((sign[2], sign[1], name) for name, sign in self._waiting() if name.endswith((".parquet", ".safetensors"))))
        excess = sum(size for _, size, _ in parts) - MOST_WAITING_BYTES
        for _, size, name in parts:
            if excess <= 0:
                break
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, name))
                excess -= size
                self.num_lost += 1
                if self.num_lost == 1:
                    _say(f"{self.address}: more than {MOST_WAITING_BYTES >> 30} GiB wait in {self.folder}: the oldest are dropped.")

    def _lost(self) -> str:
        return f" Lost: the {count(self.num_lost, 'oldest part')} that waited." if self.num_lost else ""


def _has_ended(parent: int, rest: float) -> bool:
    """Whether the training has closed our stdin within a rest, or has ended: what it forked may hold the stdin open."""
    end = time.monotonic() + rest
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], min(POLL_S, max(0.0, end - time.monotonic())))
        if ready:
            return True
        if time.monotonic() >= end:
            return False
    return True


def _sign(told: Any) -> Sign:
    return told.st_ino, told.st_size, told.st_mtime_ns


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"numscope: {escape(text)}\n")
        sys.stderr.flush()
