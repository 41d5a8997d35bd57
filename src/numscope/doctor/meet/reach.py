"""From a rank to the hub: tried until it works, and if it never does, in which of the known ways it failed."""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.meeting import Meeting, is_loopback_name

Failure = Literal[
    "unresolved",  # the host's name means nothing here
    "loopback",  # it means this host, but the hub is on another
    "refused",
    "dropped",
    "unreachable",
    "silent",  # something takes connections there and says nothing
    "http",
    "foreign",
    "closed",  # something takes connections there and ends them
    "token",  # a doctor of another job
]

TRY_S = 3.0  # for one try, times the timeout scale: a dropped packet is sent again after 1 s
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Unreached:
    """Why the hub was not reached.

    Args:
        attempts: how often each failure was seen, by port and failure.
    """

    kind: Failure
    sentence: str
    endpoint: str
    origin: str
    addresses: tuple[str, ...] = ()
    seconds: float = 0.0
    attempts: dict[str, int] = field(default_factory=dict)


class _Failed(Exception):
    def __init__(self, kind: Failure, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Failure = kind


class Road:
    """The way to the hub.

    Args:
        elsewhere: the hub is known to be on another host than this one.
        scale: of timeouts.
        say: announces what is about to be done.
    """

    def __init__(self, meeting: Meeting, *, elsewhere: bool, scale: float, say: Callable[[str], None]) -> None:
        self._meeting = meeting
        self._elsewhere = elsewhere
        self._scale = scale
        self._say = say
        self.addresses: tuple[str, ...] = ()
        self.address: tuple[str, int] | None = None  # what worked
        self.attempts: Counter[str] = Counter()
        self.latest: dict[int, _Failed] = {}  # failure by port

    def open(self, deadline: Deadline) -> socket.socket | Unreached:
        """An authenticated connection, or why there is none when the deadline is over."""
        started = time.monotonic()
        while True:
            for port in self._meeting.ports:
                where = f"{self._meeting.host}:{port}"
                try:
                    self._say(f"connect to the hub at {where}")
                    return self._try(port, deadline.within(max(TRY_S * self._scale, 0.2)))
                except _Failed as failed:
                    self.attempts[f"{port} {failed.kind}"] += 1
                    # A try that the deadline cut short says "dropped" or "silent" of what was merely slow; and a port refuses before
                    # its process has started and after it has ended, which says less than what was seen in between.
                    cut_short = deadline.over and failed.kind in ("dropped", "silent")
                    if port not in self.latest or not (cut_short or failed.kind == "refused"):
                        self.latest[port] = failed
                    if failed.kind in ("unresolved", "unreachable"):
                        break  # another port will not do better
            if deadline.over:
                break
            time.sleep(min(_PAUSE_S * self._scale, deadline.left))
        # The first port counts: it is the one that is meant to be the hub's.
        last = self.latest.get(self._meeting.ports[0]) or _Failed("dropped", "there was no time to try")
        return Unreached(
            kind=last.kind,
            sentence=str(last),
            endpoint=self._meeting.name,
            origin=self._meeting.origin,
            addresses=self.addresses,
            seconds=time.monotonic() - started,
            attempts=dict(self.attempts),
        )

    def again(self, deadline: Deadline) -> socket.socket:
        """A second connection to where the first one went.

        Raises: WireError.
        """
        assert self.address is not None
        connection: socket.socket | None = None
        try:
            connection = socket.create_connection(self.address, timeout=max(deadline.left, 1e-3))
            wire.authenticate(connection, self._meeting.token, deadline)
        except OSError as error:
            raise wire.WireError("closed", f"no second connection to {self.address[0]}: {error.strerror or error}") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _try(self, port: int, deadline: Deadline) -> socket.socket:
        host = self._meeting.host
        self.addresses = tuple(dict.fromkeys(_resolve(host, port, deadline)))
        loopback = all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in self.addresses)
        failed: _Failed | None = None
        for address in self.addresses:
            try:
                connection = self._knock(address, port, deadline)
            except _Failed as error:
                failed = failed or error
                continue
            self.address = (address, port)
            return connection
        assert failed is not None
        if loopback and self._elsewhere and not is_loopback_name(host):
            raise _Failed("loopback", f"{host} is {', '.join(self.addresses)} here, this host itself, but the hub is on another host")
        if loopback and self._elsewhere:
            raise _Failed("loopback", f"{host} always means this host itself, but the hub is on another host")
        raise failed

    def _knock(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        where = f"{self._meeting.host}:{port}" + (f" ({address})" if address != self._meeting.host else "")
        try:
            connection = socket.create_connection((address, port), timeout=max(deadline.left, 1e-3))
        except ConnectionRefusedError:
            raise _Failed("refused", f"{where} refuses connections: nothing listens there") from None
        except TimeoutError:
            raise _Failed("dropped", f"{where} does not answer at all") from None
        except OSError as error:
            if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN):
                raise _Failed("unreachable", f"{where} can't be reached: {error.strerror}") from None
            raise _Failed("closed", f"{where}: {error.strerror or error}") from None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.authenticate(connection, self._meeting.token, deadline)
        except wire.WireError as error:
            connection.close()
            kinds: dict[str, Failure] = {"oversized": "foreign", "garbage": "foreign"}
            raise _Failed(kinds.get(error.kind, error.kind), f"{where} takes connections, but {error}") from None  # type: ignore[arg-type]
        return connection


def _resolve(host: str, port: int, deadline: Deadline) -> list[str]:
    """The host's addresses; a resolver can hang for a minute, so that it is asked in a thread of its own."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append([str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)])
        except (OSError, UnicodeError) as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(max(deadline.left, 1e-3))
    if not found:
        raise _Failed("unresolved", f"{host}: no answer from the name service within {deadline.seconds:.1f} s")
    if isinstance(found[0], Exception):
        raise _Failed("unresolved", f"{host} does not resolve here: {getattr(found[0], 'strerror', None) or found[0]}")
    return list(found[0])
