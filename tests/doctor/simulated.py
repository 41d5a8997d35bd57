"""Hosts by the thousand: processes that hold many ranks' connections, speak the doctor's protocol and make up what healthy ranks measure.

The hub, the course of the examination, the diagnosis and the messages are the real ones. Nothing is measured: a phase's results come from
the message that begins it, which says whom a rank examines, and from the planted faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from numscope.doctor.budget import Deadline, beat_s, silent_s
from numscope.doctor.course import Course
from numscope.doctor.meet import wire
from numscope.doctor.meet.hub import _allow_files
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.messages import Refused, ToRank, Welcome
from numscope.doctor.output import Output
from numscope.doctor.phases.rounds import ALL_RANKS, partners
from numscope.doctor.records import Examined, ExamPhase, Identity, PhaseResult, Settings, Verdict
from numscope.records.words import unspanned
from tests.doctor.examples import facts

TOKEN = "simulated"
_NAMES = ("barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "float_sum")
_SIZES = (8, 1 << 20, 64 << 20)


@dataclass(frozen=True)
class Planted:
    """What is wrong; hosts by their numbers."""

    absent: frozenset[int] = frozenset()  # they never come
    dies: dict[int, ExamPhase] = field(default_factory=dict)  # at the start of this phase, so that its connections are closed
    vanishes: dict[int, ExamPhase] = field(default_factory=dict)  # at the start of this phase, without a word
    cut: tuple[tuple[int, int], ...] = ()  # links that carry nothing
    rack: frozenset[int] = frozenset()  # hosts whose links to all other hosts carry nothing
    slow_links: frozenset[int] = frozenset()
    slow: frozenset[int] = frozenset()  # in computing
    corrupts: frozenset[int] = frozenset()  # what it sends
    old_torch: frozenset[int] = frozenset()

    def works(self, one: int, other: int) -> bool:
        gone = {host for host, phase in (*self.dies.items(), *self.vanishes.items()) if phase <= ExamPhase.LINKS}
        return not (
            {one, other} & (gone | self.absent)
            or (one, other) in self.cut
            or (other, one) in self.cut
            or (one in self.rack) != (other in self.rack)
        )


@dataclass
class Traffic:
    """What ranks and hub sent each other."""

    messages: int = 0
    sent: int = 0  # bytes to the hub
    received: int = 0
    ended: int = 0  # ranks that have ended

    def add(self, other: Traffic) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


class Fleet:
    """Simulated ranks in a process of their own."""

    def __init__(self, ranks: range, hosts: int, per_host: int, port: int, planted: Planted, settings: Settings) -> None:
        self.ranks, self.hosts, self.per_host, self.port, self.planted, self.settings = ranks, hosts, per_host, port, planted, settings
        self.traffic = Traffic()

    async def sail(self) -> None:
        _allow_files(2 * len(self.ranks) + 100)
        pool = ThreadPoolExecutor(16)
        here = [rank for rank in self.ranks if rank // self.per_host not in self.planted.absent]
        await asyncio.gather(*(self._rank(rank, pool) for rank in here))

    def _join(self, rank: int) -> socket.socket:
        """As an agent does; each wait in it has an agent's patience."""
        deadline = Deadline(45.0)
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), 10.0)
                wire.authenticate(connection, TOKEN, deadline)
                break
            except (OSError, wire.WireError):
                if deadline.over:
                    raise
                time.sleep(0.25)
        size = self.hosts * self.per_host
        patience = Deadline(silent_s(size) * self.settings.timeout_scale)
        host = rank // self.per_host
        identity = Identity(rank, size, rank % self.per_host, self.per_host, host, self.hosts, f"node{host:04d}", "slurm")
        listen = {"address": address_of(host), "port": 40000, "store_port": 40001}
        wire.send(connection, {"kind": "join", "identity": identity, "pid": 4711, "listen": listen, "t": time.time()}, patience)
        wire.receive(connection, patience, Welcome | Refused)
        self.traffic.messages += 16
        return connection

    async def _rank(self, rank: int, pool: ThreadPoolExecutor) -> None:
        connection = await asyncio.get_running_loop().run_in_executor(pool, self._join, rank)
        reader, writer = await asyncio.open_connection(sock=connection)
        doing = {"phase": 1, "doing": "wait for the other ranks"}

        def send(message: dict[str, Any]) -> None:
            data = wire.pack(message)
            self.traffic.messages += 1
            self.traffic.sent += len(data)
            writer.write(data)

        async def beat() -> None:
            while True:
                await asyncio.sleep(beat_s(self.hosts * self.per_host) * min(1.0, self.settings.timeout_scale))
                send({"kind": "beat", "t": time.time(), **doing, "for_s": 0.1})

        beats = asyncio.create_task(beat())
        try:
            for phase in (ExamPhase.FACTS, ExamPhase.RENDEZVOUS):
                send({"kind": "result", "result": self._result(phase, rank, {})})
            while True:
                head = await reader.readexactly(wire.HEAD_BYTES)
                length = wire.length_of(head)
                message = wire.unpack(await reader.readexactly(length), ToRank)
                self.traffic.messages += 1
                self.traffic.received += length + len(head)
                if message["kind"] == "phase":
                    phase = message["phase"]
                    if self.planted.dies.get(rank // self.per_host) == phase:
                        return
                    if self.planted.vanishes.get(rank // self.per_host) == phase:
                        beats.cancel()
                        await reader.read()  # until the hub closes the connection
                        return
                    doing |= {"phase": phase, "doing": f"start {phase.label}"}
                    send({"kind": "result", "result": self._result(phase, rank, message)})
                elif message["kind"] == "judged":
                    beats.cancel()
                elif message["kind"] == "verdict":
                    send({"kind": "bye"})
                elif message["kind"] == "end":
                    return
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass  # the hub is gone
        finally:
            self.traffic.ended += 1
            beats.cancel()
            writer.close()

    def _result(self, phase: ExamPhase, rank: int, begin: dict[str, Any]) -> PhaseResult:
        data = getattr(self, f"_{phase.label}")(rank, begin)
        error = data.pop("failed", "")
        return PhaseResult(phase, rank, "failed" if error else "ok", seconds=0.1, error=error, data=data)

    def _facts(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        host = rank // self.per_host
        torch = "2.12.0" if host in self.planted.old_torch else "2.13.0"
        return facts(f"node{host:04d}", "127.0.0.1", versions={"python": "3.11.7", "numscope": "0.1.0", "torch": torch})

    def _rendezvous(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        return {"ifname": "", "ifname_address": ""}

    def _compare(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        address = address_of(rank // self.per_host)
        return {"interface": {"name": "eth0", "mtu": 1500, "address": address}}

    def _links(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        host, known = rank // self.per_host, {int(other): entry["identity"] for other, entry in begin["roster"].items()}
        data: dict[str, Any] = {"node": host, "representative": rank, "cells": [], "heard": {}, "loopback": None}
        broken = []
        for number, other in begin["meetings"]:
            to = known[other].node if other in known else other // self.per_host  # it may have been told in an earlier phase
            if to == host:
                return data | {"representative": other}
            fine = {"connect_s": 1e-4, "rtt_s": 2e-4, "rtt_min_s": 1e-4, "payload_s": 1e-3, "bytes": 1 << 25, "ephemeral": "ok"}
            fine |= {"bytes_per_s": 1e7 if {host, to} & self.planted.slow_links else 1e9, "segments": 20000, "mss": 1448, "pmtu": 1500}
            works = self.planted.works(host, to)
            dropped = {"status": "dropped", "error": "no answer within 3.5 s", "known": "dropped"}
            cell = {"from_node": host, "to_node": to, "from_rank": rank, "to_rank": other, "from_host": f"node{host:04d}"}
            cell |= {"to_host": f"node{to:04d}", "address": address_of(to), "port": 40000, "round": number}
            data["cells"].append(cell | (fine if works else dropped))
            data["heard"] |= {str(other): 3} if works else {}
            broken += [] if works else [to]
        return data | ({"failed": f"{len(broken)} links do not work"} if broken else {})

    def _backend(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        alive = unspanned(begin["alive"], self.hosts * self.per_host)
        host, first = rank // self.per_host, alive[0]
        store = {"rank": first, "address": address_of(first // self.per_host), "port": 40001, "error": ""}
        if host != first // self.per_host and not self.planted.works(host, first // self.per_host):
            return {"store": store | {"error": "timed out"}, "failed": "the store timed out", "members": begin["alive"], "missing": []}
        rack = sorted(self.planted.rack)
        gone = [[host * self.per_host, (host + 1) * self.per_host - 1] for host in rack]
        data = {"store": store, "groups": {"gloo": {"seconds": 0.1, "error": ""}}, "members": begin["alive"], "missing": gone}
        return data | ({"failed": f"{len(rack)} hosts did not join torch's store"} if rack else {})

    def _pairs(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        alive = unspanned(begin["alive"], self.hosts * self.per_host)
        plan = partners(alive.index(rank), len(alive), ALL_RANKS[self.settings.quick])
        pairs = []
        for number, index in enumerate(plan):
            if index is None:
                continue
            corrupt = (
                {"first_offset": 17, "num_bytes": 3, "num_bits": 5} if alive[index] // self.per_host in self.planted.corrupts else None
            )
            received = [{"bytes": size, "seconds": 0.01, "bytes_per_s": 1e8, "skipped": "", "corrupt": corrupt} for size in _SIZES]
            status = {"status": "corrupt" if corrupt else "ok", "doing": "", "error": "", "round_trip_s": 1e-4}
            pairs.append({"peer": alive[index], "backend": "gloo", "round": number, **status, "received": received})
        bad = sum(pair["status"] != "ok" for pair in pairs)
        data = {"sizes": list(_SIZES), "members": begin["alive"], "missing": [], "num_rounds": len(plan), "rounds_done": len(plan)}
        return data | {"pairs": pairs, "stopped": ""} | ({"failed": f"{bad} pairs are corrupt"} if bad else {})

    def _collectives(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        entry = {"backend": "gloo", "ranks": begin["alive"], "status": "ok", "repeats": 5, "seconds_min": 0.01, "seconds_max": 0.02}
        entry |= {"bytes_per_s_min": 1e8, "bytes_per_s_max": 2e8, "wrong": None, "digests": [], "error": "", "missing": []}
        each = [{**entry, "name": name, "group": "all", "bytes": size} for name in _NAMES for size in _SIZES]
        each += [{**entry, "name": name, "group": "half", "bytes": size} for name in _NAMES for size in _SIZES[:2]]
        return {"members": begin["alive"], "missing": [], "stopped": "", "collectives": each}

    def _compute(self, rank: int, begin: dict[str, Any]) -> dict[str, Any]:
        seconds = 4.0 if rank // self.per_host in self.planted.slow else 1.0 + 0.001 * (rank % 7)
        times = {"repeats": 5, "min_s": seconds, "median_s": 1.05 * seconds, "max_s": 1.2 * seconds}
        probes = {"gemm": {"n": 512, **times, "flops_per_s": 1e9}, "copy": {"bytes": 1 << 25, **times, "bytes_per_s": 1e9}}
        return {"device": "cpu", "threads": 2, "load": 0.5, **probes}


@dataclass(frozen=True)
class Told:
    """What the hub's process has to tell of an examination."""

    verdict: Verdict
    report: str
    seconds: float  # until the verdict
    phases_s: dict[str, float]  # when each had begun and the last result was there
    join_s: float
    judge_s: float
    cpu_s: float  # of the hub's process
    peak_bytes: int  # of its memory
    traffic: Traffic = field(default_factory=Traffic)


def address_of(host: int) -> str:
    return f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"


def _sail(pipe: Connection, *what: Any) -> None:
    fleet = Fleet(*what)
    asyncio.run(fleet.sail())
    pipe.send(fleet.traffic)


def _host(pipe: Connection, hosts: int, per_host: int, settings: Settings) -> None:
    """Hosts the hub, and tells of the examination."""
    import io

    from numscope.doctor.rendering import print_verdict

    meeting = MeetingPoint("127.0.0.1", (0,), TOKEN, True, "simulated", local=True)
    course = Course(meeting, settings, hosts * per_host, Deadline(settings.deadline_s), Output())
    pipe.send(course.hub.port)
    while (
        len(course.hub.members) < hosts * per_host and course.running and ExamPhase.COMPARE not in {p for p, _ in tuple(course.hub.results)}
    ):
        time.sleep(0.02)
    joined = time.monotonic() - course.hub.started
    course.wait(settings.deadline_s)
    assert course._reached is not None, course._error
    verdict, examined = course._reached
    course.hub.close()
    text = io.StringIO()
    print_verdict(verdict, examined, text)
    pipe.send(_told(verdict, examined, text.getvalue(), joined))


def _told(verdict: Verdict, examined: Examined, report: str, joined: float) -> Told:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    begun = {phase.label: max((result.started for result in examined.of(phase).values()), default=0.0) for phase in ExamPhase}
    collected = float(examined.hub["seconds"])
    cpu_s = usage.ru_utime + usage.ru_stime
    return Told(verdict, report, verdict.seconds, begun, joined, verdict.seconds - collected, cpu_s, peak_bytes())


def peak_bytes() -> int:
    """The most memory that this process has had. (On Linux the usual figure includes what its parent had when it was started.)"""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def started(hosts: int, per_host: int, planted: Planted, settings: Settings, processes: int) -> Iterator[tuple[Any, Any, list[Any]]]:
    """The hub's process with its pipe, and the fleets' processes with theirs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    hub = context.Process(target=_host, args=(theirs, hosts, per_host, settings))
    hub.start()
    theirs.close()
    port, size = ours.recv(), hosts * per_host
    fleets = []
    for number in range(processes):
        pipe, other = context.Pipe()
        ranks = range(size * number // processes, size * (number + 1) // processes)
        fleets.append((context.Process(target=_sail, args=(other, ranks, hosts, per_host, port, planted, settings)), pipe))
        fleets[-1][0].start()
        other.close()
    try:
        yield hub, ours, fleets
    finally:
        for process in (hub, *(fleet for fleet, _ in fleets)):
            if process.is_alive():
                process.kill()
            process.join()


def examine(hosts: int, per_host: int = 1, planted: Planted | None = None, settings: Settings | None = None, processes: int = 2) -> Told:
    """An examination from the first rank's arrival to the last one's end."""
    with started(hosts, per_host, planted or Planted(), settings or Settings(), processes) as (_, pipe, fleets):
        told: Told = pipe.recv()
        traffic = Traffic()
        for _, each in fleets:
            traffic.add(each.recv())
        return replace(told, traffic=traffic)
