"""The hub's connections and the ranks at their other ends: accepted, authenticated, read and written by one thread with one event loop.

So neither a thousand ranks nor a port scanner's half-open connections cost a thread each. Connections that do not prove to hold the token
within seconds are closed. Only the hub's process imports this: asyncio takes 60 ms to import.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numscope.doctor.budget import SILENT_S
from numscope.doctor.meet.messages import ToHub
from numscope.doctor.meet.wire import HEAD_BYTES, RANK_LIMIT_BYTES, WireError, accept, check_marks, length_of, pack, unpack
from numscope.doctor.records import Identity, Phase

HANDSHAKE_S = 5.0
_CLOSE_S = 1.0  # to send what is queued
_MAX_UNAUTHENTICATED = 256  # beyond that the oldest is closed

How = Literal["here", "silent", "died", "left"]


@dataclass(slots=True)
class Member:
    """A rank that joined."""

    identity: Identity
    admitted: bool  # whether it takes part; the others (a second rank 1, for example) only wait for the verdict
    seen: str  # its address as the hub saw it
    pid: int = 0
    listen: Mapping[str, Any] = field(default_factory=dict)
    offset_s: float = 0.0
    round_trip_s: float = 0.0
    how: How = "here"  # here; silent: its heartbeat stopped; died: its connection ended; left: it announced that a signal ends it
    detail: str = ""
    phase: Phase = Phase.FACTS  # of the step it announced last
    doing: str = ""  # that step
    since: float = field(default_factory=time.monotonic)  # on the hub's monotonic clock
    last_beat: float = field(default_factory=time.monotonic)
    said_bye: bool = False

    @property
    def here(self) -> bool:
        return self.how == "here"

    def lose(self, how: How, detail: str) -> None:
        """Notes that the rank is gone; the first reason counts."""
        if self.here:
            self.how, self.detail = how, detail

    def beat(self, phase: Phase, doing: str, for_s: float) -> None:
        """Takes in a heartbeat: the rank has been at a step for ``for_s`` seconds."""
        self.last_beat = time.monotonic()
        self.phase, self.doing, self.since = phase, doing, self.last_beat - for_s

    def last_words(self) -> str:
        """The step it announced last, and for how long: ``connect to node3:4711, for 2.1 s``."""
        return f"{self.doing}, for {time.monotonic() - self.since:.1f} s" if self.doing else ""


class Guest:
    """One connection, between an address and our own one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address, self.own_address = (
            str((writer.get_extra_info(name) or [""])[0]).removeprefix("::ffff:") for name in ("peername", "sockname")
        )
        self.member: Member | None = None  # the rank that it belongs to, once that is known
        self.spoken = False  # it has sent anything
        self._reader = reader
        self._writer = writer

    def answer(self, message: Mapping[str, Any]) -> None:
        """Sends a message; in the server's thread only."""
        self.write(pack(message))

    def write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    async def read(self, size: int, marks: bytes = b"") -> bytes:
        """Exactly ``size`` bytes, which must begin with ``marks``. Raises: EOFError, OSError, WireError."""
        data = b""
        while len(data) < size:
            piece = await self._reader.read(size - len(data))
            if not piece:
                raise EOFError
            self.spoken = True
            data += piece
            check_marks(data, marks)
        return data

    async def receive(self) -> Any:
        """The next message. Raises: EOFError, OSError, WireError."""
        length, compressed = length_of(await self._reader.readexactly(HEAD_BYTES), RANK_LIMIT_BYTES)
        return unpack(await self._reader.readexactly(length), compressed, ToHub, RANK_LIMIT_BYTES)

    def close(self) -> None:
        """Closes the connection once everything is sent."""
        self._writer.close()

    async def sent(self) -> None:
        """Sends everything, and closes the connection."""
        self.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Server(ABC):
    """Runs until ``close``; all methods may be called from any thread. ``scale`` is a factor on time limits.

    The abstract ones say what becomes of connections and messages; the server's thread calls them while it holds ``changed``.
    """

    def __init__(self, listening: socket.socket, token: str, scale: float) -> None:
        self.changed = threading.Condition()  # notified after each event; protects everything that changes
        self.guests: list[Guest] = []  # authenticated connections
        self._token = token
        self._scale = scale
        self._strangers: list[Guest] = []  # in the handshake, the oldest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listening)), name="doctor-hub", daemon=True)
        self._thread.start()
        self._started.wait()

    def send_to(self, guests: Iterable[Guest], message: Mapping[str, Any]) -> None:
        """Sends a message to these connections, except those that are closed."""
        data, to = pack(message), list(guests)

        def write() -> None:
            for guest in to:
                guest.write(data)

        self._call(write)

    def wake_up(self) -> None:
        """Has waiting threads look for news. Takes no lock, so it is safe in a signal handler."""
        self._call(self._tell)

    def close(self) -> None:
        """Sends what is queued, for a second at most, and stops listening."""
        self._call(self._ended.set)
        self._thread.join(2 * _CLOSE_S)

    @abstractmethod
    def received(self, guest: Guest, message: dict[str, Any]) -> None:
        """An authenticated connection sent a message of a valid shape. Raises: WireError for one that does not fit."""

    @abstractmethod
    def closed(self, guest: Guest, detail: str) -> None:
        """An authenticated connection ended."""

    @abstractmethod
    def rejected(self, guest: Guest, kind: str, reason: str) -> None:
        """The server closes a connection: it does not hold the token, or its messages are not ours."""

    @abstractmethod
    def tick(self, now: float, paused_s: float) -> None:
        """Some time has passed; ``paused_s`` is how long this process itself was stopped or starved."""

    def _call(self, function: Callable[[], object]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(function)

    def _tell(self, tell: Callable[..., None] = lambda: None, *what: Any) -> None:
        """Calls one of the abstract methods."""
        with self.changed:
            tell(*what)
            self.changed.notify_all()

    async def _serve(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._attend, sock=listening, backlog=1024)
        self._started.set()
        tick_s = 0.2 * min(1.0, self._scale)
        last = time.monotonic()
        while not self._ended.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), tick_s)
            now = time.monotonic()
            paused_s = now - last - tick_s  # a pause of this process must not count as the ranks' silence
            last = now
            self._tell(self.tick, now, paused_s if paused_s > SILENT_S * self._scale / 4 else 0.0)
        server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*map(Guest.sent, self.guests)), _CLOSE_S)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until it ends."""
        guest = Guest(reader, writer)
        try:
            await self._admit(guest)
            while True:
                self._tell(self.received, guest, await guest.receive())
        except WireError as error:
            if guest in self.guests and guest.member is None:  # perhaps another version of the doctor
                guest.answer({"kind": "refused", "why": error.kind, "reason": str(error), "stay": False})
            self._tell(self.rejected, guest, error.kind, str(error))
        except (EOFError, OSError) as error:
            detail = "its connection was closed" if isinstance(error, EOFError) else f"its connection broke: {error.strerror or error}"
            if guest in self.guests:
                self._tell(self.closed, guest, detail)
            elif guest.spoken and guest in self._strangers:
                self._tell(self.rejected, guest, "closed", f"{detail} during the handshake")
        except asyncio.CancelledError:
            pass  # the server ends; asyncio would print the traceback
        except Exception as error:  # a bug of the doctor, which ends this connection and nothing else
            self._tell(self.rejected, guest, "garbage", f"its message could not be used: {type(error).__name__}: {error}")
        finally:
            for kind in (self._strangers, self.guests):
                if guest in kind:
                    kind.remove(guest)
            guest.close()

    async def _admit(self, guest: Guest) -> None:
        """Has a connection prove that it holds the token. Raises: WireError."""
        if len(self._strangers) >= _MAX_UNAUTHENTICATED:
            oldest = self._strangers.pop(0)
            self._tell(self.rejected, oldest, "silent", "too many connections without a handshake")
            oldest.close()
        self._strangers.append(guest)
        try:
            await asyncio.wait_for(accept(guest.read, guest.write, self._token), HANDSHAKE_S * self._scale)
        except asyncio.TimeoutError:
            raise WireError("silent", f"no handshake within {HANDSHAKE_S * self._scale:.1f} s") from None
        self._strangers.remove(guest)
        self.guests.append(guest)
