"""A rank's course: find the hub, beat, do the phases as they are announced, hear the verdict.

The main thread does nothing but wait for events, each wait with a deadline; connections are read, heartbeats sent and phases run in
threads of their own, so that nothing they hang in holds the rank.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numscope.doctor.budget import Deadline, share
from numscope.doctor.course import chosen
from numscope.doctor.meet import wire
from numscope.doctor.meet.hub import BEAT_S, SILENT_S
from numscope.doctor.meet.listener import Listener
from numscope.doctor.meet.meeting import Meeting
from numscope.doctor.meet.reach import Road, Unreached
from numscope.doctor.phases.children import Child
from numscope.doctor.phases.context import Context, PhaseFailed
from numscope.doctor.records import PHASES, Finding, Identity, PhaseResult, Settings, Verdict, from_json, to_json

GRACE_S = 0.4  # after a phase's budget, before it is given up
_FIRST_OF_CHILD = 4  # phases from here on run in the child
_EXCHANGES = 5  # of clocks; the quickest counts
_AFTER_SIGNAL_S = 2.0  # for a verdict to come although a signal ends this rank


@dataclass(frozen=True, slots=True)
class Lost:
    """The hub is gone.

    Args:
        kind: closed: its process ended; silent: it is there and says nothing.
    """

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rank's course ended: with the hub's verdict, or without one and why."""

    verdict: Verdict | None = None
    unreached: Unreached | None = None
    lost: Lost | None = None
    interrupted: str = ""
    refused: str = ""
    results: tuple[PhaseResult, ...] = ()
    phase: int = 0  # the last one that the hub announced


class Agent:
    """One rank.

    Args:
        elsewhere: the hub is known to be on another host.
        deadline: of everything.
    """

    def __init__(self, identity: Identity, settings: Settings, meeting: Meeting, deadline: Deadline, *, elsewhere: bool) -> None:
        self._identity = identity
        self._settings = replace(settings, token=meeting.token, endpoint=meeting.name)
        self._meeting = meeting
        self._deadline = deadline
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._doing = (0, "start", time.monotonic())
        self._road = Road(meeting, elsewhere=elsewhere, scale=settings.timeout_scale, say=lambda what: self._say(1, what))
        self._control: socket.socket | None = None
        self._key = ""
        self._clock = (0.0, 0.0)
        self._kept: dict[str, Any] = {}
        self._roster: dict[int, Mapping[str, Any]] = {}
        self._running: dict[int, Deadline] = {}
        self._results: dict[int, PhaseResult] = {}
        self._announced = 0
        self._refused = ""
        self._ended = threading.Event()

    def interrupt(self, signal_name: str) -> None:
        """Ends the course; safe in a signal handler."""
        self._events.put(("signal", signal_name))

    @property
    def identity(self) -> Identity:
        """Who this rank is, with the node's number that the hub gave once there was a roster."""
        return self._identity

    def run(self) -> Outcome:
        """The whole course until the verdict; the connection stays, for ``bye``."""
        self._open_early()
        self._start(0, share(self._settings, 0), ())
        threading.Thread(target=self._arrive, name="doctor-arrive", daemon=True).start()
        patience = self._deadline
        interrupted = ""
        while not patience.over:
            waits = [patience.left, *(max(limit.left, 1e-3) for limit in self._running.values())]
            try:
                kind, value = self._events.get(timeout=min(waits))
            except queue.Empty:
                self._give_up_late_phases()
                continue
            if kind == "unreached":
                return self._outcome(unreached=value)
            if kind == "lost":
                return self._outcome(lost=None if interrupted else value, interrupted=interrupted)
            if kind == "signal":
                if interrupted:
                    break
                interrupted, patience = value, self._deadline.within(_AFTER_SIGNAL_S)
                if self._control is None:
                    break
                self._tell({"kind": "leave", "signal": value})
            elif kind == "done":
                self._finish(value)
            elif kind == "arrived":
                self._control, self._key, self._refused = value
                self._finish_arrival()
            elif kind == "message":
                if value["kind"] == "verdict":
                    told = value["verdict"]
                    findings = tuple(_finding(each) for each in told.pop("findings", ()))
                    return self._outcome(verdict=replace(from_json(Verdict, told), findings=findings))
                if not interrupted:
                    self._obey(value)
        return self._outcome(interrupted=interrupted or "the deadline")

    def bye(self, *, wait: bool = True) -> None:
        """Says that this rank has printed its line, and waits until the hub lets it go: a launcher ends all when the first one ends."""
        self._ended.set()
        if self._control is not None:
            with contextlib.suppress(wire.WireError, queue.Empty):
                limit = self._deadline.within(3.0)
                wire.send(self._control, {"kind": "bye"}, limit)
                while wait and not limit.over:
                    kind, value = self._events.get(timeout=max(limit.left, 1e-3))
                    if kind == "lost" or (kind == "message" and value["kind"] == "end"):
                        break
        self.close()

    def close(self) -> None:
        """Closes what phases kept, for two seconds at most."""
        self._ended.set()
        for each in list(self._kept.values()):
            closing = threading.Thread(target=getattr(each, "close", lambda: None), daemon=True)
            closing.start()
            closing.join(2.0)
        if self._control is not None:
            self._control.close()

    # ---- arriving -----------------------------------------------------------------------------------------------------------

    def _open_early(self) -> None:
        """What others must know the port of, and what takes long to start."""
        try:
            self._kept["listener"] = Listener(self._settings, self._identity.rank)
        except OSError as error:
            self._say(0, f"open a listening port: {error}")
        if max(chosen(self._settings)) >= _FIRST_OF_CHILD:
            self._kept["child"] = Child(self._identity, self._settings)  # torch's import runs while the ranks meet

    def _arrive(self) -> None:
        """Connects, compares clocks, joins; then the control connection's reader. A thread of its own."""
        limit = self._deadline.within(share(self._settings, 1))
        found = self._road.open(limit)
        if isinstance(found, Unreached):
            self._events.put(("unreached", found))
            return
        assert self._road.address is not None
        self._settings = replace(self._settings, endpoint=f"{self._road.address[0]}:{self._road.address[1]}")
        patience = Deadline(max(SILENT_S * self._settings.timeout_scale, 0.5))
        try:
            self._say(1, "compare clocks with the hub")
            self._clock = exchange_clocks(found, patience)
            self._say(1, "join the others at the hub")
            wire.send(found, self._introduction(), patience)
            answer = wire.receive(found, patience)
            self._events.put(("arrived", (found, str(answer["key"]), str(answer.get("reason", "")))))
        except (wire.WireError, KeyError, ValueError) as error:
            self._events.put(("lost", Lost(getattr(error, "kind", "closed"), f"the hub let this rank connect, but not join: {error}")))
            return
        threading.Thread(target=self._beat, args=(str(answer["key"]),), name="doctor-beat", daemon=True).start()
        while not self._ended.is_set():
            try:
                self._events.put(("message", wire.receive(found, self._deadline)))
            except wire.WireError as error:
                self._events.put(("lost", Lost(error.kind, f"the connection to the hub: {error}")))
                return

    def _introduction(self) -> dict[str, Any]:
        listener, child = self._kept.get("listener"), self._kept.get("child")
        listen = {
            "address": address_of(self._settings.ifname),
            "port": listener.port if listener else 0,
            "store_port": child.store_port if child else 0,
        }
        return {
            "kind": "join",
            "identity": to_json(self._identity),
            "pid": os.getpid(),
            "listen": listen,
            "offset_s": self._clock[0],
            "round_trip_s": self._clock[1],
        }

    def _finish_arrival(self) -> None:
        self._say(1, "wait for the other ranks")
        if not self._refused:
            assert self._road.address is not None
            data = {
                "endpoint": self._meeting.name,
                "origin": self._meeting.origin,
                "address": self._road.address[0],
                "addresses": list(self._road.addresses),
                "attempts": dict(self._road.attempts),
                "ifname": self._settings.ifname,
                "ifname_address": address_of(self._settings.ifname),
                "offset_s": self._clock[0],
                "round_trip_s": self._clock[1],
            }
            self._results[1] = PhaseResult(1, self._identity.rank, "ok", seconds=self._deadline.seconds - self._deadline.left, data=data)
            for result in self._results.values():
                self._tell({"kind": "result", "result": to_json(result)})

    def _beat(self, key: str) -> None:
        """Says once a second what this rank is about to do, and sees by the answers that the hub lives. A thread of its own."""
        scale = self._settings.timeout_scale
        try:
            connection = self._road.again(Deadline(max(SILENT_S * scale, 0.5)))
            with connection:
                while not self._ended.wait(BEAT_S * min(1.0, scale)):
                    patience = Deadline(SILENT_S * scale)
                    phase, doing, since = self._doing
                    now = time.monotonic()
                    beat = {"kind": "beat", "key": key, "t": time.time(), "phase": phase, "doing": doing, "for_s": round(now - since, 3)}
                    wire.send(connection, beat, patience)
                    wire.receive(connection, patience)
        except wire.WireError as error:
            if not self._ended.is_set():
                self._events.put(("lost", Lost(error.kind, f"the hub's heartbeat: {error}")))

    # ---- phases -------------------------------------------------------------------------------------------------------------

    def _obey(self, message: Mapping[str, Any]) -> None:
        if message["kind"] == "roster":
            self._roster = {int(rank): entry for rank, entry in message["roster"].items()}
            if self._identity.rank in self._roster:  # the hub numbers nodes where the launcher does not
                self._identity = from_json(Identity, self._roster[self._identity.rank]["identity"])
        elif message["kind"] == "phase":
            self._announced = int(message["phase"])
            if self._identity.rank in message["alive"]:
                self._start(self._announced, float(message["budget_s"]), tuple(message["alive"]))

    def _start(self, phase: int, budget_s: float, alive: tuple[int, ...]) -> None:
        deadline = self._deadline.within(budget_s)
        context = Context(
            identity=self._identity,
            settings=self._settings,
            roster=self._roster,
            deadline=deadline,
            say=lambda what: self._say(phase, what),
            alive=alive,
            kept=self._kept,
        )
        self._say(phase, f"begin with {PHASES[phase]}")
        self._running[phase] = deadline.within(deadline.left + GRACE_S)
        threading.Thread(target=self._do, args=(phase, context), name=f"doctor-{PHASES[phase]}", daemon=True).start()

    def _do(self, phase: int, context: Context) -> None:
        """One phase, in a thread of its own."""
        started = time.monotonic()
        rank = context.identity.rank
        try:
            module = importlib.import_module(f"numscope.doctor.phases.{PHASES[phase]}")
            run: Callable[[Context], Mapping[str, Any]] = module.run
            result = PhaseResult(phase, rank, "ok", data=run(context))
        except PhaseFailed as failed:
            result = PhaseResult(phase, rank, "failed", doing=self._doing_in(phase), error=failed.sentence, data=failed.data)
        except BaseException as error:  # ours to cure: the rank goes on, and says so
            data = {"internal": traceback.format_exc(limit=-6)}
            result = PhaseResult(phase, rank, "failed", doing=self._doing_in(phase), error=f"{type(error).__name__}: {error}", data=data)
        self._events.put(("done", replace(result, seconds=time.monotonic() - started)))

    def _finish(self, result: PhaseResult) -> None:
        if self._running.pop(result.phase, None) is None:
            return  # given up before
        self._results[result.phase] = result
        self._say(result.phase, f"wait for the others after {PHASES[result.phase]}")
        if self._control is not None and not self._refused:
            self._tell({"kind": "result", "result": to_json(result)})

    def _give_up_late_phases(self) -> None:
        for phase in [phase for phase, limit in self._running.items() if limit.over]:
            seconds = self._running[phase].seconds
            doing = self._doing_in(phase)
            error = f"not done within {seconds:.1f} s" + (f": {doing}" if doing else "")
            self._finish(PhaseResult(phase, self._identity.rank, "timeout", seconds=seconds, doing=doing, error=error))

    def _say(self, phase: int, what: str) -> None:
        # While facts are gathered and the hub is looked for at once, the later phase speaks.
        if phase >= self._doing[0] or phase not in (0, 1):
            self._doing = (phase, what, time.monotonic())

    def _doing_in(self, phase: int) -> str:
        said_in, what, _ = self._doing
        return what if said_in == phase else ""

    def _tell(self, message: Mapping[str, Any]) -> None:
        assert self._control is not None
        try:
            wire.send(self._control, message, self._deadline.within(max(SILENT_S * self._settings.timeout_scale, 0.5)))
        except wire.WireError as error:
            self._events.put(("lost", Lost(error.kind, f"the connection to the hub: {error}")))

    def _outcome(self, **how: Any) -> Outcome:
        return Outcome(refused=self._refused, results=tuple(self._results.values()), phase=self._announced, **how)


def exchange_clocks(connection: socket.socket, deadline: Deadline) -> tuple[float, float]:
    """How far this host's clock is before the hub's, and the round trip of the exchange that says so, in seconds.

    The offset's error is at most half the round trip.
    *Source:* RFC 5905, section 8: with the server's two times taken as one.
    Raises: WireError.
    """
    best = (0.0, float("inf"))
    for _ in range(_EXCHANGES):
        before, sent = time.monotonic(), time.time()
        wire.send(connection, {"kind": "time", "t": sent}, deadline)
        answer = wire.receive(connection, deadline)
        trip = time.monotonic() - before
        if trip < best[1]:
            best = (sent + trip / 2 - float(answer["hub"]), trip)
    return best


def address_of(ifname: str) -> str:
    """The IPv4 address of a network interface; "" where there is none or none was asked for."""
    if not ifname:
        return ""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            request = struct.pack("256s", ifname.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), 0x8915, request)[20:24])  # SIOCGIFADDR
        except OSError:
            return ""


def _finding(values: Mapping[str, Any]) -> Finding:
    links = tuple((str(one), str(other)) for one, other in values.get("links", ()))
    return replace(from_json(Finding, values), links=links)
