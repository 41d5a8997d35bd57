"""A rank's part in an examination: reach the hub, run the phases as it announces them, receive the verdict.

The main thread only waits for events, each wait with a deadline, and sends heartbeats meanwhile. One more thread finds and joins the hub,
and reads its messages; each phase runs in a thread that is left behind when its time is over. So nothing that they hang in blocks the rank.
Events are (kind, value) pairs:

    arrived    the hub accepted the introduction; value: why this rank is not admitted, or ""
    message    from the hub
    lost       the hub was never reached, or the connection ended; value: why, as in ``Examined.hub``
    done       a phase ended; value: its result
    signal     a signal ends this rank; value: its name
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numscope.doctor.budget import Deadline, Overdue, beat_s, chosen, limited, share, silent_s
from numscope.doctor.meet import wire
from numscope.doctor.meet.listener import PeerListener
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.messages import Refused, ToRank, Welcome
from numscope.doctor.meet.road import Road, Unreached
from numscope.doctor.meet.sockets import address_of
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.phases.children import Child, run_in_child
from numscope.doctor.records import ExamPhase, Identity, PhaseResult, Settings, Status, Verdict, to_json
from numscope.records.words import unspanned

_GRACE_S = 0.4  # after a phase's time limit, before the phase is given up
_AFTER_SIGNAL_S = 2.0  # to wait for a verdict although a signal ends this rank


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of the examination for a rank: with the hub's verdict, or without one and why."""

    verdict: Verdict | None = None
    lost: Mapping[str, Any] | None = None  # why there is no hub, as in ``Examined.hub``
    interrupted: str = ""
    refused: str = ""  # why the rank was not admitted
    results: tuple[PhaseResult, ...] = ()


class Agent:
    """One rank, until the deadline of the whole examination. ``elsewhere``: the hub is known to be on another host."""

    def __init__(self, identity: Identity, settings: Settings, meeting: MeetingPoint, deadline: Deadline, *, elsewhere: bool) -> None:
        self.identity = identity  # once there is a roster, with the node number that the hub assigned
        self._settings = replace(settings, token=meeting.token, endpoint=meeting.name)
        self._host = meeting.own_address if meeting.local else ""  # where this rank's ports are open
        self._deadline = deadline
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._doing = (ExamPhase.FACTS, "start", time.monotonic())
        announce = partial(self._announce, ExamPhase.RENDEZVOUS)
        self._road = Road(meeting, elsewhere=elsewhere, scale=settings.timeout_scale, announce=announce)
        self._connection: socket.socket | None = None  # to the hub, once it knows this rank; the main thread sends there
        self._patience_s = max(silent_s(identity.world_size) * settings.timeout_scale, 0.5)  # for the hub
        self._kept: dict[str, Any] = {}
        self._roster: dict[int, Mapping[str, Any]] = {}
        self._results: dict[ExamPhase, PhaseResult] = {}
        self._refused = ""

    def interrupt(self, signal_name: str) -> None:
        """Ends the examination for this rank; safe in a signal handler."""
        self._events.put(("signal", signal_name))

    def run(self) -> Outcome:
        """Runs until the verdict; the connection stays open for ``bye``."""
        self._open_early()
        self._start(ExamPhase.FACTS, share(self._settings, ExamPhase.FACTS))
        threading.Thread(target=self._arrive, name="doctor-arrive", daemon=True).start()
        patience, beat = self._deadline, Deadline(0.0)
        interrupted = ""
        while not patience.over:
            if beat.over and self._connection is not None:
                phase, doing, since = self._doing
                for_s = round(time.monotonic() - since, 3)
                self._send({"kind": "beat", "t": time.time(), "phase": phase, "doing": doing, "for_s": for_s})
                beat = Deadline(beat_s(self.identity.world_size) * min(1.0, self._settings.timeout_scale))
            wait_s = patience.left if self._connection is None else min(patience.left, beat.left)
            try:
                kind, value = self._events.get(timeout=max(wait_s, 1e-3))
            except queue.Empty:
                continue
            if kind == "lost":
                lost = {"phase": max(self._doing[0], ExamPhase.RENDEZVOUS), **value}
                return self._outcome(lost=None if interrupted else lost, interrupted=interrupted)
            if kind == "signal":
                if interrupted:
                    break
                interrupted, patience = value, self._deadline.within(_AFTER_SIGNAL_S)
                if self._connection is None:
                    break
                self._send({"kind": "leave", "signal": value})
            elif kind == "done":
                self._finish(value)
            elif kind == "arrived":
                self._refused = value
                self._finish_arrival()
            elif kind == "message":
                if value["kind"] == "verdict":
                    return self._outcome(verdict=replace(value["verdict"], ok=(self.identity.rank,) if value["ok"] else ()))
                if value["kind"] == "judged":  # the hub's process is busy
                    beat = Deadline(value["for_s"])
                elif value["kind"] == "phase" and not interrupted:
                    self._obey(value)
        return self._outcome(interrupted=interrupted or "the deadline")

    def bye(self, *, wait: bool = True) -> None:
        """Reports that this rank has printed its line, and waits until the hub releases it: some launchers end all ranks with the first."""
        if self._connection is not None:
            limit = self._deadline.within(3.0)
            self._send({"kind": "bye"})
            while wait and not limit.over:
                try:
                    kind, value = self._events.get(timeout=max(limit.left, 1e-3))
                except queue.Empty:
                    break
                if kind == "lost" or (kind == "message" and value["kind"] == "end"):
                    break
        self.close()

    def close(self) -> None:
        """Closes what phases kept, for two seconds at most each."""
        for each in list(self._kept.values()):
            with contextlib.suppress(Exception):
                limited(2.0, getattr(each, "close", lambda: None))
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # for the reader's socket too
            self._connection.close()

    def _arrive(self) -> None:
        """Connects and joins; afterwards reads the connection."""
        try:
            found = self._road.open(self._deadline.within(share(self._settings, ExamPhase.RENDEZVOUS)))
        except Unreached as why:
            self._events.put(("lost", why.about))
            return
        patience = Deadline(self._patience_s)
        try:
            self._road.announce("join the others at the hub")
            wire.send(found, self._introduction(), patience)
            answer = wire.receive(found, patience, Welcome | Refused)
        except wire.WireError as error:
            self._lose(error, "the hub accepted this rank's connection, but joining failed")
            return
        refused = answer.get("reason", "")
        if refused and not answer["stay"]:
            self._events.put(("lost", {"reached": False, "kind": "garbage", "sentence": f"it does not understand this rank: {refused}"}))
            return
        # A socket's timeout is one for all threads: the sender's, set just before the reader waits, would end the reader's wait early, and
        # a hub that waits for another rank would count as silent. So the sender has a second socket for the same connection.
        self._connection = found.dup()
        self._events.put(("arrived", refused))
        patience_s = self._patience_s
        try:
            while True:
                message = wire.receive(found, Deadline(patience_s), ToRank)
                if message["kind"] == "judged":
                    patience_s += message["for_s"]
                if message["kind"] != "alive":
                    self._events.put(("message", message))
        except wire.WireError as error:
            self._lose(error)

    def _lose(self, error: wire.WireError, where: str = "the connection to the hub") -> None:
        """Reports the end of the connection: the hub's process is silent, or it has ended."""
        how = "silent" if error.kind == "silent" else "closed"
        self._events.put(("lost", {"reached": True, "lost": how, "sentence": f"{where}: {error}"}))

    def _send(self, message: Mapping[str, Any]) -> None:
        """Sends a message to the hub, which knows this rank; a failure becomes a ``lost`` event."""
        assert self._connection is not None
        try:
            wire.send(self._connection, message, self._deadline.within(self._patience_s))
        except wire.WireError as error:
            self._lose(error)

    def _open_early(self) -> None:
        """Opens ports that other ranks must know, and starts what takes long to start."""
        try:
            self._kept["listener"] = PeerListener(self._settings, self.identity.rank, self._host)
        except OSError as error:
            self._announce(ExamPhase.FACTS, f"open a listening port: {error}")
        if any(phase.in_child for phase in chosen(self._settings)):
            self._kept["child"] = Child(self.identity, self._settings, host=self._host)  # imports torch while the ranks meet

    def _introduction(self) -> dict[str, Any]:
        listener, child = self._kept.get("listener"), self._kept.get("child")
        listen = {
            "address": self._host or address_of(self._settings.ifname),
            "port": listener.port if listener else 0,
            "store_port": child.store_port if child else 0,
        }
        return {"kind": "join", "identity": self.identity, "pid": os.getpid(), "listen": listen, "t": time.time()}

    def _finish_arrival(self) -> None:
        assert self._road.address is not None
        address, port = self._road.address
        self._settings = replace(self._settings, endpoint=f"{address}:{port}")
        self._announce(ExamPhase.RENDEZVOUS, "wait for the other ranks")
        if self._refused:
            return
        data = {"ifname": self._settings.ifname, "ifname_address": address_of(self._settings.ifname)}
        seconds = self._deadline.seconds - self._deadline.left
        self._results[ExamPhase.RENDEZVOUS] = PhaseResult(ExamPhase.RENDEZVOUS, self.identity.rank, "ok", seconds=seconds, data=data)
        for result in self._results.values():
            self._send({"kind": "result", "result": result})

    def _obey(self, message: Mapping[str, Any]) -> None:
        entries = {int(rank): entry for rank, entry in message["roster"].items()}
        if self.identity.rank in entries:  # the hub numbers nodes where the launcher does not
            self.identity = entries[self.identity.rank]["identity"]
        self._roster = {**self._roster, **{rank: {**entry, "identity": to_json(entry["identity"])} for rank, entry in entries.items()}}
        self._start(message["phase"], message["budget_s"], unspanned(message["alive"], self.identity.world_size), message["meetings"])

    def _start(self, phase: ExamPhase, budget_s: float, alive: tuple[int, ...] = (), meetings: Sequence[tuple[int, int]] = ()) -> None:
        deadline = self._deadline.within(budget_s)
        context = Context(
            identity=self.identity,
            settings=self._settings,
            roster=self._roster,
            deadline=deadline,
            announce=partial(self._announce, phase),
            alive=alive,
            meetings=meetings,
            kept=self._kept,
        )
        self._announce(phase, f"start {phase.label}")
        threading.Thread(target=self._do, args=(phase, context), name=f"doctor-{phase.label}", daemon=True).start()

    def _do(self, phase: ExamPhase, context: Context) -> None:
        """Runs one phase, in a separate thread, until its time is over."""
        started = time.monotonic()
        limit_s = context.deadline.left
        status: Status = "failed"
        doing = error = ""
        data: Mapping[str, Any] = {}
        try:
            data = limited(limit_s + _GRACE_S, partial(_run, phase, context))
            status = "ok"
        except PhaseFailed as failed:
            error, data = failed.sentence, failed.data
        except Overdue:
            status, error = "timeout", f"not done within {limit_s:.1f} s"
        except BaseException as bug:  # of the doctor: the rank goes on and reports it
            error, data = f"{type(bug).__name__}: {bug}", {"internal": traceback.format_exc(limit=-6)}
        if status != "ok":
            doing = self._doing[1] if self._doing[0] == phase else ""
            error += f": {doing}" if status == "timeout" and doing else ""
        seconds = time.monotonic() - started
        self._events.put(("done", PhaseResult(phase, context.identity.rank, status, seconds=seconds, doing=doing, error=error, data=data)))

    def _finish(self, result: PhaseResult) -> None:
        self._results[result.phase] = result
        self._announce(result.phase, f"wait for the other ranks after {result.phase.label}")
        if self._connection is not None and not self._refused:
            self._send({"kind": "result", "result": result})

    def _announce(self, phase: ExamPhase, what: str) -> None:
        # While facts are gathered and the hub is looked for at the same time, only the rendezvous is reported.
        if phase >= self._doing[0] or phase > ExamPhase.RENDEZVOUS:
            self._doing = (phase, what, time.monotonic())

    def _outcome(self, **how: Any) -> Outcome:
        return Outcome(refused=self._refused, results=tuple(self._results.values()), **how)


def _run(phase: ExamPhase, context: Context) -> Mapping[str, Any]:
    if phase.in_child:
        return run_in_child(phase, context)
    data: Mapping[str, Any] = importlib.import_module(f"numscope.doctor.phases.{phase.label}").run(context)
    return data
