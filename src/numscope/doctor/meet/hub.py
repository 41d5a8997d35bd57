"""The hub: where the ranks meet, what each is about to do, and which of them went silent.

An authenticated connection sends one of

    join    who it is; answered with ``welcome`` or ``refused`` (it then only waits for the verdict)
    time    a clock exchange, answered with the hub's wall clock
    beat    what the rank is about to do; answered likewise, which shows the rank that the hub is alive
    node    a node's launcher asks for its node's number; answered with ``place`` or ``refused``
    result  a phase's result         leave   a signal ends the rank         bye     the rank has printed its line

*Cost:* a rank's heartbeat is 100 bytes a second each way.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import to_jsonable_python

from numscope.doctor.budget import SILENT_S, Deadline
from numscope.doctor.meet.meeting import Meeting
from numscope.doctor.meet.server import Guest, Member, Server
from numscope.doctor.meet.sockets import is_loopback, listen
from numscope.doctor.meet.wire import WireError
from numscope.doctor.records import Identity, Phase, PhaseResult, Settings, from_json, to_json

_MAX_REFUSED = 100  # the reasons of more are not kept
_SPARE_FILES = 512  # besides the ranks' connections


class HubTaken(Exception):
    """None of the ports that the hub tried is free."""

    def __init__(self, ports: tuple[int, ...], reason: str) -> None:
        super().__init__(f"port {', '.join(map(str, ports))}: {reason}")
        self.ports = ports
        self.reason = reason


class Places:
    """Assigns numbers to nodes. The hub's own node is number 0, and was given these numbers of nodes and ranks."""

    def __init__(self, num_nodes: int, nproc: int, hostname: str) -> None:
        self._num_nodes = num_nodes
        self._nproc = nproc
        self._taken: dict[int, str] = {0: hostname}

    def assign(self, request: Mapping[str, Any], address: str) -> dict[str, Any]:
        """The answer to a node's request: its number, or why it gets none. With ``node_rank`` -1 it gets any."""
        who = f"{request['hostname']} ({address})"
        nodes, nproc, wish = request["nnodes"], request["nproc"], request["node_rank"]
        if (nodes, nproc) != (self._num_nodes, self._nproc):
            ours = f"--nnodes {self._num_nodes} --nproc {self._nproc}"
            return _refuse("world_size", f"{who} was started with --nnodes {nodes} --nproc {nproc}, {self._taken[0]} with {ours}")
        if wish >= nodes:
            return _refuse("rank", f"{who} was started with node_rank {wish}, expected 0 to {nodes - 1}")
        if wish in self._taken:
            return _refuse("duplicate", f"{who} and {self._taken[wish]} both claim node number {wish}")
        free = [node for node in range(nodes) if node not in self._taken]
        if not free:
            return _refuse("duplicate", f"{who} is one node more than --nnodes {nodes}")
        node = wish if wish >= 0 else free[0]
        self._taken[node] = who
        return {"kind": "place", "node": node}


def _refuse(why: str, reason: str) -> dict[str, Any]:
    return {"kind": "refused", "why": why, "reason": reason, "stay": False}


class Hub(Server):
    """Where ``world_size`` ranks meet. Raises: HubTaken.

    Args:
        meeting: provides the ports to try, and the token.
        places: assigns node numbers, where launchers ask for them.
    """

    def __init__(self, meeting: Meeting, settings: Settings, world_size: int, places: Places | None = None) -> None:
        self.world_size = world_size
        self.members: dict[int, Member] = {}  # admitted ranks
        self.onlookers: list[Member] = []  # ranks that were not admitted
        self.results: dict[tuple[Phase, int], PhaseResult] = {}  # by phase and rank
        self.refused: list[dict[str, Any]] = []  # rejected connections and ranks, with reasons
        self.num_refused = 0
        self.num_turned_away = 0  # ranks of nodes that got no number
        self.started = time.monotonic()
        self.hurry = ""  # why everything that is left is skipped: a signal's name
        self._places = places
        self._own_address = ""  # by which ranks of other hosts reach this one
        self._controls: dict[int, Guest] = {}  # the ranks' connections
        self._silent_s = SILENT_S * settings.timeout_scale
        _allow_files(world_size + _SPARE_FILES)
        listening = _listen(meeting)
        self.port: int = listening.getsockname()[1]
        super().__init__(listening, meeting.token, settings.timeout_scale)

    def wait(self, done: Callable[[], bool], deadline: Deadline) -> bool:
        """Waits until ``done()`` (evaluated after each change), the deadline, or a hurry; returns whether it was done."""
        with self.changed:
            while not done():
                if deadline.over or self.hurry:
                    return False
                self.changed.wait(min(deadline.left, 0.5))
            return True

    def hurry_up(self, why: str) -> None:
        """Ends all waiting. Takes no lock, so it is safe in a signal handler."""
        self.hurry = why
        self.wake_up()

    def send(self, message: Mapping[str, Any], ranks: tuple[int, ...]) -> None:
        """Sends to these ranks, as far as they are connected."""
        self.send_to([self._controls[rank] for rank in ranks if rank in self._controls], message)

    def send_to_all(self, message: Mapping[str, Any]) -> None:
        """Sends to all ranks and onlookers."""
        with self.changed:
            guests = [guest for guest in self.guests if guest.member is not None]
        self.send_to(guests, message)

    def roster(self) -> dict[int, dict[str, Any]]:
        """The ranks that joined, as documented at ``Context.roster``."""
        with self.changed:
            roster = {}
            for rank, identity in identities(self.members).items():
                member = self.members[rank]
                address = (self._own_address or member.seen) if is_loopback(member.seen) else member.seen
                roster[rank] = {
                    "identity": to_json(identity),
                    "address": address,
                    "seen": member.seen,
                    "listen": {**member.listen, "address": member.listen["address"] or address},
                    "offset_s": member.offset_s,
                    "round_trip_s": member.round_trip_s,
                    "pid": member.pid,
                }
            return roster

    def is_here(self, rank: int) -> bool:
        """Whether a rank joined and is still there."""
        member = self.members.get(rank)
        return member is not None and member.here

    # ---- what a server asks for -----------------------------------------------------------------------------------------------

    def received(self, guest: Guest, message: dict[str, Any]) -> None:
        kind = message["kind"]
        member = guest.member
        if kind == "time":
            guest.answer({"kind": "clock", "t": message["t"], "hub": time.time()})
        elif kind == "node" and self._places is not None:
            place = self._places.assign(message, guest.address)
            if place["kind"] == "refused":
                self._refuse(guest, place["why"], place["reason"], rank=-1, hostname=message["hostname"])
                self.num_turned_away += message["nproc"]
            guest.answer(place)
        elif kind == "join" and member is None:
            self._join(guest, message)
        elif member is None:
            raise WireError("garbage", f"{kind!r} before joining")
        elif kind == "beat":
            member.beat(message["phase"], message["doing"][:300], message["for_s"])
            guest.answer({"kind": "clock", "t": message["t"], "hub": time.time()})
        elif kind == "result":
            result = from_json(PhaseResult, to_jsonable_python(message["result"]))
            if result.rank == member.identity.rank and member.admitted:
                self.results.setdefault((result.phase, result.rank), result)
        elif kind == "leave":
            member.how, member.detail = "left", f"it was ended by {message['signal']}"
        elif kind == "bye":
            member.said_bye = True
        else:
            raise WireError("garbage", f"{kind!r} a second time, or of a job without --nnodes")

    def closed(self, guest: Guest, detail: str) -> None:
        if guest.member is not None and not guest.member.said_bye:
            guest.member.lose("died", detail)

    def rejected(self, guest: Guest, kind: str, reason: str) -> None:
        if guest.member is not None:
            guest.member.lose("died", f"its connection was closed by the hub: {reason}")
        else:
            self._refuse(guest, kind, reason)

    def tick(self, now: float, paused_s: float) -> None:
        for member in (*self.members.values(), *self.onlookers):
            member.last_beat += paused_s
            if now - member.last_beat > self._silent_s:
                member.lose("silent", f"no heartbeat for {self._silent_s:.1f} s")

    def _join(self, guest: Guest, message: dict[str, Any]) -> None:
        identity: Identity = message["identity"]
        rank, holder = identity.rank, self.members.get(identity.rank)
        who = f"{identity.hostname} (process {message['pid']})"
        why = reason = ""
        if identity.world_size != self.world_size:
            why, reason = "world_size", f"rank {rank} on {who} has world size {identity.world_size}, rank 0 has {self.world_size}"
        elif rank >= self.world_size:
            why, reason = "rank", f"{who} has rank {rank}, expected 0 to {self.world_size - 1}"
        elif holder is not None:
            why, reason = "duplicate", f"{who} and {holder.identity.hostname} (process {holder.pid}) both claim rank {rank}"
        guest.member = Member(
            identity=identity,
            admitted=not why,
            seen=guest.address,
            pid=message["pid"],
            listen=message["listen"],
            offset_s=message["offset_s"],
            round_trip_s=message["round_trip_s"],
        )
        if why:
            self.onlookers.append(guest.member)
            self._refuse(guest, why, reason, rank=rank, hostname=identity.hostname, pid=message["pid"], world_size=identity.world_size)
        else:
            self.members[rank], self._controls[rank] = guest.member, guest
            if not is_loopback(guest.address):
                self._own_address = guest.own_address
        guest.answer({"kind": "refused", "why": why, "reason": reason, "stay": True} if why else {"kind": "welcome"})

    def _refuse(self, guest: Guest, kind: str, reason: str, **more: Any) -> None:
        self.num_refused += 1
        if len(self.refused) < _MAX_REFUSED:
            self.refused.append({"address": guest.address, "kind": kind, "reason": reason, **more})


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


def _listen(meeting: Meeting) -> socket.socket:
    """Listens at the first of the ports that is free; on loopback only, if no other host's ranks can come."""
    reason = ""
    for port in meeting.ports:
        try:
            return listen(port, host=meeting.own_address if meeting.local else "")
        except OSError as error:
            reason = error.strerror or str(error)
    raise HubTaken(meeting.ports, reason)
