"""The hub's side of a rank: its connection, its state, and the number of its node."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numscope.doctor.meet.messages import Introduced, ToHub
from numscope.doctor.meet.wire import HEAD_BYTES, check_marks, length_of, pack, unpack
from numscope.doctor.records import ExamPhase, Identity

How = Literal["here", "silent", "died", "left"]


@dataclass(slots=True)
class Member:
    """A rank that joined."""

    guest: Guest  # its connection
    introduced: Introduced  # as it introduced itself
    admitted: bool  # whether it takes part; the others (a second rank 1, for example) only wait for the verdict
    how: How = "here"  # here; silent: its heartbeat stopped; died: its connection ended; left: it announced that a signal ends it
    detail: str = ""
    phase: ExamPhase = ExamPhase.FACTS  # the one it announced last
    doing: str = ""  # the step it announced last
    since: float = field(default_factory=time.monotonic)  # on the hub's monotonic clock
    offset_s: float = -math.inf  # the rank's clock minus the hub's
    last_beat: float = field(default_factory=time.monotonic)
    said_bye: bool = False

    @property
    def identity(self) -> Identity:
        return self.introduced["identity"]

    @property
    def process(self) -> str:
        """``node3 (process 4711)``."""
        return f"{self.identity.hostname} (process {self.introduced['pid']})"

    @property
    def here(self) -> bool:
        return self.how == "here"

    def lose(self, how: How, detail: str) -> None:
        """Notes that the rank is gone; the first reason counts."""
        if self.here:
            self.how, self.detail = how, detail

    def beat(self, phase: ExamPhase, doing: str, for_s: float, clock: float) -> None:
        """Takes in a heartbeat: the rank has been at a step for ``for_s`` seconds, and what its clock showed."""
        self.last_beat = time.monotonic()
        self.phase, self.doing, self.since = phase, doing, self.last_beat - for_s
        self.offset_s = max(self.offset_s, clock - time.time())  # the message that traveled least is the most exact

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
        self.has_sent = False  # anything at all
        self._reader = reader
        self._writer = writer

    def answer(self, message: Mapping[str, Any]) -> None:
        """Sends a message; in the hub's thread only."""
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
            self.has_sent = True
            data += piece
            check_marks(data, marks)
        return data

    async def receive(self) -> Any:
        """The next message. Raises: EOFError, OSError, WireError."""
        length = length_of(await self._reader.readexactly(HEAD_BYTES))
        return unpack(await self._reader.readexactly(length), ToHub)

    def close(self) -> None:
        """Closes the connection once everything is sent."""
        self._writer.close()

    async def sent(self) -> None:
        """Sends everything, and closes the connection."""
        self.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class NodeNumbers:
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
            return refusal("world_size", f"{who} was started with --nnodes {nodes} --nproc {nproc}, {self._taken[0]} with {ours}")
        if wish in self._taken:
            return refusal("duplicate", f"{who} and {self._taken[wish]} both claim node number {wish}")
        free = (number for number in range(nodes) if number not in self._taken)
        node = wish if wish >= 0 else next(free, nodes)
        if node >= nodes:
            if wish < 0:
                return refusal("duplicate", f"{who} is one node more than --nnodes {nodes}")
            return refusal("rank", f"{who} was started with node_rank {wish}, expected 0 to {nodes - 1}")
        self._taken[node] = who
        return {"kind": "place", "node": node}


def refusal(why: str, reason: str, *, stay: bool = False) -> dict[str, Any]:
    """The message to who does not take part; with ``stay`` it may wait for the verdict."""
    return {"kind": "refused", "why": why, "reason": reason, "stay": stay}
