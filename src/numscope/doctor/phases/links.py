"""Phase 3: every link between two nodes, each direction by itself, with nothing but sockets.

Of each node one rank, the smallest that is alive, examines the links that go out of it; the others look whether they reach that rank.
Nodes meet in the rounds of a tournament: N - 1 of them, or log2 N with ``quick`` and more than 8 nodes (then those meet whose numbers
differ in one bit). Rounds only spread the work: a node waits for nobody, so one that is dead costs each other node its own timeout once.
That no node is loaded twice at once is held by a lock a node, taken in the order of the nodes.

Data of a rank:
    ``node``, ``representative`` (rank that examines this node's links), ``rounds`` (their number), ``nodes`` (how many there are)
    ``heard``: {rank: datagrams of it that came}. A rank sends three before it connects: heard, though it can't connect to us nor we to it,
        means that this direction works. JSON makes strings of the keys.
    ``loopback``: a cell to this node's representative, of ranks that are not it
    ``cells``: one a link that goes out of this node:
        ``from``, ``to`` (nodes), ``from_rank``, ``to_rank``, ``from_host``, ``to_host``, ``address``, ``port``, ``round``
        ``status``: ok
            refused (nothing listens there, or a firewall says so) | dropped (no answer at all) | unreachable (no route, or nobody has the
            address) | reset | silent (the kernel of the other side took the connection, the process says nothing) | stranger (something
            else, or another rank, listens there: a wrong address) | denied (token) | stalled (small messages pass, 64 KiB do not:
            an MTU on the way is smaller than both ends believe) | skipped (no time was left) | failed (anything else)
        ``error``: a sentence, "" where ok
        ``known``: of a link that is dropped, refused or unreachable, what the hub's port number at that address does. ok or refused:
            packets pass, and the port numbers differ in what a firewall lets through
        ``ephemeral``: the same words, of a fresh port that the other side opened on request, as gloo and NCCL do
        ``connect_s``, ``rtt_s`` (median of pings), ``rtt_min_s``, ``payload_s`` (64 KiB and an answer)
        ``bytes`` of all bursts, ``bytes_per_s`` of the quickest one, with the answer that it came; absent where either node was too busy
        ``segments``, ``retransmitted`` (less those sent again needlessly), ``loss`` (their ratio), ``mss``, ``pmtu``: from the kernel,
            Linux only. A full queue loses packets too: a link that is slow says so first
        ``burst_losses``: of each burst the segments, and how many of them were sent again (below 0 where those before turn out needless)
"""

from __future__ import annotations

import contextlib
import errno
import socket
import statistics
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.listener import BURST, PATIENCE_S, PING, Listener, datagram, take
from numscope.doctor.phases.context import Context, PhaseFailed

CONNECT_S = 3.5  # the kernel needs 3 s to say that nobody has an address, and sends a lost SYN again after 1 and 3 s
CONNECT_AGAIN_S = 1.5  # once two were dropped: the rest would otherwise eat the whole budget
PAYLOAD_S = 2.5  # a lost segment is sent again after 0.2, 0.6 and 1.4 s
PAYLOAD_BYTES = 64 << 10
PINGS = 20
BURST_BYTES = {True: 1 << 20, False: 4 << 20}  # by quick, at most
BURSTS_S = {True: 0.5, False: 1.0}
FEWEST_BURSTS, MOST_BURSTS = 8, 64  # the first ones only open TCP's window
DATAGRAMS = 3
QUICK_NODES = 8  # of so many or fewer, all pairs meet with ``quick`` too: a link that was not looked at can't be named

_KEPT_S = 1.0  # of the phase's time, to end in order


def run(context: Context) -> dict[str, Any]:
    """Examines the links that go out of this rank's node.

    Raises: PhaseFailed where one does not work.
    """
    listener = context.kept.get("listener")
    if not isinstance(listener, Listener):
        raise PhaseFailed("this rank has no listener, so that nobody can examine its links", {"cells": []})
    listener.rank = context.identity.rank
    chosen = representatives(context)
    mine = context.identity.node
    plan = partners(sorted(chosen).index(mine), len(chosen), context.settings.quick)
    data: dict[str, Any] = {
        "node": mine,
        "nodes": len(chosen),
        "representative": chosen[mine],
        "rounds": len(plan),
        "cells": [],
        "loopback": {},
        "heard": {},
    }
    examiner = _Examiner(context, listener)
    if context.identity.rank != chosen[mine]:
        data["loopback"] = examiner.cell(mine, chosen[mine], 0, only_reach=True)
        broken = [data["loopback"]]
    else:
        for number, partner in enumerate(plan):
            if partner is not None:
                node = sorted(chosen)[partner]
                data["cells"].append(examiner.cell(node, chosen[node], number))
        broken = data["cells"]
        _wait_for_datagrams(context, listener, data["cells"])
    data["heard"] = {str(rank): count for rank, count in sorted(listener.heard.items())}
    broken = [cell for cell in broken if cell["status"] != "ok" or cell.get("ephemeral", "ok") != "ok"]
    if broken:
        first = broken[0]
        more = f"; and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise PhaseFailed(f"{first['from_host']} to {first['to_host']} ({first['address']}:{first['port']}): {first['error']}{more}", data)
    return data


def representatives(context: Context) -> dict[int, int]:
    """Of each node the rank that examines its links: the smallest that is alive."""
    chosen: dict[int, int] = {}
    for rank in sorted(set(context.alive or context.roster) & set(context.roster) | {context.identity.rank}):
        node = context.identity.node if rank == context.identity.rank else int(context.roster[rank]["identity"]["node"])
        chosen.setdefault(node, rank)
    return chosen


def partners(index: int, count: int, quick: bool) -> list[int | None]:
    """Whom a node meets in each round; None where it rests. Two nodes that meet do so in the same round.

    Args:
        index: of the node among ``count``.
        quick: of many nodes only those whose numbers differ in one bit, so that all are connected through others.
    """
    if quick and count > QUICK_NODES:
        bits = max(count - 1, 0).bit_length()
        return [index ^ (1 << bit) if index ^ (1 << bit) < count else None for bit in range(bits)]
    odd = count - 1 + count % 2  # of an even number of players one stays, the others turn around
    found: list[int | None] = []
    for number in range(odd if count > 1 else 0):
        if index == odd:
            other = number * (odd + 1) // 2 % odd
        else:
            other = (number - index) % odd
            other = odd if other == index else other
        found.append(other if other < count else None)
    return found


class _Examiner:
    """The connecting side of this rank's links."""

    def __init__(self, context: Context, listener: Listener) -> None:
        self._context = context
        self._listener = listener
        self._scale = context.settings.timeout_scale
        self._deadline = context.deadline.within(max(context.deadline.left - _KEPT_S, context.deadline.left / 2))
        self._dropped = 0
        port = context.settings.endpoint.rpartition(":")[2]
        self._known_port = int(port) if port.isdigit() else 0

    def cell(self, node: int, rank: int, number: int, only_reach: bool = False) -> dict[str, Any]:
        """One link, as the module says."""
        identity, entry = self._context.identity, self._context.roster[rank]
        where = entry.get("listen") or {}
        address, port = str(where.get("address") or entry.get("address", "")), int(where.get("port") or 0)
        cell: dict[str, Any] = {
            "from": identity.node,
            "to": node,
            "from_rank": identity.rank,
            "to_rank": rank,
            "from_host": identity.hostname,
            "to_host": str(entry["identity"].get("hostname", "")),
            "address": address,
            "port": port,
            "round": number,
            "status": "ok",
            "error": "",
        }
        if self._deadline.left < 0.1:
            return cell | {"status": "skipped", "error": "no time was left for it"}
        if not port:
            return cell | {"status": "skipped", "error": "that rank has no listener"}
        name = f"{cell['to_host']} ({address}:{port})"
        self._context.say(f"connect to {name}")
        self._send_datagrams(address, port)
        connection = self._connect(cell, address, port)
        if connection is None:
            if self._known_port and cell["status"] in ("dropped", "refused", "unreachable"):
                self._context.say(f"connect to {cell['to_host']} ({address}:{self._known_port})")
                cell["known"] = self._status(address, self._known_port)
            self._send_datagrams(address, port)
            if cell["to_host"] != identity.hostname and _is_here(address):
                told = f"{address} was told as {cell['to_host']}'s address, but is {identity.hostname}'s own too: {cell['error']}"
                cell.update(status="stranger", error=told)
            return cell
        with connection:
            try:
                self._examine(cell, connection, name, only_reach)
            except wire.WireError as error:
                status = {"silent": "silent", "closed": "reset", "token": "denied"}.get(error.kind, "stranger")
                cell.update(status=status, error=str(error))
            except (OSError, KeyError, ValueError, TypeError) as error:
                cell.update(_said(error, "an answer", self._deadline.seconds))
            cell.update(tcp_info(connection))
        return cell

    def _examine(self, cell: dict[str, Any], connection: socket.socket, name: str, only_reach: bool) -> None:
        context = self._context
        wire.authenticate(connection, context.settings.token, self._within(PATIENCE_S))
        hello = wire.receive(connection, self._within(PATIENCE_S), 4096)
        if hello.get("rank") not in (cell["to_rank"], -1):
            told = f"rank {hello.get('rank')} answers at {name}, not rank {cell['to_rank']}: the address is not that node's alone"
            cell.update(status="stranger", error=told)
            return
        context.say(f"ping {name}")
        cell.update(self._ping(connection))
        if only_reach:
            return
        context.say(f"send {PAYLOAD_BYTES:,} bytes to {name}")
        with self._stalled(cell):
            started = time.monotonic()
            deadline = self._within(PAYLOAD_S)
            wire.send(connection, {"do": "payload", "bytes": PAYLOAD_BYTES}, deadline)
            connection.sendall(bytes(PAYLOAD_BYTES))
            wire.receive(connection, deadline, 4096)
            cell["payload_s"] = time.monotonic() - started
        if cell["status"] != "ok":
            return
        context.say(f"measure throughput to {name}")
        cell.update(self._bulk(connection, cell))
        # Last, as the other side then waits for a visitor who may never come.
        wire.send(connection, {"do": "ephemeral"}, self._within(PATIENCE_S))
        fresh = int(wire.receive(connection, self._within(PATIENCE_S), 4096)["port"])
        context.say(f"connect to {cell['to_host']} ({cell['address']}:{fresh}), a fresh port")
        cell["ephemeral"] = self._status(cell["address"], fresh)
        if cell["ephemeral"] != "ok":
            cell["error"] = f"port {cell['port']} works, port {fresh}, freshly opened there, is {cell['ephemeral']}"

    def _ping(self, connection: socket.socket) -> dict[str, float]:
        deadline = self._within(PATIENCE_S)
        wire.send(connection, {"do": "echo", "times": PINGS}, deadline)
        times = []
        for _ in range(PINGS):
            started = time.monotonic()
            connection.sendall(PING)
            take(connection, len(PING), deadline)
            times.append(time.monotonic() - started)
        return {"rtt_s": statistics.median(times), "rtt_min_s": min(times)}

    def _bulk(self, connection: socket.socket, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Sends for a bounded time, while neither node is loaded; both locks are taken, that of the smaller node first."""
        first = cell["from"] < cell["to"]
        patience_s = min(PATIENCE_S * self._scale, self._deadline.left / 2)
        load = self._listener.load
        if first and not load.acquire(timeout=patience_s):
            return {}
        held = first
        try:
            wire.send(connection, {"do": "bulk"}, self._within(PATIENCE_S))
            if not wire.receive(connection, self._within(2 * PATIENCE_S), 4096).get("go"):
                return {}
            held = held or load.acquire(timeout=patience_s)
            bursts, lost = self._bursts(connection, float(cell["payload_s"])) if held else ([], [])
            connection.sendall(BURST.pack(0))
        finally:
            if held:
                load.release()
        if not bursts:
            return {}
        return {"bytes": sum(size for size, _ in bursts), "bytes_per_s": max(size / s for size, s in bursts), "burst_losses": lost}

    def _bursts(self, connection: socket.socket, payload_s: float) -> tuple[list[tuple[int, float]], list[list[int]]]:
        """Bytes and seconds of bursts, each until the other side has said that it came; and each one's segments and how many were lost.

        A host that does something else for a moment makes a burst late, never early: so the quickest one speaks for the link, and there
        are more of them until the two quickest agree.
        """
        quick = self._context.settings.quick
        bursts: list[tuple[int, float]] = []
        lost: list[list[int]] = []
        before = tcp_info(connection)
        piece, rate = bytes(BURST_BYTES[quick]), PAYLOAD_BYTES / payload_s
        ends = time.monotonic() + BURSTS_S[quick]
        while time.monotonic() < ends and len(bursts) < MOST_BURSTS:
            if len(bursts) >= FEWEST_BURSTS:
                best, second, *_ = sorted((size / seconds for size, seconds in bursts), reverse=True)
                if second > 0.8 * best:
                    break
            size = int(min(len(piece), max(PAYLOAD_BYTES, rate * BURSTS_S[quick] / 4)))
            deadline = self._within(PATIENCE_S)
            connection.settimeout(max(deadline.left, 1e-3))
            started = time.perf_counter()
            connection.sendall(BURST.pack(size))
            connection.sendall(memoryview(piece)[:size])
            take(connection, len(PING), deadline)
            bursts.append((size, max(time.perf_counter() - started, 1e-6)))
            after = tcp_info(connection)
            if after:
                lost.append([int(after[name] - before[name]) for name in ("segments", "retransmitted")])
            before = after
            rate = size / bursts[-1][1]
        return bursts, lost

    @contextlib.contextmanager
    def _stalled(self, cell: dict[str, Any]) -> Iterator[None]:
        """What comes to a halt here, though pings passed, did so for its size."""
        try:
            yield
        except (wire.WireError, TimeoutError) as error:
            if isinstance(error, wire.WireError) and error.kind != "silent":
                raise
            told = f"{len(PING)} bytes pass, {PAYLOAD_BYTES:,} do not within {PAYLOAD_S * self._scale:.1f} s"
            cell.update(status="stalled", error=told)

    def _within(self, seconds: float) -> Deadline:
        return self._deadline.within(seconds * self._scale)

    def _timeout(self) -> float:
        return max(self._within(CONNECT_S if self._dropped < 2 else CONNECT_AGAIN_S).left, 0.05)

    def _connect(self, cell: dict[str, Any], address: str, port: int) -> socket.socket | None:
        started, timeout = time.monotonic(), self._timeout()
        try:
            connection = socket.create_connection((address, port), timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            cell.update(_said(error, "a connection", timeout))
            self._dropped += cell["status"] == "dropped"
            return None
        cell["connect_s"] = time.monotonic() - started
        return connection

    def _status(self, address: str, port: int) -> str:
        cell: dict[str, Any] = {"status": "ok"}
        connection = self._connect(cell, address, port)
        if connection is not None:
            connection.close()
        return str(cell["status"])

    def _send_datagrams(self, address: str, port: int) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            for _ in range(DATAGRAMS):
                sender.sendto(datagram(self._context.settings.token, self._context.identity.rank), (address, port))


def _wait_for_datagrams(context: Context, listener: Listener, cells: list[dict[str, Any]]) -> None:
    """Leaves a moment to datagrams of those that could not be reached, as they may be somewhat behind us."""
    awaited = {cell["to_rank"] for cell in cells if cell["status"] in ("dropped", "unreachable")}
    ends = context.deadline.within(0.5 * context.settings.timeout_scale)
    while awaited - set(listener.heard) and not ends.over:
        time.sleep(0.02)


def _is_here(address: str) -> bool:
    """Whether this host has an address: only such a one can be bound."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def _said(error: Exception, what: str, seconds: float) -> dict[str, str]:
    """The status and the sentence of an error."""
    if isinstance(error, socket.gaierror):
        return {"status": "unreachable", "error": f"the name does not resolve: {error.strerror}"}
    if isinstance(error, ConnectionRefusedError):
        return {"status": "refused", "error": "connection refused: nothing listens there, or a firewall says so"}
    if isinstance(error, TimeoutError):  # ETIMEDOUT, the kernel's own, among them
        return {"status": "dropped", "error": f"no answer within {seconds:.1f} s"}
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return {"status": "reset", "error": "the connection was reset"}
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES):
        return {"status": "unreachable", "error": f"{error.strerror}"}
    return {"status": "failed", "error": f"{what} failed: {error}"}


def tcp_info(connection: socket.socket) -> Mapping[str, float]:
    """What the kernel knows of a connection's losses and sizes; nothing elsewhere than on Linux.

    *Source:* struct tcp_info in linux/tcp.h, whose fields keep their places.
    """
    if sys.platform != "linux":
        return {}
    try:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return {}

    def word(offset: int) -> int:
        return int(struct.unpack_from("=I", data, offset)[0]) if len(data) >= offset + 4 else 0

    segments, again, needlessly = word(156), word(100), word(216)
    really = max(0, again - needlessly)
    return {"segments": segments, "retransmitted": really, "loss": really / max(segments, 1), "mss": word(16), "pmtu": word(60)}
