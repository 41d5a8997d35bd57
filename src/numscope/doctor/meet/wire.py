"""How the doctor's processes speak over TCP: who holds the job's token gets in, then JSON frames of limited size, each with a deadline.

A connection begins with a handshake in which the token never appears, only its HMAC over two fresh numbers:

    connecting side  ``NUMSCOPE /<number> HTTP/1.0``  (a request that any HTTP server answers, and so gives itself away)
    accepting side   ``NUMSCOPE/1 <number>``
    connecting side  HMAC(token, client, both numbers)
    accepting side   ``yes`` and HMAC(token, server, both numbers), or ``no`` and zeros

A frame is four bytes of length (highest bit: compressed) and JSON. Nothing here waits without a deadline, nothing trusts a length.
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

LIMIT_BYTES = 64 << 20  # of a frame that the hub sends, unpacked: the roster of 32,768 ranks is 10 MB
RANK_LIMIT_BYTES = 4 << 20  # of a frame that a rank sends
COMPRESS_BYTES = 4096  # longer ones are compressed, which shrinks a roster to a tenth

_NUMBER = 32  # hex digits
_PROOF = 64
_HELLO = len(b"NUMSCOPE /" + b" HTTP/1.0\r\n\r\n") + _NUMBER
_GREETING = b"NUMSCOPE/1 "
_GREETED = len(_GREETING) + _NUMBER + 1
_COMPRESSED = 1 << 31

Kind = Literal["silent", "closed", "http", "foreign", "token", "oversized", "garbage"]


class WireError(Exception):
    """The other side does not speak as one of us.

    Args:
        kind: silent: said nothing in time. closed: ended the connection. http, foreign: some other server listens there. token: it is
            one of us, of another job. oversized, garbage: no frame of ours.
        sentence: the same in words, with what was seen.
    """

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Kind = kind


def authenticate(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Shows that this side, which connected, holds the token, and that the other one does.

    Raises: WireError.
    """
    mine = secrets.token_hex(_NUMBER // 2).encode()
    _send(connection, b"NUMSCOPE /" + mine + b" HTTP/1.0\r\n\r\n", deadline)
    greeting = _receive(connection, _GREETED, deadline, marks=_GREETING)
    theirs = greeting[len(_GREETING) : -1]
    _send(connection, _proof(token, b"client", mine, theirs), deadline)
    answer = _receive(connection, 3 + _PROOF, deadline)
    if not hmac.compare_digest(answer, b"yes" + _proof(token, b"server", mine, theirs)):
        raise WireError("token", "a doctor of another job listens there: it holds another token")


def challenge(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Lets the other side, which connected, in if it holds the token.

    Raises: WireError.
    """
    door = Door(token)
    while not door.open:
        answer = door.feed(_receive(connection, door.needs, deadline))
        _send(connection, answer, deadline)
        if door.refused:
            raise WireError("token", door.refused)


class Door:
    """The accepting side of the handshake, without a socket: ``feed`` takes what came and gives what is to be sent back.

    ``needs`` is how many bytes the next step still waits for; what came after the last step is in ``rest``.
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
        """Whether the other side has said anything."""
        return bool(self._data or self._numbers[0])

    def feed(self, data: bytes) -> bytes:
        """Raises: WireError for what is no hello of ours, as soon as its first bytes show that."""
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
    """Frames out of a stream of bytes, in whatever pieces it comes.

    Args:
        limit: bytes that a message may have, packed or unpacked.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete now.

        Raises: WireError for what is no message.
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
        raise WireError("oversized", f"a message of {length:,} bytes was announced, at most {limit:,} are taken")
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
        raise WireError("garbage", f"a message is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("garbage", f"a message is a {type(message).__name__}, no object")
    return message


def _send(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    try:
        connection.settimeout(max(deadline.left, 1e-3))  # 0 would mean: do not block
        connection.sendall(data)  # its timeout is for the whole of it
    except TimeoutError:
        raise WireError("silent", f"it took no {len(data):,} bytes within {deadline.seconds:.1f} s") from None
    except OSError as error:
        raise WireError("closed", f"the connection ended: {error.strerror or error}") from None


def _receive(connection: socket.socket, size: int, deadline: Deadline, marks: bytes = b"") -> bytes:
    """Exactly ``size`` bytes; with ``marks``, those they must begin with, told as soon as they do not."""
    data = bytearray()
    while len(data) < size:
        try:
            connection.settimeout(max(deadline.left, 1e-3))
            piece = connection.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            seen = f"only {len(data)} of {size} bytes came" if data else "it said nothing"
            raise WireError("silent", f"{seen} within {deadline.seconds:.1f} s") from None
        except OSError as error:
            raise WireError("closed", f"the connection ended: {error.strerror or error}") from None
        if not piece:
            raise WireError("closed", "it ended the connection" + (f" after {bytes(data[:40])!r}" if data else " without a word"))
        data += piece
        if data[: len(marks)] != marks[: len(data)]:
            raise WireError(*_foreign(bytes(data)))
    return bytes(data)


def _foreign(data: bytes) -> tuple[Kind, str]:
    words = data[:60].split(b"\r")[0]
    if data.startswith((b"HTTP/", b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"<!DOCTYPE", b"<html")):
        return "http", f"it speaks HTTP: {words!r}"
    return "foreign", f"it speaks another protocol: {words!r}"
