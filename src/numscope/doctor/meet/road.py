"""The way from a rank to the hub: tried until it works; if it never does, the reason is classified."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.meeting_point import MeetingPoint, is_loopback_name
from numscope.doctor.meet.sockets import connect, failure_of, is_loopback, resolve
from numscope.doctor.records import Settings

TRY_S = 3.0  # for one attempt, times the timeout scale: a dropped packet is sent again after 1 s
_PAUSE_S = 0.25


class Unreached(wire.WireError):
    """The hub was not reached; ``about`` holds the reason, as in ``Examined.hub``."""

    def __init__(self, kind: wire.Kind, sentence: str, **about: Any) -> None:
        super().__init__(kind, sentence)
        self.about = {"reached": False, "kind": kind, "sentence": sentence, **about}


@dataclass(eq=False)
class Road:
    """The way to the hub."""

    meeting: MeetingPoint
    _: KW_ONLY
    elsewhere: bool  # the hub is known to be on another host
    scale: float  # factor on time limits
    announce: Callable[[str], None] = lambda what: None  # called with each step before it is taken
    addresses: tuple[str, ...] = ()
    address: tuple[str, int] | None = None  # the one that worked
    attempts: Counter[str] = field(default_factory=Counter)  # how often each failure occurred, by port and failure

    def open(self, deadline: Deadline) -> socket.socket:
        """An authenticated connection. Raises: Unreached at the deadline."""
        started = time.monotonic()
        latest: dict[int, wire.WireError] = {}  # failure by port
        while True:
            for port in self.meeting.ports:
                try:
                    self.announce(f"connect to the hub at {self.meeting.host}:{port}")
                    return self._try(port, deadline.within(max(TRY_S * self.scale, 0.2)))
                except wire.WireError as failed:
                    self.attempts[f"{port} {failed.kind}"] += 1
                    # An attempt cut short by the deadline reports one of these for what was only slow. And a port refuses before
                    # its process starts and after it ends, which means less than what was seen in between.
                    cut_short = deadline.over and failed.kind in ("dropped", "silent", "unresolved")
                    if port not in latest or not (cut_short or failed.kind == "refused"):
                        latest[port] = failed
                    if failed.kind in ("unresolved", "unreachable"):
                        break  # another port will fail the same way
            if deadline.over:
                break
            time.sleep(min(_PAUSE_S * self.scale, deadline.left))
        # The first port counts: that is where the hub is meant to be.
        last = latest.get(self.meeting.ports[0]) or wire.WireError("dropped", "there was no time to try")
        seconds, attempts = time.monotonic() - started, dict(self.attempts)
        where = {"endpoint": self.meeting.name, "origin": self.meeting.origin, "addresses": list(self.addresses)}
        raise Unreached(last.kind, str(last), **where, seconds=seconds, attempts=attempts)

    def _try(self, port: int, deadline: Deadline) -> socket.socket:
        host = self.meeting.host
        try:
            self.addresses = tuple(resolve(host, deadline))
        except OSError as error:
            raise wire.WireError("unresolved", f"{host} does not resolve here: {error}") from None
        failed: wire.WireError | None = None
        for address in self.addresses:
            try:
                connection = self._connect(address, port, deadline)
            except wire.WireError as error:
                failed = failed or error
                continue
            self.address = (address, port)
            return connection
        assert failed is not None
        if self.elsewhere and all(map(is_loopback, self.addresses)):
            means = f"{host} always means" if is_loopback_name(host) else f"{host} is {', '.join(self.addresses)} here, that is,"
            raise wire.WireError("loopback", f"{means} this host itself, but the hub is on another host")
        raise failed

    def _connect(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        where = f"{self.meeting.host}:{port}" + (f" ({address})" if address != self.meeting.host else "")
        try:
            connection = connect(address, port, deadline.left)
        except OSError as error:
            failure, sentence = failure_of(error, deadline.seconds)
            kind: wire.Kind = "closed" if failure == "reset" or failure == "failed" else failure
            raise wire.WireError(kind, f"{where}: {sentence}") from None
        try:
            wire.authenticate(connection, self.meeting.token, deadline)
        except wire.WireError as error:
            connection.close()
            kind = "foreign" if error.kind in ("oversized", "garbage") else error.kind
            raise wire.WireError(kind, f"{where} accepts connections, but {error}") from None
        return connection


def look(meeting: MeetingPoint, settings: Settings, seconds: float) -> Unreached | None:
    """Looks whether this job's hub is at a place on this host, for some seconds (scaled); returns why it is not, or None."""
    deadline = Deadline(seconds * max(settings.timeout_scale, 0.25))
    try:
        Road(meeting, elsewhere=False, scale=settings.timeout_scale).open(deadline).close()
    except Unreached as why:
        return why
    return None
