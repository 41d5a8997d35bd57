"""A rank's connection to the hub: a thread of its own arrives, joins and receives messages; the rank's main thread sends.

Everything that happens becomes an event, a (kind, value) pair, in the rank's queue:

    arrived    the hub accepted the introduction; value: why this rank is not admitted, or ""
    message    from the hub
    lost       the hub was never reached, or the connection ended; value: why, as in ``Examined.hub``
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.budget import SILENT_S, Deadline, share
from numscope.doctor.meet import wire
from numscope.doctor.meet.messages import Clock, Refused, ToRank, Welcome
from numscope.doctor.meet.road import Road, Unreached
from numscope.doctor.records import Phase, Settings, to_json

_EXCHANGES = 5  # comparisons of clocks; the fastest counts

Event = tuple[str, Any]


@dataclass(eq=False)
class Uplink:
    """The connection."""

    road: Road  # the way to the hub
    settings: Settings
    deadline: Deadline  # for the whole examination
    events: queue.SimpleQueue[Event]  # where events go
    introduce: Callable[[], Mapping[str, Any]]  # makes the message with which this rank joins, once clocks are compared
    clock: dict[str, float] = field(default_factory=dict)  # as ``exchange_clocks`` returns it
    _connection: socket.socket | None = None

    def start(self) -> None:
        """Begins to look for the hub; does not block."""
        threading.Thread(target=self._arrive, name="doctor-arrive", daemon=True).start()

    @property
    def _patience_s(self) -> float:
        return max(SILENT_S * self.settings.timeout_scale, 0.5)

    @property
    def joined(self) -> bool:
        """Whether the hub knows this rank."""
        return self._connection is not None

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message; a failure becomes a ``lost`` event."""
        assert self._connection is not None
        try:
            wire.send(self._connection, message, self.deadline.within(self._patience_s))
        except wire.WireError as error:
            self._lost(error)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # for the reader's socket too
            self._connection.close()

    def _arrive(self) -> None:
        """Connects, compares clocks and joins; afterwards reads the connection."""
        found = self.road.open(self.deadline.within(share(self.settings, Phase.RENDEZVOUS)))
        if isinstance(found, Unreached):
            self.events.put(("lost", {"reached": False, **to_json(found)}))
            return
        patience = Deadline(self._patience_s)
        try:
            self.road.announce("compare clocks with the hub")
            self.clock = exchange_clocks(found, patience)
            self.road.announce("join the others at the hub")
            wire.send(found, self.introduce(), patience)
            answer = wire.receive(found, patience, Welcome | Refused)
        except wire.WireError as error:
            self._lost(error, "the hub accepted this rank's connection, but joining failed")
            return
        refused = answer.get("reason", "")
        if refused and not answer["stay"]:
            self.events.put(("lost", {"reached": False, "kind": "garbage", "sentence": f"it does not understand this rank: {refused}"}))
            return
        # A socket's timeout is one for all threads: the sender's, set just before the reader waits, would end the reader's wait early, and
        # a hub that waits for another rank would count as silent. So the sender has a socket of its own, for the same connection.
        self._connection = found.dup()
        self.events.put(("arrived", refused))
        try:
            while True:
                message = wire.receive(found, Deadline(self._patience_s), ToRank)
                if message["kind"] != "clock":
                    self.events.put(("message", message))
        except wire.WireError as error:
            self._lost(error)

    def _lost(self, error: wire.WireError, where: str = "the connection to the hub") -> None:
        """Reports the end of the connection: the hub's process is silent, or it has ended."""
        how = "silent" if error.kind == "silent" else "closed"
        self.events.put(("lost", {"reached": True, "lost": how, "sentence": f"{where}: {error}"}))


def exchange_clocks(connection: socket.socket, deadline: Deadline) -> dict[str, float]:
    """``offset_s``, this host's clock minus the hub's, and ``round_trip_s`` of that measurement.

    The error of the offset is at most half the round trip.
    *Source:* RFC 5905, section 8, with the server's two times taken as one.

    Raises: WireError.
    """
    best = {"offset_s": 0.0, "round_trip_s": float("inf")}
    for _ in range(_EXCHANGES):
        before, sent = time.monotonic(), time.time()
        wire.send(connection, {"kind": "time", "t": sent}, deadline)
        answer = wire.receive(connection, deadline, Clock)
        trip = time.monotonic() - before
        if trip < best["round_trip_s"]:
            best = {"offset_s": sent + trip / 2 - answer["hub"], "round_trip_s": trip}
    return best
