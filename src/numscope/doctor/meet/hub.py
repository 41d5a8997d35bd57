"""The hub: where the ranks meet, what each is about to do, and who went silent.

One thread and one selector serve all connections, so that neither a thousand ranks nor a port scanner's half-open connections cost a
thread each. Whoever holds no token is shown out within seconds and noted; whoever does sends one of

    join   who it is; answered by ``welcome`` (with the key for its heartbeat) or ``refused`` (it then looks on until the verdict)
    time   a clock exchange: answered with the hub's wall clock
    beat   on a connection of its own: what the rank is about to do; answered likewise, so that the rank sees the hub live
    seat   a node's launcher asks for its node's number
    result a phase's result         leave  a signal ends the rank       bye  it has printed its line

*Cost:* a rank's heartbeat is 100 bytes a second each way.
"""

from __future__ import annotations

import contextlib
import resource
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.meeting import Meeting, is_loopback_name
from numscope.doctor.meet.member import How, Member, seats
from numscope.doctor.meet.seating import Seating
from numscope.doctor.meet.wire import RANK_LIMIT_BYTES, Door, Frames, WireError, pack
from numscope.doctor.records import Identity, PhaseResult, Settings, from_json, to_json

SILENT_S = 5.0  # without a heartbeat, times the timeout scale
BEAT_S = 1.0
GREETING_S = 5.0  # for the handshake
_MAX_STRANGERS = 256  # connections that have not shown the token yet; the oldest goes first
_MAX_REFUSED = 100  # of which the reason is kept


class HubTaken(Exception):
    """None of the hub's ports is free.

    Args:
        ports: those tried.
    """

    def __init__(self, ports: tuple[int, ...], reason: str) -> None:
        super().__init__(f"port {', '.join(map(str, ports))}: {reason}")
        self.ports = ports
        self.reason = reason


class _Guest:
    """One connection."""

    def __init__(self, connection: socket.socket, address: str, token: str) -> None:
        self.connection = connection
        self.address = address
        self.door: Door | None = Door(token)
        self.frames = Frames(RANK_LIMIT_BYTES)
        self.out: deque[memoryview] = deque()
        self.opened = time.monotonic()
        self.member: Member | None = None
        self.beats = False
        self.closing = False


class Hub:
    """Listens until ``close``; all methods may be called from any thread.

    Args:
        meeting: whose ports are tried, and the token.
        world_size: ranks that are expected.
        seating: numbers of nodes, where launchers ask for them.

    Raises: HubTaken.
    """

    def __init__(self, meeting: Meeting, settings: Settings, world_size: int, seating: Seating | None = None) -> None:
        self.world_size = world_size
        self.members: dict[int, Member] = {}
        self.onlookers: list[Member] = []
        self.results: dict[tuple[int, int], PhaseResult] = {}  # by phase and rank
        self.refused: list[dict[str, Any]] = []
        self.num_refused = 0
        self.num_turned_away = 0  # ranks of nodes that got no number
        self.started = time.monotonic()
        self.changed = threading.Condition()
        self.hurry = ""  # why all that is left is to be left out: a signal's name
        self._settings = settings
        self._token = meeting.token
        self._seating = seating
        self._reached_at = ""  # the address by which ranks of other hosts reach this one
        self._guests: dict[int, _Guest] = {}  # by file descriptor
        self._strangers: dict[int, _Guest] = {}  # those of them that have not shown the token yet, the oldest first
        self._controls: dict[int, _Guest] = {}  # the ranks' control connections
        self._unsent: set[_Guest] = set()
        self._ended = False
        self._selector = selectors.DefaultSelector()
        _allow_connections(2 * world_size + _MAX_STRANGERS)
        self._listener = _listen(meeting)
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        for quiet in (self._listener, self._woken, self._wake):
            quiet.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="doctor-hub", daemon=True)
        self._thread.start()

    def wait(self, done: Callable[[], bool], deadline: Deadline) -> bool:
        """Waits until ``done`` (asked whenever something changed) or the deadline or a hurry; whether it was done."""
        with self.changed:
            while not done():
                if deadline.over or self.hurry:
                    return False
                self.changed.wait(min(deadline.left, 0.5))
            return True

    def hurry_up(self, why: str) -> None:
        """Ends all waiting: what has not come is left out. Safe in a signal handler's thread: it takes no lock."""
        self.hurry = why
        self._wake_up()

    def send(self, message: Mapping[str, Any], ranks: tuple[int, ...] | None = None, onlookers: bool = False) -> None:
        """Sends to these ranks, or to all that are here."""
        data = memoryview(pack(message))
        with self.changed:
            if ranks is None or onlookers:
                guests = [guest for guest in self._guests.values() if guest.member is not None and not guest.beats]
            else:
                guests = [self._controls[rank] for rank in ranks if rank in self._controls]
            for guest in guests:
                if guest.member is not None and (guest.member.admitted or onlookers) and not guest.closing:
                    guest.out.append(data)
                    self._unsent.add(guest)
        self._wake_up()

    def roster(self) -> dict[int, dict[str, Any]]:
        """The ranks that came, as ``Context.roster`` says."""
        with self.changed:
            roster = {}
            for rank, identity in seats(self.members).items():
                member = self.members[rank]
                local = member.seen.startswith("127.") or member.seen == "::1"
                address = (self._reached_at or member.seen) if local else member.seen
                listen = {**member.listen, "address": member.listen.get("address") or address}
                roster[rank] = {
                    "identity": to_json(identity),
                    "address": address,
                    "seen": member.seen,
                    "listen": listen,
                    "offset_s": member.offset_s,
                    "round_trip_s": member.round_trip_s,
                    "pid": member.pid,
                }
            return roster

    def is_here(self, rank: int) -> bool:
        """Whether a rank that came is still there; one that never came is not."""
        member = self.members.get(rank)
        return member is not None and member.here

    def close(self) -> None:
        """Sends what is left to be sent, for a second at most, and stops listening."""
        deadline = Deadline(1.0)
        while not deadline.over:
            with self.changed:
                if not any(guest.out for guest in self._guests.values()):
                    break
            time.sleep(0.005)
        self._ended = True
        self._wake_up()
        self._thread.join(2.0)

    # ---- the hub's own thread -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        tick = 0.2 * min(1.0, self._settings.timeout_scale)
        last = looked = time.monotonic()
        while not self._ended:
            with self.changed:
                for guest in list(self._unsent):
                    if guest.connection.fileno() >= 0:
                        self._selector.modify(guest.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, guest)
                    self._unsent.discard(guest)
            ready = self._selector.select(tick)
            with self.changed:
                now = time.monotonic()
                for key, events in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._woken:
                        with contextlib.suppress(OSError):
                            self._woken.recv(4096)
                    elif isinstance(key.data, _Guest) and key.data.connection.fileno() >= 0:
                        self._attend(key.data, events)
                # A pause of this process itself (stopped, starved) is nobody else's silence.
                paused = now - last - tick
                paused = paused if paused > SILENT_S * self._settings.timeout_scale / 4 else 0.0
                if paused or now - looked > tick:
                    self._look_after(now, paused)
                    looked = now
                last = now
                self.changed.notify_all()
        for guest in list(self._guests.values()):
            guest.connection.close()
        for left in (self._listener, self._wake, self._woken):
            left.close()
        self._selector.close()

    def _accept(self) -> None:
        for _ in range(64):
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._strangers) >= _MAX_STRANGERS:
                self._drop(next(iter(self._strangers.values())), "silent", "more connections than the hub keeps waiting")
            guest = _Guest(connection, str(peer[0]).removeprefix("::ffff:"), self._token)
            self._guests[connection.fileno()] = self._strangers[connection.fileno()] = guest
            self._selector.register(connection, selectors.EVENT_READ, guest)

    def _attend(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(guest)
                if guest.connection.fileno() < 0:
                    return
                if not guest.out:
                    self._selector.modify(guest.connection, selectors.EVENT_READ, guest)
            if events & selectors.EVENT_READ:
                data = guest.connection.recv(1 << 18)
                if not data:
                    self._gone(guest, "its connection was closed")
                    return
                self._hear(guest, data)
                self._flush(guest)  # most answers go at once
                if guest.out:
                    self._unsent.add(guest)
        except BlockingIOError:
            return
        except WireError as error:
            self._drop(guest, error.kind, str(error))
        except OSError as error:
            self._gone(guest, f"its connection broke: {error.strerror or error}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # JSON, but none of our messages
            self._drop(guest, "garbage", f"no message of ours: {type(error).__name__}: {error}")

    def _flush(self, guest: _Guest) -> None:
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

    def _hear(self, guest: _Guest, data: bytes) -> None:
        if guest.closing:
            return
        if guest.door is not None:
            answer = guest.door.feed(data)
            if answer:
                guest.out.append(memoryview(answer))
            if guest.door.refused:
                self._note(guest, "token", guest.door.refused)
                guest.closing = True
            if not guest.door.open:
                return
            data, guest.door = guest.door.rest, None
            self._strangers.pop(guest.connection.fileno(), None)
        for message in guest.frames.feed(data):
            self._take(guest, message)

    def _take(self, guest: _Guest, message: dict[str, Any]) -> None:
        kind = message["kind"]
        member = guest.member
        if kind == "time":
            self._answer(guest, {"kind": "time", "t": message["t"], "hub": time.time()})
        elif kind == "beat":
            if member is None:
                member = next(m for m in (*self.members.values(), *self.onlookers) if secrets.compare_digest(m.key, message["key"]))
                guest.member, guest.beats = member, True
            member.last_beat = time.monotonic()
            member.says(int(message["phase"]), str(message["doing"])[:300], float(message["for_s"]))
            self._answer(guest, {"kind": "time", "t": message["t"], "hub": time.time()})
        elif kind == "seat" and self._seating is not None:
            seat = self._seating.take(message, guest.address)
            if seat["kind"] == "refused":
                self._note(guest, seat["why"], seat["reason"], rank=-1, hostname=str(message["hostname"]))
                self.num_turned_away += int(message["nproc"])
            self._answer(guest, seat)
        elif kind == "join" and member is None:
            self._join(guest, message)
        elif member is None or guest.beats:
            raise WireError("garbage", f"{kind!r} before joining")
        elif kind == "result":
            result = from_json(PhaseResult, message["result"])
            if result.rank == member.identity.rank and member.admitted:
                self.results.setdefault((result.phase, result.rank), result)
        elif kind == "leave":
            member.how, member.detail = "left", f"it was ended by {message['signal']}"
        elif kind == "bye":
            member.said_bye = True
        else:
            raise WireError("garbage", f"a message of unknown kind {kind!r}")

    def _join(self, guest: _Guest, message: dict[str, Any]) -> None:
        identity = from_json(Identity, message["identity"])
        rank, holder = identity.rank, self.members.get(identity.rank)
        who = f"{identity.hostname} (process {message['pid']})"
        why = reason = ""
        if identity.world_size != self.world_size:
            why, reason = "world_size", f"rank {rank} on {who} says world size {identity.world_size}, rank 0's is {self.world_size}"
        elif not 0 <= rank < self.world_size:
            why, reason = "rank", f"{who} says rank {rank}, expected one of 0 to {self.world_size - 1}"
        elif holder is not None:
            why = "duplicate"
            reason = f"rank {rank} is said by {who} and by {holder.identity.hostname} (process {holder.pid})"
        guest.member = Member(
            identity=identity,
            key=secrets.token_hex(16),
            admitted=not why,
            seen=guest.address,
            pid=int(message["pid"]),
            listen=dict(message["listen"]),
            offset_s=float(message["offset_s"]),
            round_trip_s=float(message["round_trip_s"]),
        )
        if why:
            self.onlookers.append(guest.member)
            self._note(guest, why, reason, rank=rank, hostname=identity.hostname, pid=int(message["pid"]), world_size=identity.world_size)
        else:
            self.members[rank], self._controls[rank] = guest.member, guest
            if not guest.address.startswith("127.") and guest.address != "::1":
                self._reached_at = str(guest.connection.getsockname()[0]).removeprefix("::ffff:")
        self._answer(guest, {"kind": "refused" if why else "welcome", "why": why, "reason": reason, "key": guest.member.key})

    def _answer(self, guest: _Guest, message: Mapping[str, Any]) -> None:
        guest.out.append(memoryview(pack(message)))

    def _look_after(self, now: float, paused: float) -> None:
        """Shows out who did not finish the handshake, and notes who has not beaten."""
        scale = self._settings.timeout_scale
        for guest in list(self._guests.values()):
            if (guest.door is not None or guest.closing) and now - guest.opened > GREETING_S * scale + paused:
                self._drop(guest, "silent", f"no handshake within {GREETING_S * scale:.1f} s")
        for member in (*self.members.values(), *self.onlookers):
            member.last_beat += paused
            if member.here and now - member.last_beat > SILENT_S * scale:
                self._lose(member, "silent", f"no heartbeat for {SILENT_S * scale:.1f} s")

    def _gone(self, guest: _Guest, detail: str) -> None:
        if guest.member is not None and not guest.member.said_bye:
            self._lose(guest.member, "died", detail)
        elif guest.door is not None and guest.door.spoken:
            self._note(guest, "closed", f"{detail} in the middle of the handshake")
        self._forget(guest)

    def _lose(self, member: Member, how: How, detail: str) -> None:
        if member.here:
            member.how, member.detail = how, detail

    def _drop(self, guest: _Guest, kind: str, reason: str) -> None:
        if guest.member is not None:
            self._lose(guest.member, "died", f"it was shown out: {reason}")
        elif not guest.closing:
            self._note(guest, kind, reason)
        self._forget(guest)

    def _note(self, guest: _Guest, kind: str, reason: str, **more: Any) -> None:
        self.num_refused += 1
        if len(self.refused) < _MAX_REFUSED:
            self.refused.append({"address": guest.address, "kind": kind, "reason": reason, **more})

    def _forget(self, guest: _Guest) -> None:
        self._guests.pop(guest.connection.fileno(), None)
        self._strangers.pop(guest.connection.fileno(), None)
        self._unsent.discard(guest)
        if guest.member is not None and self._controls.get(guest.member.identity.rank) is guest:
            del self._controls[guest.member.identity.rank]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.connection)
        guest.connection.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b".")


def _allow_connections(count: int) -> None:
    """Raises this process's limit of open files as far as it may be raised: many a system begins with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listen(meeting: Meeting) -> socket.socket:
    """The first of the ports that is free; on loopback alone where the endpoint says so."""
    reason = ""
    for port in meeting.ports:
        try:
            if is_loopback_name(meeting.host):
                family = socket.AF_INET6 if ":" in meeting.host else socket.AF_INET
                host = meeting.host if meeting.host[0].isdigit() or family is socket.AF_INET6 else "127.0.0.1"
                return socket.create_server((host, port), family=family, backlog=1024)
            try:
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
            except (OSError, ValueError) as error:  # a kernel without IPv6
                if isinstance(error, OSError) and error.errno == 98:
                    raise
                return socket.create_server(("", port), backlog=1024)
        except OSError as error:
            reason = error.strerror or str(error)
    raise HubTaken(meeting.ports, reason)
