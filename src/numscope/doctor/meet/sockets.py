"""Addresses, names and listening sockets of this host, from the standard library alone."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
from typing import Literal

from numscope.doctor.budget import Deadline, Overdue, limited

Failure = Literal["refused", "dropped", "reset", "unreachable", "failed"]  # dropped: no answer


def listen(port: int = 0, backlog: int = 1024, host: str = "") -> socket.socket:
    """A socket that listens on all addresses, IPv6 and IPv4, or on one; for port 0 the kernel chooses one.

    Raises: OSError, for example where the port is taken.
    """
    if host:
        return socket.create_server((host, port), family=family_of(host), backlog=backlog)
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    except (OSError, ValueError) as error:  # a kernel without IPv6
        if getattr(error, "errno", 0) == errno.EADDRINUSE:
            raise
    return socket.create_server(("", port), backlog=backlog)


def resolve(name: str, deadline: Deadline) -> list[str]:
    """The addresses of a host name, in the resolver's order. Resolvers have no time limit, so a thread asks.

    Raises: OSError with the reason as its text.
    """
    try:
        found = limited(deadline.left, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        raise OSError(getattr(error, "strerror", None) or str(error)) from None
    except Overdue:
        raise OSError(f"no answer from the resolver within {deadline.seconds:.1f} s") from None
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def is_loopback(address: str) -> bool:
    """Whether an address reaches only its own host."""
    try:
        return ipaddress.ip_address(address.partition("%")[0].removeprefix("::ffff:")).is_loopback
    except ValueError:
        return False


def is_own(address: str) -> bool:
    """Whether this host has an address: only such an address can be bound."""
    with contextlib.suppress(OSError), socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def family_of(address: str) -> socket.AddressFamily:
    """IPv6 or IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def address_of(ifname: str) -> str:
    """The IPv4 address of a network interface; "" if the interface has none or ``ifname`` is empty."""
    if not ifname:
        return ""
    import fcntl

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("256s", ifname.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), 0x8915, request)[20:24])  # SIOCGIFADDR
    return ""


def take(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    """Exactly ``size`` bytes. Raises: OSError; TimeoutError, which is one, at the deadline."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(deadline.left, 1e-3))
        piece = connection.recv(min(size - len(data), 1 << 16))
        if not piece:
            raise ConnectionResetError("the other side closed the connection")
        data += piece
    return bytes(data)


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """A connection that sends small messages at once. Raises: OSError."""
    connection = socket.create_connection((address, port), max(seconds, 1e-3))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def failure_of(error: OSError, seconds: float) -> tuple[Failure, str]:
    """Why a connection that was allowed so many seconds failed, and a sentence."""
    if isinstance(error, ConnectionRefusedError):
        return "refused", "connection refused: nothing listens there, or a firewall rejects it"
    if isinstance(error, TimeoutError):  # includes ETIMEDOUT, the kernel's own
        return "dropped", f"no answer within {seconds:.1f} s"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return "reset", "the connection was reset"
    lost = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES, errno.EADDRNOTAVAIL)
    unreachable = error.errno in lost or isinstance(error, socket.gaierror)
    return ("unreachable", f"{error.strerror}") if unreachable else ("failed", f"the connection failed: {error.strerror or error}")
