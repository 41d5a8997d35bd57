"""The hub: where the ranks meet, what each is about to do, and which of them went silent.

An authenticated connection sends one of

    join    who it is; answered with ``welcome`` or ``refused`` (it then only waits for the verdict)
    beat    what the rank is about to do; answered with ``alive``, which shows the rank that the hub is alive
    node    a node's launcher asks for its node's number; answered with ``place`` or ``refused``
    result  a phase's result         leave   a signal ends the rank         bye     the rank has printed its line

One thread with one event loop serves all connections and conducts the examination (``course.py``), so neither a thousand ranks nor a port
scanner's half-open connections cost a thread each, and nothing needs a lock. Connections that do not prove to hold the token within seconds
are closed.

A message costs the same however many ranks there are.
*Cost:* a rank's heartbeat is 100 bytes a second each way, less often above 4,000 ranks.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import to_jsonable_python

from numscope.doctor.budget import Deadline, silent_s
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.members import Guest, Member, NodeNumbers, refusal
from numscope.doctor.meet.messages import Join
from numscope.doctor.meet.sockets import is_loopback, listen
from numscope.doctor.meet.wire import WireError, accept, pack
from numscope.doctor.records import ExamPhase, Identity, PhaseResult, Settings, to_json

HANDSHAKE_S = 5.0
_CLOSE_S = 1.0  # to send what is queued
_MAX_UNAUTHENTICATED = 256  # more than ranks that may still come; beyond that the oldest is closed
_LOOK_S = 0.005  # between two looks whether all ranks are done
_MAX_REFUSED = 100  # the reasons of more are not kept
_SPARE_FILES = 1024  # besides the ranks' connections


class HubTaken(Exception):
    """None of the ports that the hub tried is free; the text is why the last one is not."""


class Hub:
    """The meeting point of ``world_size`` ranks. Runs in its own thread until ``close``. Raises: HubTaken.

    Other threads, and handlers of signals, may look at everything, set ``hurry``, and call ``close``.
    """

    def __init__(self, meeting: MeetingPoint, settings: Settings, world_size: int, numbers: NodeNumbers | None = None) -> None:
        self.world_size = world_size
        self.members: dict[int, Member] = {}  # admitted ranks
        self.onlookers: list[Member] = []  # ranks that were not admitted
        self.results: dict[tuple[ExamPhase, int], PhaseResult] = {}  # by phase and rank; of each the first counts
        self.refused: list[dict[str, Any]] = []  # rejected connections and ranks, with reasons
        self.num_turned_away = 0  # ranks of nodes that got no number
        self.started = time.monotonic()
        self.hurry = ""  # ends all waiting: why everything that is left is skipped, a signal's name
        self._numbers = numbers
        self._token = meeting.token
        self._scale = settings.timeout_scale
        self._silent_s = silent_s(world_size) * settings.timeout_scale
        self._own_address = ""  # ranks of other hosts reach this one there
        self._guests: dict[Guest, None] = {}  # authenticated connections
        self._strangers: dict[Guest, None] = {}  # in the handshake, the oldest first
        _allow_files(world_size + _SPARE_FILES)
        listening = _listen(meeting)
        self.port: int = listening.getsockname()[1]
        started = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listening, started)), name="doctor-hub", daemon=True)
        self._thread.start()
        started.wait()

    async def wait(self, done: Callable[[], bool], deadline: Deadline) -> bool:
        """Waits until ``done()``, which must be cheap, the deadline, or a hurry; returns whether it was done."""
        while not done():
            if deadline.over or self.hurry:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def send(self, message: Mapping[str, Any], members: Iterable[Member]) -> None:
        """Sends to these, if they are connected."""
        data = pack(message)
        for member in members:
            member.guest.write(data)

    def everybody(self) -> list[Member]:
        """All ranks and onlookers."""
        return [*self.members.values(), *self.onlookers]

    def roster(self) -> dict[int, dict[str, Any]]:
        """The ranks that joined, as in the report; ``seen`` is an address as this host saw it."""
        roster = {}
        for rank, identity in identities(self.members).items():
            seen, introduced = self.members[rank].guest.address, self.members[rank].introduced
            address = (self._own_address or seen) if is_loopback(seen) else seen
            roster[rank] = {
                "identity": to_json(identity),
                "address": address,
                "seen": seen,
                "listen": {**introduced["listen"], "address": introduced["listen"]["address"] or address},
                "offset_s": self.members[rank].offset_s,
                "pid": introduced["pid"],
            }
        return roster

    def is_here(self, rank: int) -> bool:
        """Whether a rank joined and is still there."""
        member = self.members.get(rank)
        return member is not None and member.here

    def close(self) -> None:
        """Lets the ranks end: sends what is queued, for a second at most, and stops listening."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(2 * _CLOSE_S)

    async def _serve(self, listening: socket.socket, started: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._attend, sock=listening, backlog=1024)
        started.set()
        tick_s = 0.2 * min(1.0, self._scale)
        last = time.monotonic()
        while not self._ended.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), tick_s)
            now = time.monotonic()
            paused_s = now - last - tick_s  # a pause of this process must not count as the ranks' silence
            last = now
            self._tick(now, paused_s if paused_s > self._silent_s / 4 else 0.0)
        self.send({"kind": "end"}, self.everybody())
        server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*map(Guest.sent, self._guests)), _CLOSE_S)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until it ends."""
        guest = Guest(reader, writer)
        try:
            await self._admit(guest)
            while True:
                self._receive(guest, await guest.receive())
        except WireError as error:
            if guest in self._guests and guest.member is None:  # perhaps another version of the doctor
                guest.answer(refusal(error.kind, str(error)))
            self._reject(guest, error.kind, str(error))
        except (EOFError, OSError) as error:
            detail = "its connection was closed" if isinstance(error, EOFError) else f"its connection broke: {error.strerror or error}"
            if guest.member is not None and not guest.member.said_bye:
                guest.member.lose("died", detail)
            elif guest.has_sent and guest in self._strangers:
                self._reject(guest, "closed", f"{detail} during the handshake")
        except asyncio.CancelledError:
            pass  # the hub ends; asyncio would print the traceback
        except Exception as error:  # a bug of the doctor, which ends this connection and nothing else
            self._reject(guest, "garbage", f"its message could not be used: {type(error).__name__}: {error}")
        finally:
            for kind in (self._strangers, self._guests):
                kind.pop(guest, None)
            guest.close()

    async def _admit(self, guest: Guest) -> None:
        """Has a connection prove that it holds the token. Raises: WireError."""
        if len(self._strangers) >= _MAX_UNAUTHENTICATED + self.world_size - len(self.members):
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self._reject(oldest, "silent", "too many connections without a handshake")
            oldest.close()
        self._strangers[guest] = None
        try:
            await asyncio.wait_for(accept(guest.read, guest.write, self._token), HANDSHAKE_S * self._scale)
        except asyncio.TimeoutError:
            raise WireError("silent", f"no handshake within {HANDSHAKE_S * self._scale:.1f} s") from None
        del self._strangers[guest]
        self._guests[guest] = None

    def _receive(self, guest: Guest, message: Any) -> None:
        """Takes in a message of an authenticated connection. Raises: WireError for one that does not fit."""
        kind = message["kind"]
        member = guest.member
        if kind == "node" and self._numbers is not None:
            place = self._numbers.assign(message, guest.address)
            if place["kind"] == "refused":
                self._refuse(guest, place["why"], place["reason"], rank=-1, hostname=message["hostname"])
                self.num_turned_away += message["nproc"]
            guest.answer(place)
        elif kind == "join" and member is None:
            self._join(guest, message)
        elif member is None:
            raise WireError("garbage", f"{kind!r} before joining")
        elif kind == "beat":
            member.beat(message["phase"], message["doing"][:300], message["for_s"], message["t"])
            guest.answer({"kind": "alive"})
        elif kind == "result":
            values = to_jsonable_python(message["result"])  # links are objects
            result = PhaseResult(**{**values, "phase": ExamPhase(values["phase"])})
            if result.rank == member.identity.rank and member.admitted:
                self.results.setdefault((result.phase, result.rank), result)
        elif kind == "leave":
            member.how, member.detail = "left", f"it was ended by {message['signal']}"
        elif kind == "bye":
            member.said_bye = True
        else:
            raise WireError("garbage", f"{kind!r} a second time, or of a job without --nnodes")

    def _join(self, guest: Guest, message: Join) -> None:
        identity = message["identity"]
        rank, holder = identity.rank, self.members.get(identity.rank)
        member = guest.member = Member(guest, message, admitted=False, offset_s=message["t"] - time.time())
        why = reason = ""
        if identity.world_size != self.world_size:
            why = "world_size"
            reason = f"rank {rank} on {member.process} has world size {identity.world_size}, rank 0 has {self.world_size}"
        elif rank >= self.world_size:
            why, reason = "rank", f"{member.process} has rank {rank}, expected 0 to {self.world_size - 1}"
        elif holder is not None:
            why, reason = "duplicate", f"{member.process} and {holder.process} both claim rank {rank}"
        if why:
            self.onlookers.append(member)
            about = {"rank": rank, "hostname": identity.hostname, "pid": message["pid"], "world_size": identity.world_size}
            self._refuse(guest, why, reason, **about)
            guest.answer(refusal(why, reason, stay=True))
            return
        member.admitted, self.members[rank] = True, member
        if not is_loopback(guest.address):
            self._own_address = guest.own_address
        guest.answer({"kind": "welcome"})

    def _reject(self, guest: Guest, kind: str, reason: str) -> None:
        """Notes why a connection is closed: it does not hold the token, or its messages are not ours."""
        if guest.member is not None:
            guest.member.lose("died", f"its connection was closed by the hub: {reason}")
        else:
            self._refuse(guest, kind, reason)

    def _refuse(self, guest: Guest, kind: str, reason: str, **more: Any) -> None:
        if len(self.refused) < _MAX_REFUSED:
            self.refused.append({"address": guest.address, "kind": kind, "reason": reason, **more})

    def _tick(self, now: float, paused_s: float) -> None:
        """Looks for ranks without a heartbeat; ``paused_s`` is how long this process itself was stopped or starved."""
        for member in (*self.members.values(), *self.onlookers):
            member.last_beat += paused_s
            if now - member.last_beat > self._silent_s:
                member.lose("silent", f"no heartbeat for {self._silent_s:.1f} s")


def identities(members: Mapping[int, Member]) -> dict[int, Identity]:
    """The identity of each rank; nodes are numbered by host name where the launcher (MPI) gives no numbers."""
    found = {rank: member.identity for rank, member in sorted(members.items())}
    if not any(identity.launcher == "mpi" for identity in found.values()):
        return found
    hosts = {host: number for number, host in enumerate(dict.fromkeys(identity.hostname for identity in found.values()))}
    return {rank: replace(identity, node=hosts[identity.hostname], num_nodes=len(hosts)) for rank, identity in found.items()}


def _allow_files(count: int) -> None:
    """Raises this process's limit of open files as far as it may be raised: many systems start at 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listen(meeting: MeetingPoint) -> socket.socket:
    """Listens at the first of the ports that is free; on loopback only, if no other host's ranks can come."""
    reason = ""
    for port in meeting.ports:
        try:
            return listen(port, host=meeting.own_address if meeting.local else "")
        except OSError as error:
            reason = error.strerror or str(error)
    raise HubTaken(reason)
