"""Attempts: jobs often restart into the same folder, and nothing there is overwritten.

Each start of a rank is an *attempt*, numbered from 1. It is taken by creating ``ranks/rank<r>-<attempt>.json`` exclusively, so that
processes that run at the same time are kept apart too.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from typing import Any

from numscope.records.faults import suppress
from numscope.records.files import read_json, write_atomically
from numscope.records.words import escape

RANKS = "ranks"
ENDED = ".ended"  # instead of .json: an empty file of an attempt that writes no more

log = logging.getLogger("numscope")

_NAME = re.compile(r"rank(\d+)-(\d+)\.json")
_taken: dict[tuple[str, int, int], Attempt] = {}  # the latest of this process, by folder, rank and process


class Attempt:
    """One start of one rank in a folder.

    Attributes:
        number: from 1.
        started: when, UTC.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self.rank = rank
        self.started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        self._ranks = os.path.join(folder, RANKS)
        self._used_for: set[str] = set()
        os.makedirs(self._ranks, exist_ok=True)
        self.number = 1 + max(attempts(folder).get(rank, ()), default=0)
        while True:
            try:
                with open(self.path, "x", encoding="utf-8") as file:
                    file.write(self._facts({}))
                break
            except FileExistsError:  # another process of the same rank was quicker
                self.number += 1
        _say_who_else(self, folder)

    @classmethod
    def take(cls, folder: str | os.PathLike[str], rank: int, purpose: str) -> Attempt:
        """This process's attempt, a new one if it has none yet or has used it for the same purpose before. Raises: OSError."""
        key = (os.path.realpath(folder), rank, os.getpid())
        attempt = _taken.get(key)
        if attempt is None or purpose in attempt._used_for:
            attempt = _taken[key] = cls(os.fspath(folder), rank)
        attempt._used_for.add(purpose)
        return attempt

    @property
    def path(self) -> str:
        return os.path.join(self._ranks, f"rank{self.rank}-{self.number}.json")

    def file_name(self, stem: str, suffix: str) -> str:
        """The name of a file of this attempt: the first one's has no number."""
        return f"{stem}-rank{self.rank}{suffix}" if self.number == 1 else f"{stem}-rank{self.rank}-{self.number}{suffix}"

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Write facts into the attempt's file."""
        write_atomically(self.path, self._facts(facts))

    def _facts(self, more: Mapping[str, Any]) -> str:
        own = {"rank": self.rank, "started": self.started, "host": socket.gethostname(), "pid": os.getpid(), "layers": []}
        return json.dumps({**own, **more}, indent=1, default=str) + "\n"


def attempts(folder: str | os.PathLike[str]) -> dict[int, dict[int, str]]:
    """By rank the file of each attempt by its number, the latest last. Raises: OSError."""
    ranks = os.path.join(folder, RANKS)
    names = filter(None, map(_NAME.fullmatch, os.listdir(ranks) if os.path.isdir(ranks) else ()))
    found: dict[int, dict[int, str]] = {}
    for name in sorted(names, key=lambda name: (int(name[1]), int(name[2]))):
        found.setdefault(int(name[1]), {})[int(name[2])] = os.path.join(ranks, name[0])
    return found


def _say_who_else(mine: Attempt, folder: str) -> None:
    """A process that writes as the same rank at the same time, if it can be known: on this machine."""
    if mine.number == 1:
        return
    with suppress(Exception):  # what stands there need be no file of ours
        other = read_json(os.path.join(os.path.dirname(mine.path), f"rank{mine.rank}-{mine.number - 1}.json"))
        pid, since = int(other["pid"]), escape(other["started"])
        if other["host"] == socket.gethostname() and pid != os.getpid():
            os.kill(pid, 0)  # raises where it has ended
            log.warning(
                "%s: process %d writes there too, as rank %d since %s. Both are kept apart: this one's files have the number %d.",
                folder,
                pid,
                mine.rank,
                since,
                mine.number,
            )
