"""A run that may go on: what a page shows of it, looked at again when somebody asks and enough time has passed."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from numscope.page.payload import payload_of
from numscope.page.recorded import Recorded, read_recorded
from numscope.records.errors import UsageError
from numscope.runs.sources import Remote, Signature, Source
from numscope.view.refresher import Refresher

State = Literal["reading", "waiting", "shown", "gone", "unreadable"]

LOOK_S, LOOK_REMOTE_S = 1.0, 10.0  # between two looks; a storage takes money for each
REST, MOST_REST_S = 20, 30.0  # times as long as listing took: of a slow file system a twentieth of the time is taken
WAIT_S = 0.4  # for which an answer waits for a look

_ATTEMPT = re.compile(r"ranks/rank(\d+)-(\d+)\.json")

log = logging.getLogger("numscope")


@dataclass(frozen=True, slots=True)
class Look:
    """The result of the latest look at a run's folder."""

    state: State
    message: str = ""  # why nothing, or nothing new, is shown; else empty
    heard: float = 0.0  # when the run last wrote, in seconds of the epoch; 0: never


@dataclass(eq=False)
class LiveRun:
    """A run, of which nothing is read until somebody asks for it."""

    key: str  # its name in addresses
    name: str  # its name for people
    source: Source
    seen: Look = Look("reading", "The run is being read.")  # by the latest look
    shown: tuple[str, bytes] = ("", b"null")  # what pages show, as JSON, and a name of its own for each version of it
    recorded: Recorded | None = None  # what that was made of; None: nothing yet
    _signature: Signature = field(default_factory=dict)
    _listing_s: float = 0.0

    def __post_init__(self) -> None:
        self._refresher = Refresher(f"numscope view {self.key}", self._see)

    def look(self) -> None:
        """Look at the folder again, if a look is due, and wait for it a moment."""
        self._refresher.ask(WAIT_S)

    def answer(self, version: str) -> tuple[dict[str, Any], bytes]:
        """State, and what a page that has a version is to show; ``null`` if it shows that already."""
        told = {
            "state": self.seen.state,
            "message": self.seen.message,
            "ago": max(0.0, time.time() - self.seen.heard) if self.seen.heard else None,
            "ended": self.has_ended,
        }
        latest, content = self.shown  # last: what has come since is newer than the state says, never older
        return {**told, "version": latest}, b"null" if version == latest else content

    @property
    def has_ended(self) -> bool:
        """Whether all of its processes have written that they ended."""
        recorded = self.recorded
        return recorded is not None and recorded.watched and not recorded.killed and latest_have_told(self._signature)

    def _see(self) -> float:
        start = time.monotonic()
        try:
            try:
                signature = self.source.signature()
            except (FileNotFoundError, NotADirectoryError):
                told = "What is shown is what it held." if self.recorded is not None else "There is nothing to show."
                seen = Look("gone", f"{self.source.given} is not there any more. {told}", self.seen.heard)
                self._signature = {}
            else:
                self._listing_s = time.monotonic() - start
                seen = self._seen(signature)
        except UsageError as error:
            seen = Look("unreadable", str(error), self.seen.heard)
        except Exception as error:  # a file system or storage that fails for now: what is known stays
            seen = Look("unreadable", f"{self.source.given} could not be read: {type(error).__name__}: {error}", self.seen.heard)
            self._signature = {}
            log.debug("numscope view: %s", self.source.given, exc_info=True)
        self.seen = seen
        least = LOOK_REMOTE_S if isinstance(self.source, Remote) else LOOK_S
        return max(least, time.monotonic() - start, min(MOST_REST_S, REST * self._listing_s))

    def _seen(self, signature: Signature) -> Look:
        heard = max((told[-1] for told in signature.values()), default=0.0)
        if signature == self._signature and self.seen.state not in ("reading", "gone"):
            return self.seen
        if not any(is_shown(name) for name in signature):
            self._signature = signature
            if self.recorded is not None:
                return Look("waiting", "The run begins anew: what is shown is what the folder held before.", heard)
            what = "The run has begun and has written no numbers yet" if signature else f"{self.source.given} is empty"
            when = "half a minute after a scheduled step, without a configuration at the tenth step"
            return Look("waiting", f"{what}. Its first statistics come {when}; its findings at once.", heard)
        recorded = read_recorded(self.source.given, copied=self.source.fetch(signature))
        content = {**payload_of(recorded), "name": self.name}
        self.shown = secrets.token_hex(8), json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        self.recorded = recorded
        self._signature = signature
        return Look("shown", "", heard)


def latest_have_told(paths: Iterable[str]) -> bool:
    """Whether each rank's latest attempt has written its findings; a restarted one may still run."""
    names = set(paths)
    latest: dict[str, int] = {}
    for match in filter(None, (_ATTEMPT.fullmatch(name) for name in names)):
        latest[match[1]] = max(int(match[2]), latest.get(match[1], 0))
    return all(f"findings-rank{rank}{'' if number == 1 else f'-{number}'}.json" in names for rank, number in latest.items())


def is_shown(path: str) -> bool:
    """Whether a page shows a file of a run, rather than just that there is a run."""
    return path.endswith(".parquet") or os.path.basename(path).startswith("findings-")
