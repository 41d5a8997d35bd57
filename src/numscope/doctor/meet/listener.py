"""The passive side of a link test: a rank's own port, open from before the rendezvous until the end, which serves other ranks.

It carries out requests on each connection, one after another (a frame each, see ``wire.py``):

    ``bursts``     receive bursts of bytes, each preceded by its size, and acknowledge each; size 0 ends it. With ``alone`` it begins once
                   no other such transfer loads this node
    ``ephemeral``  listen on a fresh port, report its number, accept one connection there

Datagrams to the same port number are counted by sender: TCP needs both directions of a link, a datagram shows whether one of them works.
"""

from __future__ import annotations

import contextlib
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
from numscope.doctor.meet.messages import ToListener
from numscope.doctor.meet.sockets import listen, take
from numscope.doctor.records import Settings

PING = b"numscope"
BURST = struct.Struct(">I")  # its size
PATIENCE_S = 5.0  # for the next request, and for another transfer to end

_CONNECTIONS = 64  # at once; further ones are closed
_PIECE = 256 << 10  # received at once
_DATAGRAM = struct.Struct(">8s16sI")  # mark, proof of the token, rank


class PeerListener:
    """A rank's port for other ranks: TCP, and UDP with the same number if that is free. Served by its own threads.

    Raises: OSError if no port can be opened.
    """

    def __init__(self, settings: Settings, rank: int, host: str = "") -> None:
        self._rank = rank  # reported to those who connect, so that a wrong address is noticed
        self.load = threading.Lock()  # held while a bulk transfer comes in or goes out
        self.heard: Counter[int] = Counter()  # number of datagrams received from each rank
        self._token = settings.token
        self._patience_s = PATIENCE_S * settings.timeout_scale
        self._closed = threading.Event()
        self._slots = threading.Semaphore(_CONNECTIONS)
        self._host = host  # the address to listen on; "" for all
        self._listening = listen(backlog=_CONNECTIONS, host=host)
        self.port: int = self._listening.getsockname()[1]
        self._datagrams = socket.socket(self._listening.family, socket.SOCK_DGRAM)
        if self._listening.family == socket.AF_INET6:
            self._datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with contextlib.suppress(OSError):  # if another socket has this number, no datagrams arrive here
            self._datagrams.bind((host, self.port))
        for loop, kind in ((self._accept, "accept"), (self._count_datagrams, "datagrams")):
            threading.Thread(target=loop, name=f"doctor-{kind}", daemon=True).start()

    def close(self) -> None:
        """Stops listening; connections in progress end at their own deadlines."""
        self._closed.set()
        for each in (self._listening, self._datagrams):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the waiting thread, which close() does not
            each.close()

    def _count_datagrams(self) -> None:
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
                time.sleep(0.05)  # out of file descriptors: some may be freed
                continue
            if not self._slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="doctor-serve", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire.challenge(connection, self._token, Deadline(self._patience_s))
                wire.send(connection, {"kind": "rank", "rank": self._rank}, Deadline(self._patience_s))
                while not self._closed.is_set():
                    request = wire.receive(connection, Deadline(self._patience_s), ToListener)
                    self._answer(connection, request)
        except (wire.WireError, OSError):
            pass  # a scanner, or a rank whose link fails: that side reports it
        finally:
            self._slots.release()

    def _answer(self, connection: socket.socket, request: dict[str, Any]) -> None:
        if request["kind"] == "ephemeral":
            deadline = Deadline(self._patience_s)
            with listen(backlog=_CONNECTIONS, host=self._host) as fresh:
                wire.send(connection, {"kind": "port", "port": fresh.getsockname()[1]}, deadline)
                fresh.settimeout(deadline.left)
                visitor, _ = fresh.accept()
                visitor.close()
            return
        go = not request["alone"] or self.load.acquire(timeout=self._patience_s)
        try:
            wire.send(connection, {"kind": "go", "go": go}, Deadline(self._patience_s))
            if go:
                self._take_bursts(connection)
        finally:
            if go and request["alone"]:
                self.load.release()

    def _take_bursts(self, connection: socket.socket) -> None:
        buffer = memoryview(bytearray(_PIECE))
        while left := BURST.unpack(take(connection, BURST.size, Deadline(self._patience_s)))[0]:
            deadline = Deadline(self._patience_s)
            while left:
                connection.settimeout(max(deadline.left, 1e-3))
                got = connection.recv_into(buffer[: min(left, _PIECE)])
                if not got:
                    raise OSError("the other side closed the connection")
                left -= got
            connection.sendall(PING)


def datagram(token: str, rank: int) -> bytes:
    """A datagram, which shows that this direction works; it proves possession of the token without containing it."""
    proof = hmac.new(token.encode(), b"datagram/%d" % rank, hashlib.sha256).digest()[:16]
    return _DATAGRAM.pack(PING, proof, rank)
