"""Clients that keep the server waiting: their connections are closed, and the others are served meanwhile."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from numscope.view import server

PORTION = b"x" * (8 << 20)


async def answer(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(PORTION))]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": PORTION})  # type: ignore[operator]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server that waits two seconds, and answers with 8 MB."""
    monkeypatch.setattr(server, "DEADLINE_S", 2.0)
    running = uvicorn.Server(
        uvicorn.Config(answer, http=server.TimedConnection, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    )
    with server.listen("127.0.0.1", 0, range(0)) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


def ask(port: int, timeout: float = 20.0) -> float:
    """Seconds that an answer takes."""
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request("GET", "/")
    assert connection.getresponse().read() == PORTION
    connection.close()
    return time.monotonic() - start


def is_closed(link: socket.socket, within: float) -> bool:
    link.settimeout(within)
    try:
        while link.recv(1 << 20):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_four_hundred_half_sent_requests_are_closed_and_others_are_served(port: int) -> None:
    begun = [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le"] * 100
    links = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in begun]
    try:
        for link, part in zip(links, begun, strict=True):
            link.sendall(part)
        ask(port)
        end = time.monotonic() + 15
        left = [part for link, part in zip(links, begun, strict=True) if not is_closed(link, max(0.1, end - time.monotonic()))]
        assert left == []
        ask(port)
    finally:
        for link in links:
            link.close()


def test_a_request_that_comes_byte_by_byte_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        start = time.monotonic()
        with pytest.raises(OSError):
            for byte in b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100:
                link.sendall(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - start < 15


def test_a_second_request_that_is_half_sent_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        left = len(PORTION)
        while left > 0:
            left -= len(link.recv(1 << 20))
        link.sendall(b"GET / HTTP/1.1\r\nHos")
        assert is_closed(link, 15)


def test_a_client_that_reads_nothing_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(6)
        received = 0
        link.settimeout(10)
        with pytest.raises(ConnectionResetError):
            while part := link.recv(1 << 20):
                received += len(part)
            raise ConnectionResetError  # an end without the rest
        assert received < len(PORTION)
        ask(port)


def test_a_client_that_reads_slowly_gets_all(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        link.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received, start = b"", time.monotonic()
        while part := link.recv(1 << 17):
            received += part
            time.sleep(max(0.0, len(received) / len(PORTION) * 5 - (time.monotonic() - start)))
    assert received.endswith(PORTION)


def test_the_deadline_is_what_the_page_on_the_command_says() -> None:
    with open(os.path.join(os.path.dirname(__file__), "../../docs/page.md"), encoding="utf-8") as file:
        assert f"{server.DEADLINE_S:.0f} seconds" in file.read()
