"""A hub that can't be reached, each way by its own name; a hub that is knocked at by strangers while ranks are with it."""

from __future__ import annotations

import http.server
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.hub import Hub, HubTaken
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.messages import Refused
from numscope.doctor.meet.road import Road, Unreached
from tests.doctor.fleet import BRISK, OVERHEAD_S, STOP, fleet, free_port

HASTY = replace(BRISK, deadline_s=20.0, timeout_scale=0.1)  # 0.4 s for the rendezvous


@contextmanager
def silent_listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def talker(words: bytes) -> Iterator[int]:
    """Says the words to whoever connects, and ends the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(words)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


@contextmanager
def http_server() -> Iterator[int]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who knocked has gone
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def way_to(host: str, port: int, elsewhere: bool = False, seconds: float = 0.4) -> Unreached:
    road = Road(MeetingPoint(host, (port,), "token", False, "a test"), elsewhere=elsewhere, scale=0.1, announce=lambda what: None)
    started = time.monotonic()
    with pytest.raises(Unreached) as raised:
        road.open(Deadline(seconds))
    assert time.monotonic() - started < seconds + 2
    return raised.value


def test_port_where_nothing_listens_refuses() -> None:
    assert way_to("127.0.0.1", free_port()).kind == "refused"


def test_silent_listener_is_told_from_a_hub() -> None:
    with silent_listener() as port:
        found = way_to("127.0.0.1", port)
    assert found.kind == "silent"
    assert "accepts connections, but it sent nothing" in str(found)


def test_http_server_gives_itself_away() -> None:
    with http_server() as port:
        found = way_to("127.0.0.1", port)
    assert found.kind == "http"
    assert "HTTP/1.0 501" in str(found)


@pytest.mark.parametrize(
    ("words", "kind"), [(b"SSH-2.0-OpenSSH_9.6\r\n", "foreign"), (b"", "closed"), (b"HTTP/1.1 400 Bad Request\r\n", "http")]
)
def test_other_servers_are_told_by_their_first_words(words: bytes, kind: str) -> None:
    with talker(words) as port:
        assert way_to("127.0.0.1", port).kind == kind


def test_name_that_means_nothing_is_unresolved() -> None:
    found = way_to("no-such-host.invalid", 29400, seconds=1.0)
    assert found.kind == "unresolved"
    assert str(found).startswith("no-such-host.invalid")


def test_name_that_means_this_host_is_loopback_when_the_hub_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def as_in_etc_hosts(host: str, *rest: object, **more: object) -> object:
        return real("127.0.1.1" if host == "node0" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", as_in_etc_hosts)
    found = way_to("node0", free_port(), elsewhere=True)
    assert found.kind == "loopback"
    assert "node0 is 127.0.1.1 here, that is, this host itself, but the hub is on another host" in str(found)
    assert way_to("node0", free_port(), elsewhere=False).kind == "refused"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops what a full queue can't take")
def test_port_that_drops_packets_is_told_from_one_that_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        port = listening.getsockname()[1]
        filling = []
        for _ in range(4):  # the queue takes one or two
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            filling.append(connection)
        time.sleep(0.05)
        found = way_to("127.0.0.1", port)
        for connection in filling:
            connection.close()
    assert found.kind == "dropped"
    assert ": no answer within " in str(found)


def test_resolver_that_hangs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(2) or [])
    assert way_to("node0", 29400).kind == "unresolved"


@pytest.mark.parametrize(("listener", "words"), [(silent_listener, "it sent nothing"), (http_server, "it speaks HTTP")])
def test_taken_port_is_told_by_every_rank_with_the_same_exit_code(listener: object, words: str) -> None:
    with listener() as port, fleet(2, settings=HASTY, endpoint=f"localhost:{port}") as ranks:  # type: ignore[operator]
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "hub-port-in-use" in ended[0].out
    assert all(words in one.out for one in ended.values()), ended
    assert ranks.seconds < OVERHEAD_S


def test_second_hub_on_a_port_is_refused() -> None:
    meeting = MeetingPoint("127.0.0.1", (0,), "token", True, "a test")
    hub = Hub(meeting, BRISK, 2)
    try:
        with pytest.raises(HubTaken, match="Address already in use"):
            Hub(replace(meeting, ports=(hub.port,)), BRISK, 2)
    finally:
        hub.close()
    assert way_to("127.0.0.1", hub.port).kind == "refused"  # it listens only while it runs


# ---- strangers ----------------------------------------------------------------------------------------------------------------


def knock(port: int, data: bytes, linger: float = 0.3) -> bytes:
    """What the hub says to these bytes before it ends the connection, or nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(data)
        connection.settimeout(linger)
        try:
            return connection.recv(100)
        except OSError:
            return b""


def hello(port: int, token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=2)
    wire.authenticate(connection, token, Deadline(2))
    return connection


def test_hub_survives_strangers_in_the_middle_of_a_run() -> None:
    token = "the job's own"
    environs = {rank: {"NUMSCOPE_DOCTOR_TOKEN": token} for rank in range(2)}
    port = free_port()
    # Rank 1 takes its time, so that the strangers come while the ranks are with the hub.
    prelude = "import numscope.doctor.phases.compare as slow\nslow.run = lambda context: time.sleep(0.2) or {}"
    settings = replace(BRISK, timeout_scale=1.0)
    with fleet(2, settings=settings, environs=environs, preludes={1: f"time.sleep(1)\n{prelude}"}, endpoint=f"localhost:{port}") as ranks:
        deadline = Deadline(10)
        while not deadline.over:
            try:
                first = hello(port, token)
                break
            except (OSError, wire.WireError):
                time.sleep(0.05)
        assert knock(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        assert knock(port, b"\x16\x03\x01\x02\x00\x01\x00") == b""  # TLS
        assert knock(port, b"NUMSCOPE /" + os.urandom(60)) == b""
        half_open = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        first.sendall(struct.pack(">I", 1 << 30))  # a frame of a gigabyte
        with pytest.raises(wire.WireError):
            hello(port, "another token")
        for garbage in (
            b"\x00\x00\x00\x02{]",
            wire.pack({"kind": "result"}),
            wire.pack({"no": "kind"}),
            wire.pack({"kind": "beat", "key": 3}),
        ):
            with hello(port, token) as connection:
                connection.sendall(garbage)
        reset = socket.create_connection(("127.0.0.1", port))
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        ended = ranks.end()
        for one in (*half_open, first):
            one.close()
    assert {one.code for one in ended.values()} == {0}, ended
    assert "hub-unauthenticated" in ended[0].out


def test_token_never_crosses_the_wire() -> None:
    heard = bytearray()
    ours, theirs = socket.socketpair()
    threading.Thread(target=wire.challenge, args=(theirs, "a secret token", Deadline(2)), daemon=True).start()

    class Tapped:
        def __getattr__(self, name: str) -> object:
            return getattr(ours, name)

        def sendall(self, data: bytes) -> None:
            heard.extend(data)
            ours.sendall(data)

        def recv(self, size: int) -> bytes:
            data = ours.recv(size)
            heard.extend(data)
            return data

    wire.authenticate(Tapped(), "a secret token", Deadline(2))  # type: ignore[arg-type]
    assert len(heard) > 200
    assert b"secret" not in heard
    for one in (ours, theirs):
        one.close()


def test_impostor_without_the_token_is_not_believed() -> None:
    """A server that repeats what it heard, or says yes to all, is no hub."""
    ours, theirs = socket.socketpair()

    def pretend() -> None:
        theirs.recv(100)
        theirs.sendall(b"NUMSCOPE/1 " + b"0" * 32 + b"\n")
        proof = theirs.recv(100)
        theirs.sendall(b"yes" + proof)

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(wire.WireError) as raised:
        wire.authenticate(ours, "token", Deadline(2))
    assert raised.value.kind == "token"
    for one in (ours, theirs):
        one.close()


def test_frames_come_out_whole_in_whatever_pieces_they_came() -> None:
    messages = [{"kind": "refused", "why": str(number), "reason": "x" * (number * 997), "stay": False} for number in range(12)]
    stream = b"".join(map(wire.pack, messages))
    for size in (7, 1000, len(stream)):
        ours, theirs = socket.socketpair()
        pieces = (stream[start : start + size] for start in range(0, len(stream), size))
        threading.Thread(target=lambda to, what: [to.send(piece) for piece in what], args=(theirs, pieces), daemon=True).start()
        assert [wire.receive(ours, Deadline(5), Refused) for _ in messages] == messages
        ours.close()
        theirs.close()


def test_rank_that_is_stopped_before_it_joins_is_missing() -> None:
    prelude = "from numscope.doctor.agent import Agent\nAgent._introduction = lambda self: " + STOP
    with fleet(2, preludes={1: prelude}) as ranks:
        ended = ranks.end((0,))
    assert ended[0].code == 1
    assert "rank-missing" in ended[0].out


def test_no_rank_is_past_the_deadline_whatever_hangs() -> None:
    """Even where the main thread itself hangs."""
    settings = replace(BRISK, deadline_s=1.0)
    with fleet(
        1, settings=settings, preludes={0: "from numscope.doctor.agent import Agent\nAgent.run = lambda self: time.sleep(60)"}
    ) as ranks:
        ended = ranks.end()
    assert ended[0].code == 5
    assert ": incomplete: not done at the deadline of 1 s" in ended[0].out
    assert ranks.seconds < settings.deadline_s + OVERHEAD_S
