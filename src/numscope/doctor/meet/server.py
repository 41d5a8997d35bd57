"""The hub's connections: accepted, authenticated, read and written by one thread with one selector.

So neither a thousand ranks nor a port scanner's half-open connections cost a thread each. Connections that do not prove to hold the token
within seconds are closed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Protocol

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.member import Member
from numscope.doctor.meet.wire import RANK_LIMIT_BYTES, Door, Frames, WireError, pack

HANDSHAKE_S = 5.0
SILENT_S = 5.0  # without a heartbeat a rank counts as silent; times the timeout scale
_MAX_UNAUTHENTICATED = 256  # beyond that the oldest is closed


class Guest:
    """One connection.

    Attributes:
        member: the rank that it belongs to, once that is known.
        beats: it is a rank's heartbeat connection.
    """

    def __init__(self, connection: socket.socket, address: str, token: str) -> None:
        self.connection = connection
        self.address = address
        self.door: Door | None = Door(token)  # until it is authenticated
        self.frames = Frames(RANK_LIMIT_BYTES)
        self.out: deque[memoryview] = deque()
        self.opened = time.monotonic()
        self.member: Member | None = None
        self.beats = False
        self.closing = False

    def answer(self, message: Mapping[str, Any]) -> None:
        """Queues a message; in the server's thread only, which sends it next."""
        self.out.append(memoryview(pack(message)))


class Handler(Protocol):
    """What becomes of connections and messages. All calls come from the server's thread, which holds ``changed``."""

    def received(self, guest: Guest, message: dict[str, Any]) -> None:
        """An authenticated connection sent a message. Raises: WireError, KeyError, TypeError, ValueError for an unknown one."""

    def closed(self, guest: Guest, detail: str) -> None:
        """An authenticated connection ended."""

    def rejected(self, guest: Guest, kind: str, reason: str) -> None:
        """The server closes a connection: it does not hold the token, or its messages are not ours."""

    def tick(self, now: float, paused_s: float) -> None:
        """Some time has passed; ``paused_s`` is how long this process itself was stopped or starved."""


class Server:
    """Runs until ``close``; all methods may be called from any thread.

    Args:
        scale: factor on time limits.

    Attributes:
        changed: notified after each round of events; protects everything that the handler changes.
    """

    def __init__(self, listening: socket.socket, token: str, scale: float, handler: Handler) -> None:
        self.changed = threading.Condition()
        self._listening = listening
        self._token = token
        self._scale = scale
        self._handler = handler
        self._guests: dict[int, Guest] = {}  # by file descriptor
        self._unauthenticated: dict[int, Guest] = {}  # those among them, the oldest first
        self._unsent: set[Guest] = set()
        self._ended = False
        self._selector = DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for quiet in (listening, self._woken, self._wake):
            quiet.setblocking(False)
        self._selector.register(listening, EVENT_READ, None)
        self._selector.register(self._woken, EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="doctor-hub", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def guests(self) -> list[Guest]:
        return list(self._guests.values())

    def send(self, message: Mapping[str, Any], guests: Iterable[Guest]) -> None:
        """Queues a message for these connections, except those that are closed."""
        data = memoryview(pack(message))
        with self.changed:
            for guest in guests:
                if not guest.closing and guest.connection.fileno() >= 0:
                    guest.out.append(data)
                    self._unsent.add(guest)
        self.wake_up()

    def wake_up(self) -> None:
        """Has the thread look for news. Takes no lock, so it is safe in a signal handler."""
        with contextlib.suppress(OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b".")

    def close(self) -> None:
        """Sends what is queued, for a second at most, and stops listening."""
        deadline = Deadline(1.0)
        while not deadline.over:
            with self.changed:
                if not any(guest.out for guest in self._guests.values()):
                    break
            time.sleep(0.005)
        self._ended = True
        self.wake_up()
        self._thread.join(2.0)

    def _serve(self) -> None:
        tick_s = 0.2 * min(1.0, self._scale)
        last = looked = time.monotonic()
        while not self._ended:
            with self.changed:
                for guest in self._unsent:
                    if guest.connection.fileno() >= 0:
                        self._selector.modify(guest.connection, EVENT_READ | EVENT_WRITE, guest)
                self._unsent.clear()
            ready = self._selector.select(tick_s)
            with self.changed:
                now = time.monotonic()
                for key, events in ready:
                    if key.fileobj is self._listening:
                        self._accept()
                    elif key.fileobj is self._woken:
                        with contextlib.suppress(OSError):
                            self._woken.recv(4096)
                    elif key.data.connection.fileno() >= 0:
                        self._attend(key.data, events)
                paused_s = now - last - tick_s  # a pause of this process must not count as the ranks' silence
                paused_s = paused_s if paused_s > SILENT_S * self._scale / 4 else 0.0
                if paused_s or now - looked > tick_s:
                    for guest in self.guests:
                        if (guest.door is not None or guest.closing) and now - guest.opened > HANDSHAKE_S * self._scale + paused_s:
                            self._reject(guest, "silent", f"no handshake within {HANDSHAKE_S * self._scale:.1f} s")
                    self._handler.tick(now, paused_s)
                    looked = now
                last = now
                self.changed.notify_all()
        for each in (*(guest.connection for guest in self.guests), self._listening, self._wake, self._woken):
            each.close()
        self._selector.close()

    def _accept(self) -> None:
        for _ in range(64):
            try:
                connection, peer = self._listening.accept()
            except OSError:
                return
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
                self._reject(next(iter(self._unauthenticated.values())), "silent", "too many connections without a handshake")
            guest = Guest(connection, str(peer[0]).removeprefix("::ffff:"), self._token)
            self._guests[connection.fileno()] = self._unauthenticated[connection.fileno()] = guest
            self._selector.register(connection, EVENT_READ, guest)

    def _attend(self, guest: Guest, events: int) -> None:
        try:
            if events & EVENT_WRITE:
                self._flush(guest)
                if guest.connection.fileno() < 0:
                    return
                if not guest.out:
                    self._selector.modify(guest.connection, EVENT_READ, guest)
            if events & EVENT_READ:
                data = guest.connection.recv(1 << 18)
                if not data:
                    self._lose(guest, "its connection was closed")
                    return
                self._read(guest, data)
                self._flush(guest)  # most answers fit at once
                if guest.out:
                    self._unsent.add(guest)
        except BlockingIOError:
            return
        except WireError as error:
            self._reject(guest, error.kind, str(error))
        except OSError as error:
            self._lose(guest, f"its connection broke: {error.strerror or error}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # JSON, but not one of our messages
            self._reject(guest, "garbage", f"not a message of the doctor: {type(error).__name__}: {error}")

    def _flush(self, guest: Guest) -> None:
        while guest.out:
            try:
                sent = guest.connection.send(guest.out[0])
            except BlockingIOError:
                return
            if sent == len(guest.out[0]):
                guest.out.popleft()
            else:
                guest.out[0] = guest.out[0][sent:]
        if guest.closing:
            self._forget(guest)

    def _read(self, guest: Guest, data: bytes) -> None:
        if guest.closing:
            return
        if guest.door is not None:
            answer = guest.door.feed(data)
            if answer:
                guest.out.append(memoryview(answer))
            if guest.door.refused:
                self._handler.rejected(guest, "token", guest.door.refused)
                guest.closing = True
            if not guest.door.open:
                return
            data, guest.door = guest.door.rest, None
            self._unauthenticated.pop(guest.connection.fileno(), None)
        for message in guest.frames.feed(data):
            self._handler.received(guest, message)

    def _lose(self, guest: Guest, detail: str) -> None:
        if guest.door is None:
            self._handler.closed(guest, detail)
        elif guest.door.spoken:
            self._handler.rejected(guest, "closed", f"{detail} during the handshake")
        self._forget(guest)

    def _reject(self, guest: Guest, kind: str, reason: str) -> None:
        if not guest.closing:
            self._handler.rejected(guest, kind, reason)
        self._forget(guest)

    def _forget(self, guest: Guest) -> None:
        self._guests.pop(guest.connection.fileno(), None)
        self._unauthenticated.pop(guest.connection.fileno(), None)
        self._unsent.discard(guest)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.connection)
        guest.connection.close()
