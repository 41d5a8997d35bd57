"""Phase 3: links between two nodes, each direction separately, with plain sockets.

On each node one rank, the lowest that is alive, examines the node's outgoing links; the others check that they reach that rank. Up to 32
nodes (8 with ``quick``) examine all links; more nodes examine some, in log2 N rounds (rounds.py). First each rank connects to all its
partners at once, so that dead ones cost one timeout together. Then it measures those that it reached, one after the other, in a share of
the time that is left. Rounds only spread the work: no node waits for another. A lock per node, taken in the order of the nodes, keeps two
transfers from loading a node at the same time.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.listener import BURST, PATIENCE_S, PING, PeerListener, datagram
from numscope.doctor.meet.messages import Go, Here, Opened
from numscope.doctor.meet.sockets import connect, failure_of, family_of, is_own, take
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.records import Cell, Word, to_json
from numscope.records.words import few

CONNECT_S = 3.5  # the kernel needs 3 s to notice that no host has an address, and sends a lost SYN again after 1 and 3 s
CONNECT_AGAIN_S = 1.5  # to one that was reached a moment ago
PAYLOAD_S = 2.5  # a lost segment is sent again after 0.2, 0.6 and 1.4 s
PAYLOAD_BYTES = 64 << 10
PINGS = 20
BURST_BYTES = {True: 1 << 20, False: 4 << 20}  # largest burst, by quick
BURSTS_S = {True: 0.5, False: 1.0}  # at most, and of the time that is left for a link this share: both directions take turns
BURSTS_SHARE, LEAST_BURSTS_S = 0.3, 0.45  # less could not tell a slow link from a busy host (diagnose/speed.py)
FEWEST_BURSTS, MOST_BURSTS = 8, 64  # the first ones only open TCP's window
DATAGRAMS = 3
_RESERVED_S = 1.0  # kept of the phase's time, to end in order


def run(context: Context) -> dict[str, Any]:
    """Examines the outgoing links of this rank's node. Raises: PhaseFailed if one does not work."""
    listener = context.kept.get("listener")
    if not isinstance(listener, PeerListener):
        raise PhaseFailed("this rank has no listener, so nobody can examine its links", {"cells": []})
    mine, examiner = context.identity.node, Examiner(context, listener)
    cells = [examiner.cell(number, rank) for number, rank in context.meetings]
    examiner.reach(cells)
    data: dict[str, Any] = {"node": mine, "representative": context.identity.rank, "cells": [], "loopback": None}
    if any(cell.to_node == mine for cell in cells):
        data |= {"representative": cells[0].to_rank, "loopback": to_json(cells[0])}
    else:
        examiner.measure([cell for cell in cells if cell.status == "ok"])
        data["cells"] = list(map(to_json, cells))
        _wait_for_datagrams(context, listener, cells)
    data["heard"] = {str(rank): count for rank, count in sorted(listener.heard.items())}
    broken = [cell for cell in cells if not cell.works]
    if broken:
        raise PhaseFailed(few([f"{c.from_host} to {c.to_host} ({c.address}:{c.port}): {c.error}" for c in broken], 1), data)
    return data


def _wait_for_datagrams(context: Context, listener: PeerListener, cells: list[Cell]) -> None:
    """Waits a moment for datagrams of nodes that could not be reached, which may be slightly behind us."""
    awaited = {cell.to_rank for cell in cells if cell.status in ("dropped", "unreachable")}
    ends = context.deadline.within(0.5 * context.settings.timeout_scale)
    while awaited - set(listener.heard) and not ends.over:
        time.sleep(0.02)


class Examiner:
    """Examines this rank's links."""

    def __init__(self, context: Context, listener: PeerListener) -> None:
        self._context = context
        self._listener = listener
        self._scale = context.settings.timeout_scale
        self._deadline = context.deadline.within(max(context.deadline.left - _RESERVED_S, context.deadline.left / 2))
        self._burst_s = 0.0
        port = context.settings.endpoint.rpartition(":")[2]
        self._known_port = int(port) if port.isdecimal() else 0

    def cell(self, number: int, rank: int) -> Cell:
        """The link to a rank, which is met in round ``number``."""
        identity, entry = self._context.identity, self._context.roster[rank]
        listen, other = entry.get("listen") or {}, entry["identity"]
        address, port = str(listen.get("address") or entry.get("address", "")), int(listen.get("port") or 0)
        host = str(other.get("hostname", ""))
        cell = Cell(identity.node, int(other["node"]), identity.rank, rank, identity.hostname, host, address, port, number)
        if not port:
            cell.status, cell.error = "skipped", "that rank has no listener"
        return cell

    def reach(self, cells: list[Cell]) -> None:
        """Connects to all at once; a link that fails here has its status."""
        self._context.announce(f"connect to {few([_name(cell) for cell in cells], 3) or 'nobody, as there is one node'}")
        threads = [threading.Thread(target=self._reach, args=(cell,), daemon=True) for cell in cells if cell.status == "ok"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # each wait in it has a limit

    def measure(self, cells: list[Cell]) -> None:
        """Measures links that were reached, one after the other."""
        for at, cell in enumerate(cells):
            share_s = max(LEAST_BURSTS_S, BURSTS_SHARE * self._deadline.left / (len(cells) - at))
            self._burst_s = min(BURSTS_S[self._context.settings.quick], share_s)
            if self._deadline.left < 0.1:
                cell.status, cell.error = "skipped", "no time was left for it"
            elif connection := self._open(cell, CONNECT_AGAIN_S):
                with connection:
                    with self._noting_failure(cell, PATIENCE_S):
                        self._measure(cell, connection)
                    cell.segments, cell.retransmitted, cell.mss, cell.pmtu = tcp_info(connection)
                cell.loss = cell.retransmitted / max(cell.segments, 1)

    def _reach(self, cell: Cell) -> None:
        self._send_datagrams(cell)
        if connection := self._open(cell, CONNECT_S):
            connection.close()
        if cell.connect_s:  # or something answered there
            return
        if self._known_port and cell.status in ("dropped", "refused", "unreachable"):
            cell.known = self._status(cell.address, self._known_port)
        self._send_datagrams(cell)
        if cell.to_host != cell.from_host and is_own(cell.address):
            error = f"{cell.address} was announced as {cell.to_host}'s address, but {cell.from_host} has it too: {cell.error}"
            cell.status, cell.error = "stranger", error

    def _open(self, cell: Cell, seconds: float) -> socket.socket | None:
        """A connection to the rank that is meant, or None, with the cell's status and error."""
        connection = None
        with self._noting_failure(cell, seconds):
            started = time.monotonic()
            connection = connect(cell.address, cell.port, self._within(seconds).left)
            cell.connect_s = time.monotonic() - started
            wire.authenticate(connection, self._context.settings.token, self._within(PATIENCE_S))
            hello = wire.receive(connection, self._within(PATIENCE_S), Here)
            if hello["rank"] == cell.to_rank:
                return connection
            cell.status = "stranger"
            cell.error = f"rank {hello['rank']} answers at {_name(cell)} instead of rank {cell.to_rank}: several nodes have this address"
        if connection is not None:
            connection.close()
        return None

    @contextlib.contextmanager
    def _noting_failure(self, cell: Cell, seconds: float) -> Iterator[None]:
        seconds = self._within(seconds).left
        try:
            yield
        except wire.WireError as error:
            words: dict[str, Word] = {"silent": "silent", "closed": "reset", "token": "denied"}
            cell.status, cell.error = words.get(error.kind, "stranger"), str(error)
        except OSError as error:
            cell.status, cell.error = failure_of(error, seconds)

    def _measure(self, cell: Cell, connection: socket.socket) -> None:
        announce, name = self._context.announce, _name(cell)
        announce(f"ping {name}")
        self._begin_bursts(connection, alone=False)
        times = [self._burst(connection, PING, PATIENCE_S) for _ in range(PINGS)]
        cell.rtt_s, cell.rtt_min_s = statistics.median(times), min(times)
        announce(f"send {PAYLOAD_BYTES:,} bytes to {name}")
        try:
            cell.payload_s = self._burst(connection, bytes(PAYLOAD_BYTES), PAYLOAD_S)
        except TimeoutError:  # pings passed, so it stalls because of its size
            limit_s = PAYLOAD_S * self._scale
            cell.status, cell.error = "stalled", f"{len(PING)} bytes pass, {PAYLOAD_BYTES:,} do not within {limit_s:.1f} s"
            return
        connection.sendall(BURST.pack(0))
        announce(f"measure throughput to {name}")
        self._measure_throughput(cell, connection)
        # Last, as the other side then waits for a connection that may never come.
        wire.send(connection, {"kind": "ephemeral"}, self._within(PATIENCE_S))
        fresh = wire.receive(connection, self._within(PATIENCE_S), Opened)["port"]
        announce(f"connect to {cell.to_host} ({cell.address}:{fresh}), a fresh port")
        cell.ephemeral = self._status(cell.address, fresh)
        if cell.ephemeral != "ok":
            cell.error = f"port {cell.port} works, but port {fresh}, opened there just now, is {cell.ephemeral}"

    def _begin_bursts(self, connection: socket.socket, *, alone: bool) -> bool:
        wire.send(connection, {"kind": "bursts", "alone": alone}, self._within(PATIENCE_S))
        return bool(wire.receive(connection, self._within(2 * PATIENCE_S), Go)["go"])

    def _burst(self, connection: socket.socket, data: bytes | memoryview, limit_s: float) -> float:
        """Seconds until the other side has acknowledged these bytes."""
        deadline = self._within(limit_s)
        connection.settimeout(max(deadline.left, 1e-3))
        started = time.perf_counter()
        connection.sendall(BURST.pack(len(data)))
        connection.sendall(data)
        take(connection, len(PING), deadline)
        return max(time.perf_counter() - started, 1e-6)

    def _measure_throughput(self, cell: Cell, connection: socket.socket) -> None:
        """Sends for a limited time while neither node is loaded; both nodes' locks are held, taken in the order of the nodes."""
        first = cell.from_node < cell.to_node
        patience_s = min(PATIENCE_S * self._scale, self._deadline.left / 2)
        load = self._listener.load
        if first and not load.acquire(timeout=patience_s):
            return
        held = first
        try:
            if self._begin_bursts(connection, alone=True):
                held = held or load.acquire(timeout=patience_s)
                if held:
                    self._bursts(cell, connection)
                connection.sendall(BURST.pack(0))
        finally:
            if held:
                load.release()

    def _bursts(self, cell: Cell, connection: socket.socket) -> None:
        """Sends bursts, each until the other side has acknowledged it.

        A host that is busy for a moment makes a burst slow, never fast. So the fastest burst represents the link, and more are sent until
        the two fastest agree.
        """
        speeds: list[float] = []
        losses: list[tuple[int, int]] = []
        before = tcp_info(connection)
        piece, rate = bytes(BURST_BYTES[self._context.settings.quick]), PAYLOAD_BYTES / cell.payload_s
        ends = time.monotonic() + self._burst_s
        while time.monotonic() < ends and len(speeds) < MOST_BURSTS:
            if len(speeds) >= FEWEST_BURSTS:
                second, best = sorted(speeds)[-2:]
                if second > 0.8 * best:
                    break
            size = int(min(len(piece), max(PAYLOAD_BYTES, rate * self._burst_s / 4)))
            rate = size / self._burst(connection, memoryview(piece)[:size], PATIENCE_S)
            speeds.append(rate)
            cell.bytes += size
            after = tcp_info(connection)
            losses.append((after[0] - before[0], after[1] - before[1]))
            before = after
        cell.bytes_per_s, cell.burst_losses = max(speeds, default=0.0), tuple(losses)

    def _within(self, seconds: float) -> Deadline:
        return self._deadline.within(seconds * self._scale)

    def _status(self, address: str, port: int) -> Word:
        limit = self._within(CONNECT_S)
        try:
            connect(address, port, limit.left).close()
        except OSError as error:
            return failure_of(error, limit.seconds)[0]
        return "ok"

    def _send_datagrams(self, cell: Cell) -> None:
        with contextlib.suppress(OSError), socket.socket(family_of(cell.address), socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for _ in range(DATAGRAMS):
                sender.sendto(datagram(self._context.settings.token, self._context.identity.rank), (cell.address, cell.port))


def _name(cell: Cell) -> str:
    return f"{cell.to_host} ({cell.address}:{cell.port})"


def tcp_info(connection: socket.socket) -> tuple[int, int, int, int]:
    """Segments sent, segments retransmitted for a reason, MSS and path MTU, as the kernel knows them; zeros on other systems than Linux.

    *Source:* struct tcp_info in linux/tcp.h, whose fields keep their offsets.
    """
    if sys.platform != "linux":
        return 0, 0, 0, 0
    try:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return 0, 0, 0, 0

    def word(offset: int) -> int:
        return int(struct.unpack_from("=I", data, offset)[0]) if len(data) >= offset + 4 else 0

    segments, retransmitted, needless = word(156), word(100), word(216)
    return segments, max(0, retransmitted - needless), word(16), word(60)
