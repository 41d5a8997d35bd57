"""The side of a link that is examined: a rank's own port, open from before the rendezvous until the end, which answers other ranks.

It does what it is asked on each connection, one order after another (a frame each, see ``wire.py``):

    ``echo``       give back ``times`` messages of 8 bytes
    ``payload``    take ``bytes`` bytes and say that they came
    ``ephemeral``  listen on a fresh port, say which, take one connection there
    ``bulk``       when this node is not loaded by anybody else, take bursts, each with its size before it, and say of each that it came;
                   a size of 0 ends it

A datagram on the same port number is counted by its sender: where TCP needs both directions, it shows which one works.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import threading
import time
from collections import Counter
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.records import Settings

PING = b"numscope"
BURST = struct.Struct(">I")  # its size
PATIENCE_S = 5.0  # for a rank to say its next order, and for a load elsewhere to end

_CONNECTIONS = 64  # at once; more are closed unheard
_ORDER_BYTES = 4096
_PIECE = 256 << 10  # taken at once
_PAYLOAD_BYTES = 1 << 20
_DATAGRAM = struct.Struct(">8s16sI")  # mark, proof of the token, rank


class Listener:
    """A rank's port for other ranks: TCP, and UDP of the same number where that is free. Threads of its own serve it.

    Args:
        settings: whose token a connection must show.
        rank: told to who connects, so that a wrong address is noticed; -1 until it is known.

    Raises: OSError where no port can be had.
    """

    def __init__(self, settings: Settings, rank: int = -1) -> None:
        self.rank = rank
        self.load = threading.Lock()  # held while bulk goes in or out
        self.heard: Counter[int] = Counter()  # datagrams by the rank that sent them
        self._token = settings.token
        self._patience_s = PATIENCE_S * settings.timeout_scale
        self._closed = threading.Event()
        self._places = threading.Semaphore(_CONNECTIONS)
        self._listening = _listen()
        self.port: int = self._listening.getsockname()[1]
        self._datagrams = socket.socket(self._listening.family, socket.SOCK_DGRAM)
        if self._listening.family == socket.AF_INET6:
            self._datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for loop, kind in ((self._accept, "accept"), (self._hear, "hear")):
            threading.Thread(target=loop, name=f"doctor-{kind}", daemon=True).start()

    def close(self) -> None:
        """Stops listening; connections that are being served end at their own deadlines."""
        self._closed.set()
        for each in (self._listening, self._datagrams):
            try:
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it, which close() does not
            except OSError:
                pass
            each.close()

    def _hear(self) -> None:
        try:
            self._datagrams.bind(("", self.port))
        except OSError:
            return  # somebody else has the number: no datagrams, then
        while not self._closed.is_set():
            try:
                data = self._datagrams.recv(_DATAGRAM.size + 1)
            except OSError:
                return
            if len(data) == _DATAGRAM.size and not self._closed.is_set():
                rank = _DATAGRAM.unpack(data)[2]
                if hmac.compare_digest(data, datagram(self._token, rank)):
                    self.heard[rank] += 1

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._closed.is_set():
                    return
                time.sleep(0.05)  # out of file descriptors: others may be given back
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="doctor-serve", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire.challenge(connection, self._token, Deadline(self._patience_s))
                wire.send(connection, {"rank": self.rank}, Deadline(self._patience_s))
                while not self._closed.is_set():
                    order = wire.receive(connection, Deadline(self._patience_s), _ORDER_BYTES)
                    self._obey(connection, order)
        except (wire.WireError, OSError, ValueError, TypeError, KeyError):
            pass  # a scanner, or a rank whose link breaks: that side says what it saw
        finally:
            self._places.release()

    def _obey(self, connection: socket.socket, order: dict[str, Any]) -> None:
        deadline = Deadline(self._patience_s)
        match order["do"]:
            case "echo":
                for _ in range(min(int(order["times"]), 1000)):
                    connection.sendall(take(connection, len(PING), deadline))
            case "payload":
                take(connection, min(int(order["bytes"]), _PAYLOAD_BYTES), deadline)
                wire.send(connection, {"came": True}, deadline)
            case "ephemeral":
                with _listen() as fresh:
                    wire.send(connection, {"port": fresh.getsockname()[1]}, deadline)
                    fresh.settimeout(deadline.left)
                    visitor, _ = fresh.accept()
                    visitor.close()
            case "bulk":
                self._bulk(connection)
            case other:
                raise ValueError(f"no such order: {other!r}")

    def _bulk(self, connection: socket.socket) -> None:
        if not self.load.acquire(timeout=self._patience_s):
            wire.send(connection, {"go": False}, Deadline(self._patience_s))
            return
        try:
            wire.send(connection, {"go": True}, Deadline(self._patience_s))
            deadline = Deadline(2 * self._patience_s)
            buffer = memoryview(bytearray(_PIECE))
            while left := BURST.unpack(take(connection, BURST.size, deadline))[0]:
                while left:
                    connection.settimeout(max(deadline.left, 1e-3))
                    got = connection.recv_into(buffer[: min(left, _PIECE)])
                    if not got:
                        raise OSError("ended")
                    left -= got
                connection.sendall(PING)
        finally:
            self.load.release()


def datagram(token: str, rank: int) -> bytes:
    """What a rank sends to show that this direction works; the token is not in it."""
    proof = hmac.new(token.encode(), b"datagram/%d" % rank, hashlib.sha256).digest()[:16]
    return _DATAGRAM.pack(PING, proof, rank)


def take(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    """Exactly so many bytes.

    Raises: OSError, of which TimeoutError when the deadline is over.
    """
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(deadline.left, 1e-3))
        piece = connection.recv(min(size - len(data), 1 << 16))
        if not piece:
            raise ConnectionResetError("the other side ended the connection")
        data += piece
    return bytes(data)


def _listen() -> socket.socket:
    """A socket that listens on all addresses, at a port that the kernel picks: as gloo and NCCL do."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=_CONNECTIONS, dualstack_ipv6=True)
        except OSError:
            pass  # IPv6 is switched off here
    return socket.create_server(("", 0), backlog=_CONNECTIONS)
