"""The protocol between the doctor's processes: a handshake that proves possession of the job's token, then JSON frames of limited size.

The handshake never transmits the token, only its HMAC over two fresh numbers:

    connecting side  ``NUMSCOPE /<number> HTTP/1.0``  (a request that any HTTP server answers, which gives it away)
    accepting side   ``NUMSCOPE/1 <number>``
    connecting side  HMAC(token, client, both numbers)
    accepting side   ``yes`` and HMAC(token, server, both numbers), or ``no`` and zeros

A frame is four bytes of length (highest bit: compressed) and JSON. Every wait has a deadline, and no length is trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Literal

from numscope.doctor.budget import Deadline

LIMIT_BYTES = 64 << 20  # of a frame from the hub, uncompressed: the roster of 32,768 ranks is 10 MB
RANK_LIMIT_BYTES = 4 << 20  # of a frame from a rank
COMPRESS_BYTES = 4096  # longer frames are compressed, which shrinks a roster to a tenth

_NUMBER = 32  # hex digits
_PROOF = 64
_HELLO = len(b"NUMSCOPE /" + b" HTTP/1.0\r\n\r\n") + _NUMBER
_GREETING = b"NUMSCOPE/1 "
_GREETED = len(_GREETING) + _NUMBER + 1
_COMPRESSED = 1 << 31

Kind = Literal["silent", "closed", "http", "foreign", "token", "oversized", "garbage"]


class WireError(Exception):
    """The other side does not follow the protocol.

    Args:
        kind: silent: it sent nothing in time. closed: it closed the connection. http, foreign: another kind of server. token: a doctor of
            another job. oversized, garbage: not a valid frame.
        sentence: the same in words, with what was received.
    """

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Kind = kind


def authenticate(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Proves to the other side, to which we connected, that we hold the token, and checks that it does.

    Raises: WireError.
    """
    mine = secrets.token_hex(_NUMBER // 2).encode()
    _send(connection, b"NUMSCOPE /" + mine + b" HTTP/1.0\r\n\r\n", deadline)
    greeting = _receive(connection, _GREETED, deadline, marks=_GREETING)
    theirs = greeting[len(_GREETING) : -1]
    _send(connection, _proof(token, b"client", mine, theirs), deadline)
    answer = _receive(connection, 3 + _PROOF, deadline)
    if not hmac.compare_digest(answer, b"yes" + _proof(token, b"server", mine, theirs)):
        raise WireError("token", "a doctor of another job listens there, with another token")


def challenge(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Checks that the other side, which connected to us, holds the token, and proves that we do.

    Raises: WireError.
    """
    door = Door(token)
    while not door.open:
        answer = door.feed(_receive(connection, door.needs, deadline))
        _send(connection, answer, deadline)
        if door.refused:
            raise WireError("token", door.refused)


class Door:
    """The accepting side of the handshake, without a socket.

    Attributes:
        needs: bytes that the next step still waits for.
        open: the other side holds the token.
        refused: why it was rejected; "" if it was not.
        rest: bytes received after the handshake.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._numbers = (b"", b"")
        self._data = bytearray()
        self.needs = _HELLO
        self.open = False
        self.refused = ""
        self.rest = b""

    @property
    def spoken(self) -> bool:
        """Whether the other side has sent anything."""
        return bool(self._data or self._numbers[0])

    def feed(self, data: bytes) -> bytes:
        """Takes received bytes; returns bytes to send back.

        Raises: WireError as soon as the first bytes show that the other side is not a doctor.
        """
        self._data += data
        answer = b""
        start = b"NUMSCOPE /"
        if not self._numbers[0]:
            if self._data[: len(start)] != start[: len(self._data)]:
                raise WireError(*_foreign(bytes(self._data)))
            if len(self._data) >= _HELLO:
                number, end = bytes(self._data[len(start) : len(start) + _NUMBER]), bytes(self._data[len(start) + _NUMBER : _HELLO])
                if end != b" HTTP/1.0\r\n\r\n":
                    raise WireError(*_foreign(bytes(self._data)))
                del self._data[:_HELLO]
                self._numbers = (number, secrets.token_hex(_NUMBER // 2).encode())
                answer = _GREETING + self._numbers[1] + b"\n"
        if self._numbers[0] and len(self._data) >= _PROOF:
            proof, self.rest = bytes(self._data[:_PROOF]), bytes(self._data[_PROOF:])
            self._data.clear()
            self.open = hmac.compare_digest(proof, _proof(self._token, b"client", *self._numbers))
            self.refused = "" if self.open else "it does not hold this job's token"
            answer += b"yes" + _proof(self._token, b"server", *self._numbers) if self.open else b"no " + b"0" * _PROOF
        self.needs = (_PROOF if self._numbers[0] else _HELLO) - len(self._data)
        return answer


def pack(message: Mapping[str, Any]) -> bytes:
    """A message as the bytes of a frame."""
    data = json.dumps(message, separators=(",", ":")).encode()
    flag = 0
    if len(data) > COMPRESS_BYTES:
        data, flag = zlib.compress(data, 1), _COMPRESSED
    return struct.pack(">I", len(data) | flag) + data


class Frames:
    """Splits a stream of bytes, received in arbitrary pieces, into messages.

    Args:
        limit: on the size of a message in bytes, both compressed and uncompressed.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are now complete.

        Raises: WireError for anything that is not a message.
        """
        self._data += data
        messages = []
        while len(self._data) >= 4:
            length, compressed = _length(bytes(self._data[:4]), self._limit)
            if len(self._data) < 4 + length:
                break
            messages.append(_unpack(bytes(self._data[4 : 4 + length]), compressed, self._limit))
            del self._data[: 4 + length]
        return messages


def send(connection: socket.socket, message: Mapping[str, Any], deadline: Deadline) -> None:
    """Sends one message.

    Raises: WireError.
    """
    _send(connection, pack(message), deadline)


def receive(connection: socket.socket, deadline: Deadline, limit: int = LIMIT_BYTES) -> dict[str, Any]:
    """The next message.

    Raises: WireError.
    """
    length, compressed = _length(_receive(connection, 4, deadline), limit)
    return _unpack(_receive(connection, length, deadline), compressed, limit)


def _proof(token: str, side: bytes, *numbers: bytes) -> bytes:
    return hmac.new(token.encode(), b"/".join((side, *numbers)), hashlib.sha256).hexdigest().encode()


def _length(data: bytes, limit: int) -> tuple[int, bool]:
    (word,) = struct.unpack(">I", data)
    length = word & ~_COMPRESSED
    if length > limit:
        raise WireError("oversized", f"a message of {length:,} bytes was announced, the limit is {limit:,}")
    return length, bool(word & _COMPRESSED)


def _unpack(data: bytes, compressed: bool, limit: int) -> dict[str, Any]:
    try:
        if compressed:
            inflating = zlib.decompressobj()
            data = inflating.decompress(data, limit)
            if inflating.unconsumed_tail:
                raise WireError("oversized", f"a compressed message unpacks to more than {limit:,} bytes")
        message = json.loads(data)
    except (ValueError, zlib.error, RecursionError) as error:
        raise WireError("garbage", f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("garbage", f"a message is a JSON {type(message).__name__}, expected an object")
    return message


def _send(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    try:
        connection.settimeout(max(deadline.left, 1e-3))  # 0 would mean: do not block
        connection.sendall(data)  # the timeout covers all of it
    except TimeoutError:
        raise WireError("silent", f"it did not accept {len(data):,} bytes within {deadline.seconds:.1f} s") from None
    except OSError as error:
        raise WireError("closed", f"the connection ended: {error.strerror or error}") from None


def _receive(connection: socket.socket, size: int, deadline: Deadline, marks: bytes = b"") -> bytes:
    """Exactly ``size`` bytes, which must begin with ``marks``."""
    data = bytearray()
    while len(data) < size:
        try:
            connection.settimeout(max(deadline.left, 1e-3))
            piece = connection.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            seen = f"it sent only {len(data)} of {size} bytes" if data else "it sent nothing"
            raise WireError("silent", f"{seen} within {deadline.seconds:.1f} s") from None
        except OSError as error:
            raise WireError("closed", f"the connection ended: {error.strerror or error}") from None
        if not piece:
            raise WireError(
                "closed", "it closed the connection" + (f" after {bytes(data[:40])!r}" if data else " without sending anything")
            )
        data += piece
        if data[: len(marks)] != marks[: len(data)]:
            raise WireError(*_foreign(bytes(data)))
    return bytes(data)


def _foreign(data: bytes) -> tuple[Kind, str]:
    words = data[:60].split(b"\r")[0]
    if data.startswith((b"HTTP/", b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"<!DOCTYPE", b"<html")):
        return "http", f"it speaks HTTP: {words!r}"
    return "foreign", f"it speaks another protocol: {words!r}"
