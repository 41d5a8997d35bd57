"""What the hub knows of one rank: who it is, what it is about to do, whether it is still there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from numscope.doctor.records import Identity

How = Literal["here", "silent", "died", "left"]


@dataclass(slots=True)
class Member:
    """A rank that showed the token and said who it is.

    Args:
        key: what its heartbeat connection shows, so that no other rank beats for it.
        admitted: takes part; others (a second rank 1) only look on until the verdict.
        how: here; silent: no heartbeat; died: its connection broke off; left: it said that a signal ends it.
        phase, doing, since: what it said last that it is about to do, ``since`` on the hub's monotonic clock.
    """

    identity: Identity
    key: str
    admitted: bool
    seen: str
    pid: int = 0
    listen: Mapping[str, Any] = field(default_factory=dict)
    offset_s: float = 0.0
    round_trip_s: float = 0.0
    how: How = "here"
    detail: str = ""
    phase: int = 0
    doing: str = ""
    since: float = field(default_factory=time.monotonic)
    last_beat: float = field(default_factory=time.monotonic)
    said_bye: bool = False

    @property
    def here(self) -> bool:
        return self.how == "here"

    def says(self, phase: int, doing: str, for_s: float) -> None:
        """It is about to do something, since ``for_s`` seconds."""
        self.phase, self.doing, self.since = phase, doing, time.monotonic() - for_s

    def last_words(self) -> str:
        """What it said last and how long ago that is: ``connect to node3:4711, for 2.1 s``."""
        return f"{self.doing}, for {time.monotonic() - self.since:.1f} s" if self.doing else ""


def seats(members: Mapping[int, Member]) -> dict[int, Identity]:
    """The ranks' identities; nodes numbered by host name where the launcher (MPI) says no numbers."""
    identities = {rank: member.identity for rank, member in sorted(members.items())}
    if not any(identity.launcher == "mpi" for identity in identities.values()):
        return identities
    hosts: dict[str, int] = {}
    for identity in identities.values():
        hosts.setdefault(identity.hostname, len(hosts))
    return {rank: _moved(identity, hosts[identity.hostname], len(hosts)) for rank, identity in identities.items()}


def _moved(identity: Identity, node: int, num_nodes: int) -> Identity:
    return replace(identity, node=node, num_nodes=num_nodes)
