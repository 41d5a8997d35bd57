"""The protocol between the doctor's processes: a handshake that proves possession of the job's token, then JSON frames of limited size.

The handshake never transmits the token, only its HMAC over two fresh numbers:

    connecting side  ``NUMSCOPE /<number> HTTP/1.0``  (a request that any HTTP server answers, which gives it away)
    accepting side   ``NUMSCOPE/1 <number>``
    connecting side  HMAC(token, client, both numbers)
    accepting side   ``yes`` and HMAC(token, server, both numbers), or ``no`` and zeros

A frame is four bytes of length and JSON. Every wait has a deadline, and no length is trusted. A message that
does not match messages.py is an error of its connection. Nothing after the handshake is encrypted or signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from numscope.doctor.budget import Deadline
from numscope.doctor.records import adapter

LIMIT_BYTES = 64 << 20  # of a frame
HEAD_BYTES = 4  # before each frame

_NUMBER = 32  # hex digits
_PROOF = 64
_START, _END = b"NUMSCOPE /", b" HTTP/1.0\r\n\r\n"
_HELLO = len(_START + _END) + _NUMBER
_GREETING = b"NUMSCOPE/1 "
_GREETED = len(_GREETING) + _NUMBER + 1

Kind = Literal[
    "unresolved",  # the name of the other side's host does not resolve here
    "loopback",  # it resolves to this host, but the other side is on another one
    "refused",
    "dropped",
    "unreachable",
    "silent",  # it accepts connections and sends nothing in time
    "closed",  # it closes connections
    "http",
    "foreign",  # another kind of server
    "token",  # a doctor of another job
    "oversized",
    "garbage",  # not a valid message
]


class WireError(Exception):
    """The other side can't be reached, or does not follow the protocol. The sentence explains the kind, with what was received."""

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
    """The accepting side of the handshake; ``read`` takes a number of bytes, and those that they must begin with. Raises: WireError."""
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
        data = to_json(message, inf_nan_mode="strings")
    except PydanticSerializationError:  # text that is not UTF-8, as a file's name may be
        text = json.dumps(to_jsonable_python(message), ensure_ascii=False).encode("utf-8", "replace")
        data = to_json(json.loads(text), inf_nan_mode="strings")
    return struct.pack(">I", len(data)) + data


def send(connection: socket.socket, message: Mapping[str, Any], deadline: Deadline) -> None:
    """Sends one message. Raises: WireError."""
    _send(connection, pack(message), deadline)


def receive(connection: socket.socket, deadline: Deadline, kind: Any) -> Any:
    """The next message, which must be of this kind, a type in messages.py. Once it has begun, it has as long again. Raises: WireError."""
    length = length_of(_receive(connection, HEAD_BYTES, deadline))
    return unpack(_receive(connection, length, Deadline(deadline.seconds)), kind)


def _proof(token: str, side: bytes, *numbers: bytes) -> bytes:
    return hmac.new(token.encode(), b"/".join((side, *numbers)), hashlib.sha256).hexdigest().encode()


def length_of(data: bytes) -> int:
    """The length that a frame's head announces. Raises: WireError."""
    length = int.from_bytes(data, "big")
    if length > LIMIT_BYTES:
        raise WireError("oversized", f"a message of {length:,} bytes was announced, the limit is {LIMIT_BYTES:,}")
    return length


def unpack(data: bytes, kind: Any) -> Any:
    """The message in a frame. Raises: WireError."""
    try:
        return adapter(kind).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'it'}: got {repr(first['input'])[:60]}: {first['msg']}"
        raise WireError("garbage", f"not a message of the doctor: {what:.300}") from None


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
