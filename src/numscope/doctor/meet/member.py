"""What the hub knows about one rank: who it is, what it is about to do, whether it is still there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from numscope.doctor.records import Identity, Phase

How = Literal["here", "silent", "died", "left"]


@dataclass(slots=True)
class Member:
    """A rank that joined."""

    identity: Identity
    key: str  # identifies the rank's heartbeat connection, so that no other rank can send its heartbeats
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


def identities(members: Mapping[int, Member]) -> dict[int, Identity]:
    """The identity of each rank; nodes are numbered by host name where the launcher (MPI) gives no numbers."""
    found = {rank: member.identity for rank, member in sorted(members.items())}
    if not any(identity.launcher == "mpi" for identity in found.values()):
        return found
    hosts = {host: number for number, host in enumerate(dict.fromkeys(identity.hostname for identity in found.values()))}
    return {rank: replace(identity, node=hosts[identity.hostname], num_nodes=len(hosts)) for rank, identity in found.items()}
