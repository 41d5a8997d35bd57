"""The protocol between the doctor's processes: a handshake that proves possession of the job's token, then JSON frames of limited size.

The handshake never transmits the token, only its HMAC over two fresh numbers:

    connecting side  ``NUMSCOPE /<number> HTTP/1.0``  (a request that any HTTP server answers, which gives it away)
    accepting side   ``NUMSCOPE/1 <number>``
    connecting side  HMAC(token, client, both numbers)
    accepting side   ``yes`` and HMAC(token, server, both numbers), or ``no`` and zeros

A frame is four bytes of length (highest bit: compressed) and JSON. Every wait has a deadline, and no length is trusted. A message that
does not have the shape of its kind (shapes.py) is an error of its connection. Nothing after the handshake is encrypted or signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import secrets
import socket
import struct
import zlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.shapes import check_message

LIMIT_BYTES = 64 << 20  # of a frame from the hub, uncompressed: the roster of 32,768 ranks is 10 MB
HEAD_BYTES = 4  # of a frame
RANK_LIMIT_BYTES = 4 << 20  # of a frame from a rank
COMPRESS_BYTES = 4096  # longer frames are compressed, which shrinks a roster to a tenth

_NUMBER = 32  # hex digits
_PROOF = 64
_START, _END = b"NUMSCOPE /", b" HTTP/1.0\r\n\r\n"
_HELLO = len(_START + _END) + _NUMBER
_GREETING = b"NUMSCOPE/1 "
_GREETED = len(_GREETING) + _NUMBER + 1
_COMPRESSED = 1 << 31
_DEPTH = 12  # of objects and lists in each other
_DIGITS = 20  # of a whole number

# It sent nothing in time; it closed the connection; another kind of server; a doctor of another job; not a valid frame.
Kind = Literal["silent", "closed", "http", "foreign", "token", "oversized", "garbage"]


class WireError(Exception):
    """The other side does not follow the protocol. The sentence says the same as the kind, with what was received."""

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Kind = kind


def authenticate(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Proves to the other side, to which we connected, that we hold the token, and checks that it does. Raises: WireError."""
    mine = secrets.token_hex(_NUMBER // 2).encode()
    _send(connection, _START + mine + _END, deadline)
    greeting = _receive(connection, _GREETED, deadline, marks=_GREETING)
    theirs = greeting[len(_GREETING) : -1]
    _send(connection, _proof(token, b"client", mine, theirs), deadline)
    answer = _receive(connection, 3 + _PROOF, deadline)
    if not hmac.compare_digest(answer, b"yes" + _proof(token, b"server", mine, theirs)):
        raise WireError("token", "a doctor of another job listens there, with another token")


def challenge(connection: socket.socket, token: str, deadline: Deadline) -> None:
    """Checks that the other side, which connected to us, holds the token, and proves that we do. Raises: WireError."""

    async def read(size: int, marks: bytes = b"") -> bytes:
        return _receive(connection, size, deadline, marks)

    with contextlib.suppress(StopIteration):  # so ends a coroutine that never waits
        accept(read, lambda data: _send(connection, data, deadline), token).send(None)


async def accept(read: Callable[..., Coroutine[Any, Any, bytes]], write: Callable[[bytes], None], token: str) -> None:
    """The accepting side of the handshake.

    Args:
        read: from a number of bytes, and those that they must begin with, makes the bytes.

    Raises: WireError.
    """
    hello = await read(_HELLO, _START)
    theirs, mine = hello[len(_START) : len(_START) + _NUMBER], secrets.token_hex(_NUMBER // 2).encode()
    if not hello.endswith(_END):
        raise WireError(*_foreign(hello))
    write(_GREETING + mine + b"\n")
    holds = hmac.compare_digest(await read(_PROOF), _proof(token, b"client", theirs, mine))
    write(b"yes" + _proof(token, b"server", theirs, mine) if holds else b"no " + b"0" * _PROOF)
    if not holds:
        raise WireError("token", "it does not hold this job's token")


def pack(message: Mapping[str, Any]) -> bytes:
    """A message as the bytes of a frame. What JSON has no numbers for (a corrupted result may be NaN) becomes text."""
    try:
        data = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        data = json.dumps(_finite(message), separators=(",", ":"), allow_nan=False).encode()
    flag = 0
    if len(data) > COMPRESS_BYTES:
        data, flag = zlib.compress(data, 1), _COMPRESSED
    return struct.pack(">I", len(data) | flag) + data


def send(connection: socket.socket, message: Mapping[str, Any], deadline: Deadline) -> None:
    """Sends one message. Raises: WireError."""
    _send(connection, pack(message), deadline)


def receive(connection: socket.socket, deadline: Deadline, kinds: Iterable[str], limit: int = LIMIT_BYTES) -> dict[str, Any]:
    """The next message, which must be of one of these kinds. Raises: WireError."""
    length, compressed = length_of(_receive(connection, HEAD_BYTES, deadline), limit)
    return unpack(_receive(connection, length, deadline), compressed, kinds, limit)


def _proof(token: str, side: bytes, *numbers: bytes) -> bytes:
    return hmac.new(token.encode(), b"/".join((side, *numbers)), hashlib.sha256).hexdigest().encode()


def length_of(data: bytes, limit: int) -> tuple[int, bool]:
    """The length that a frame's head announces, and whether the frame is compressed. Raises: WireError."""
    (word,) = struct.unpack(">I", data)
    length = word & ~_COMPRESSED
    if length > limit:
        raise WireError("oversized", f"a message of {length:,} bytes was announced, the limit is {limit:,}")
    return length, bool(word & _COMPRESSED)


def unpack(data: bytes, compressed: bool, kinds: Iterable[str], limit: int) -> dict[str, Any]:
    """The message in a frame. Raises: WireError."""
    try:
        if compressed:
            inflating = zlib.decompressobj()
            data = inflating.decompress(data, limit)
            if inflating.unconsumed_tail:
                raise WireError("oversized", f"a compressed message unpacks to more than {limit:,} bytes")
        message = json.loads(data, parse_constant=_refuse, parse_int=_whole, parse_float=_real)
        if not isinstance(message, dict):
            raise ValueError(f"got {type(message).__name__}, expected an object")
        _check_depth(message, _DEPTH)
        check_message(message, frozenset(kinds))
    except (ValueError, zlib.error, RecursionError) as error:
        raise WireError("garbage", f"not a message of the doctor: {error}") from None
    return message


def _refuse(word: str) -> Any:
    raise ValueError(f"got {word:.40}, expected a finite number of at most {_DIGITS} digits")


def _whole(word: str) -> int:
    return int(word) if len(word) <= _DIGITS else _refuse(word)


def _real(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _refuse(word)


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if not left:
            raise ValueError(f"more than {_DEPTH} objects and lists in each other")
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_finite, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
        check_marks(bytes(data), marks)
    return bytes(data)


def check_marks(data: bytes, marks: bytes) -> None:
    """Checks the first bytes, as soon as there are any. Raises: WireError."""
    if data[: len(marks)] != marks[: len(data)]:
        raise WireError(*_foreign(data))


def _foreign(data: bytes) -> tuple[Kind, str]:
    words = data[:60].split(b"\r")[0]
    if data.startswith((b"HTTP/", b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"<!DOCTYPE", b"<html")):
        return "http", f"it speaks HTTP: {words!r}"
    return "foreign", f"it speaks another protocol: {words!r}"
