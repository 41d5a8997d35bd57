"""A hub at which strangers and others throw what they like: honest ranks finish with the right verdict, and nobody else is blamed."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from pydantic_core import to_jsonable_python
from typing_extensions import NotRequired, Required, get_type_hints, is_typeddict

from numscope.doctor.agent import Agent
from numscope.doctor.budget import Deadline
from numscope.doctor.meet import messages, wire
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.meeting_point import MeetingPoint
from numscope.doctor.meet.members import Member
from numscope.doctor.meet.messages import Refused, ToHub, ToRank, Welcome
from numscope.doctor.output import judge
from numscope.doctor.records import ExamPhase, Identity, PhaseResult, Status, to_json
from numscope.doctor.rendering import print_verdict
from numscope.doctor.rendering import to_json as report_as_json
from tests.doctor.examples import examination
from tests.doctor.fleet import BRISK, Fleet, fleet, free_port
from tests.effort import examples

IDENTITY = to_json(Identity(1, 2, 1, 2, hostname="evil", launcher="torchrun"))
LISTEN = {"address": "", "port": 4711, "store_port": 0}
MESSAGES: list[dict[str, Any]] = [
    {"kind": "join", "identity": IDENTITY, "pid": 7, "listen": LISTEN, "t": 0.0},
    {"kind": "beat", "t": 0.0, "phase": 1, "doing": "", "for_s": 0.0},
    {"kind": "node", "hostname": "evil", "nnodes": 2, "nproc": 1, "node_rank": -1},
    {"kind": "leave", "signal": "SIGTERM"},
    {"kind": "result", "result": to_json(PhaseResult(ExamPhase.FACTS, 1, "ok", data={"name": {"addresses": []}}))},
]
# Bad wherever they are put. JSON's numbers may be without limit, and Python's may be none.
BAD = [math.inf, -math.inf, math.nan, 10**40, "x" * 70_000, json.loads("[" * 40 + "]" * 40), "-oProxyCommand=x\n"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else ():
        yield from places(value[key], (*path, key))


def changed(message: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with something else at a place, or, for "gone", with nothing there."""
    if not path:
        return new
    told = copy.deepcopy(message)
    inner = told
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(new, str) and new == "gone":
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return told


def frame(text: str) -> bytes:
    return struct.pack(">I", len(text.encode())) + text.encode()


def fits(text: str) -> bool:
    with contextlib.suppress(wire.WireError):
        wire.unpack(text.encode(), ToHub)
        return True
    return False


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(BAD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def almost(draw: st.DrawFn) -> bytes:
    """A message of which something is missing, or something else."""
    message = draw(st.sampled_from(MESSAGES))
    path = draw(st.sampled_from(list(places(message))))
    text = json.dumps(changed(message, path, draw(st.just("gone") | junk) if path else draw(junk)))
    return frame("{}" if fits(text) else text)  # a rank 1 that fits would be one


frames = almost() | junk.map(lambda value: frame("{}" if fits(text := json.dumps(value)) else text)) | st.binary(max_size=200)


def reached(port: int, token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    wire.authenticate(connection, token, Deadline(5))
    return connection


@contextlib.contextmanager
def two_ranks(token: str, port: int, second: str = "time.sleep(2)") -> Iterator[Fleet]:
    """Of which one comes two seconds later; the hub is there when the block begins."""
    environs = {rank: {"NUMSCOPE_DOCTOR_TOKEN": token} for rank in range(2)}
    with fleet(2, environs=environs, preludes={1: second}, endpoint=f"localhost:{port}") as ranks:
        deadline = Deadline(20)
        while not deadline.over:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.02)
        yield ranks


def test_whatever_is_thrown_at_the_hub_honest_ranks_finish_healthy(tmp_path: Path) -> None:
    token, port = secrets.token_hex(32), free_port()
    to_throw: list[tuple[bool, bytes]] = []
    thrown = {"in": 0, "out": 0}
    left_open: list[socket.socket] = []
    enough = tmp_path / "enough"

    @effort(max_examples=examples(300), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.booleans(), st.lists(frames, min_size=1, max_size=3))
    def draw(inside: bool, pieces: list[bytes]) -> None:
        to_throw.append((inside, b"".join(pieces)))

    draw()  # before the ranks are there: on a busy machine the first draw may outlast them
    with two_ranks(token, port, f"while not os.path.exists({str(enough)!r}):\n    time.sleep(0.05)") as ranks:
        for inside, data in to_throw:
            if ranks.processes[0].poll() is not None:
                break  # it has ended, whatever is left to throw
            with contextlib.suppress(OSError, wire.WireError):
                connection = reached(port, token) if inside else socket.create_connection(("127.0.0.1", port), timeout=5)
                connection.sendall(data)
                thrown["in" if inside else "out"] += 1
                if sum(thrown.values()) % 4:
                    connection.close()
                else:
                    left_open.append(connection)
            if min(thrown.values()) > 20:
                enough.touch()  # the second rank comes, and is thrown at too
        enough.touch()
        ended = ranks.end()
    for connection in left_open:
        connection.close()
    assert {one.code for one in ended.values()} == {0}, ended
    assert all(" is OK" in one.out for one in ended.values())
    assert not any(one.err for one in ended.values()), ended
    assert min(thrown.values()) > 20, thrown


def test_stranger_cannot_join_learn_who_is_there_or_change_the_verdict() -> None:
    token, port = secrets.token_hex(32), free_port()
    heard = bytearray()
    # What a stranger can work out: nothing, the words of older versions, and what the hub itself says.
    guesses = ["", "0" * 64, "numscope doctor", f"localhost:{port}"]
    with two_ranks(token, port) as ranks:
        for guess in guesses:
            with pytest.raises(wire.WireError) as raised:
                reached(port, guess)
            assert raised.value.kind == "token"
        for said in (b"", wire.pack(MESSAGES[0]), b"NUMSCOPE /" + b"0" * 32 + b" HTTP/1.0\r\n\r\n" + b"0" * 64 + wire.pack(MESSAGES[0])):
            with socket.create_connection(("127.0.0.1", port), timeout=0.5) as stranger:
                stranger.sendall(said)
                with contextlib.suppress(OSError):
                    while piece := stranger.recv(1000):
                        heard += piece
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {0}, ended
    assert all(" is OK" in one.out for one in ended.values())
    assert b"identity" not in heard and b"no " in heard and len(heard) < 200, heard


def test_proof_that_was_overheard_is_of_no_use() -> None:
    """The hub's number is fresh in each handshake."""
    hub = Hub(MeetingPoint("127.0.0.1", (0,), "secret", True, "a test", True), BRISK, 2)
    said: list[bytes] = []
    try:
        with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as honest:

            class Tapped:
                def __getattr__(self, name: str) -> Any:
                    return getattr(honest, name)

                def sendall(self, data: bytes) -> None:
                    said.append(data)
                    honest.sendall(data)

            wire.authenticate(Tapped(), "secret", Deadline(5))  # type: ignore[arg-type]
        with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as replaying:
            for data in said:
                replaying.sendall(data)
            answer = b""
            while piece := replaying.recv(1000):
                answer += piece
        assert answer.endswith(b"no " + b"0" * 64)
    finally:
        hub.close()


@pytest.mark.parametrize("path", [path for path in places(MESSAGES[0]) if path and path != ("listen", "address")])
def test_join_with_a_bad_or_missing_field_closes_its_connection_alone(path: tuple[str, ...]) -> None:
    hub = Hub(MeetingPoint("127.0.0.1", (0,), "secret", True, "a test", True), BRISK, 2)
    try:
        honest = reached(hub.port, "secret")
        with honest:
            for new in ("gone", *BAD, None, {}, []):
                text = json.dumps(changed(MESSAGES[0], path, new))
                if fits(text):  # an ordinary value, or one that has a default
                    assert path[-1] in ("t", "hostname") or (new == "gone" and len(path) == 2), (path, new)
                    continue
                with reached(hub.port, "secret") as bad:
                    bad.sendall(frame(text))
                    assert wire.receive(bad, Deadline(5), Refused)["why"] == "garbage"
                    with pytest.raises(wire.WireError) as raised:
                        wire.receive(bad, Deadline(5), ToRank)
                    assert raised.value.kind == "closed"
            assert not hub.members and hub.is_here(1) is False
            wire.send(honest, MESSAGES[0], Deadline(5))
            assert wire.receive(honest, Deadline(5), Welcome)
    finally:
        hub.close()


def test_rank_whose_introduction_is_bad_is_told_and_alone_is_blamed() -> None:
    prelude = (
        "from numscope.doctor.agent import Agent\n"
        "old = Agent._introduction\n"
        "Agent._introduction = lambda self: {**old(self), 't': float('inf')}"
    )
    with fleet(2, preludes={1: prelude}) as ranks:
        ended = ranks.end()
    assert {one.code for one in ended.values()} == {1}, ended
    assert "Rank 1 never joined" in ended[0].out and ":0] is OK" in ended[0].out
    assert "was not admitted: not a message of the doctor: join.t: got 'Infinity'" in " ".join(ended[0].out.split())
    assert "version-mismatch" in ended[1].out and "hub-died" not in ended[1].out + ended[0].out


def test_results_of_healthy_ranks_and_corrupted_numbers_have_their_shape() -> None:
    results = examination(3, per_node=2).results
    assert {result.phase for result in results} == set(ExamPhase)
    for result in results:
        message = {"kind": "result", "result": to_json(result)}
        read = wire.unpack(json.dumps(message).encode(), ToHub)
        assert holds(to_jsonable_python(read), to_jsonable_python(message))  # nothing of it is unknown, and so left out
    wrong = {"index": 3, "got": math.nan, "expected": 1.0, "num_wrong": 1, "num_elements": 8}
    entry = {"name": "all_reduce", "backend": "gloo", "group": "all", "ranks": [[0, 1]], "bytes": 8, "status": "wrong", "wrong": wrong}
    result = PhaseResult(ExamPhase.COLLECTIVES, 0, "failed", data={"collectives": [entry]})
    packed = wire.pack({"kind": "result", "result": to_json(result)})
    message = wire.unpack(packed[4:], ToHub)
    assert message["result"]["data"]["collectives"][0]["wrong"]["got"] == "NaN"


def test_text_that_is_no_utf8_and_numbers_that_are_none_are_sent_as_text() -> None:
    result = PhaseResult(ExamPhase.FACTS, 0, "failed", error="no file \udcff", data={"errors": {"shm": "\udcfe"}})
    message = wire.unpack(wire.pack({"kind": "result", "result": result})[4:], ToHub)
    assert (message["result"]["error"], message["result"]["data"]["errors"]) == ("no file ?", {"shm": "?"})


def holds(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    return [*map(holds, whole, part)] == [True] * len(part) if isinstance(part, list) else bool(whole == part)


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a message's type, the ordinary ones more often."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        inner = {name: of_type(hint) for name, hint in hints.items()}
        return st.fixed_dictionaries(
            {name: inner[name] for name in kind.__required_keys__}, optional={name: inner[name] for name in kind.__optional_keys__}
        )
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        missing = {field.name for field in fields(kind) if field.default is MISSING}
        return st.fixed_dictionaries(
            {name: of_type(hints[name]) for name in missing}, optional={name: of_type(hints[name]) for name in hints.keys() - missing}
        )
    if origin in (Required, NotRequired):
        return of_type(arguments[0])
    if origin is Annotated:
        limits = {type(limit).__name__: limit for limit in arguments[1].metadata}
        if "_PydanticGeneralMetadata" in limits:
            pattern = limits["_PydanticGeneralMetadata"].__dict__.get("pattern")
            return st.from_regex(pattern, fullmatch=True, alphabet=st.characters(codec="utf-8")) if pattern else of_type(arguments[0])
        if "Ge" in limits and arguments[0] is int:
            first, last = limits["Ge"].ge, limits["Lt"].lt - 1
            return st.integers(first, min(last, 5)) | st.integers(first, last)
        return of_type(arguments[0])
    if origin is list or (origin is tuple and arguments[-1] is ...):
        return st.lists(of_type(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    if origin is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of(*map(of_type, arguments))
    words = ["", "ok", "corrupt", "timeout", "error", "failed", "dropped", "stranger", "stalled", "gloo", "all", "float_sum", "eth0", "lo"]
    return {
        str: st.sampled_from(words) | st.text(st.characters(codec="utf-8"), max_size=6),
        bool: st.booleans(),
        float: st.sampled_from([0, 0.0, 1.0, -1.0]) | st.floats(-9e18, 9e18),
        NoneType: st.none(),
    }[kind]


RESULTS = {ExamPhase(number): of_type(getattr(messages, phase.label.capitalize())) for number, phase in enumerate(ExamPhase)}


@effort(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_a_rank_measures_there_is_a_verdict(data: st.DataObject) -> None:
    """What has its shape may still be nonsense."""
    healthy = examination(3, per_node=2)
    results = [
        replace(result, status=data.draw(of_type(Status)), data=data.draw(RESULTS[result.phase])) if odd else result
        for result in healthy.results
        for odd in [result.rank in (1, 4) and data.draw(st.booleans())]
    ]
    examined = replace(healthy, results=results)
    verdict = judge(examined)
    print_verdict(verdict, examined, io.StringIO())
    assert json.dumps(report_as_json(verdict, examined), allow_nan=False)


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "\N{FULLWIDTH DIGIT ONE}", "7" * 5000])
def test_hosts_with_numbers_for_names_are_in_the_matrix(name: str) -> None:
    """Some digits are no number, and Python reads no number of 5,000 digits."""
    healthy = examination(3, per_node=2)
    ends = {"from_rank": 0, "to_rank": 6, "from_node": 0, "to_node": 0, "from_host": "a", "to_host": name}
    data = {"heard": {}, "node": 0, "cells": [ends | {"address": "", "port": 0, "ephemeral": "refused"}]}
    links = [replace(result, data=data) if result.rank == 1 and result.phase is ExamPhase.LINKS else result for result in healthy.results]
    examined = replace(healthy, results=links)
    shown = io.StringIO()
    print_verdict(judge(examined), examined, shown)
    assert shown.getvalue()


def test_hub_that_waits_for_another_rank_is_not_silent_whatever_this_rank_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket has one timeout for all threads: a sender's short one, set just before the reader waits, must not end the reader's wait."""

    class Slow(socket.socket):
        def settimeout(self, seconds: float | None) -> None:
            super().settimeout(seconds)
            if threading.current_thread().name == "doctor-arrive":
                time.sleep(0.1)  # so that a sender's comes in between

    def connect(*given: Any, **more: Any) -> Slow:
        return Slow(fileno=real(*given, **more).detach())

    real = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", connect)
    settings = replace(BRISK, timeout_scale=0.1)  # so half a second is patience
    hub = Hub(MeetingPoint("127.0.0.1", (0,), "secret", True, "a test", True), BRISK, 2)
    meeting = MeetingPoint("127.0.0.1", (hub.port,), "secret", False, "a test", True)
    agent = Agent(Identity(1, 2, hostname="here"), settings, meeting, Deadline(30), elsewhere=False)
    try:
        threading.Thread(target=agent._arrive, name="doctor-arrive", daemon=True).start()
        assert agent._events.get(timeout=10) == ("arrived", "")
        result = {"kind": "result", "result": to_json(PhaseResult(ExamPhase.FACTS, 1, "ok"))}
        for _ in range(30):
            agent._send(result)
            time.sleep(0.01)
        for _ in range(15):
            agent._send({"kind": "beat", "t": 0.0, "phase": ExamPhase.LINKS, "doing": "", "for_s": 0.0})  # which the hub answers
            time.sleep(0.1)
        assert agent._events.empty(), agent._events.get()
        assert isinstance(hub.members[1], Member) and hub.is_here(1)
    finally:
        agent.close()
        hub.close()
