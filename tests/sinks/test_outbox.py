"""Sending in the background."""

from __future__ import annotations

import threading
import time

import pytest

from numscope.sinks import outbox
from numscope.sinks.outbox import Outbox


def test_work_is_done_in_order_and_the_thread_ends() -> None:
    done: list[int] = []
    box = Outbox("a test's")
    for number in range(100):
        box.put(lambda number=number: done.append(number))  # type: ignore[misc]
    box.drain()
    assert done == list(range(100))
    assert box.num_left_out == 0
    for thread in [one for one in threading.enumerate() if one.name == "a test's"]:
        thread.join(10)
        assert not thread.is_alive()  # a replay forks only where no other thread runs


def test_error_shows_with_the_next_call_and_what_came_after_it_is_dropped() -> None:
    done: list[int] = []
    box, begun = Outbox("a test's"), threading.Event()

    def fail() -> None:
        begun.wait(10)
        raise ConnectionError("away")

    box.put(fail)
    box.put(lambda: done.append(1))
    begun.set()
    with pytest.raises(ConnectionError, match="away"):
        box.drain()
    assert done == []


def test_service_that_is_too_slow_gets_no_more_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 3)
    box, begun, go = Outbox("a test's"), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go.wait(60)

    box.put(hang)
    assert begun.wait(10)
    for _ in range(5):
        box.put(lambda: None)
    assert box.num_left_out == 2
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        box.drain(0)
    go.set()
    box.drain()


def stuck(box: Outbox) -> threading.Event:
    """Keep the box at work until the event is set, as a service that is slow to start does."""
    begun, go = threading.Event(), threading.Event()

    def start() -> None:
        begun.set()
        go.wait(60)

    box.put(start)
    assert begun.wait(10)
    return go


def test_findings_go_before_statistics_and_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 2)
    box, done = Outbox("a test's"), []
    go = stuck(box)
    for number in range(4):
        box.put(lambda number=number: done.append(number))  # type: ignore[misc]
    for name in ("first", "second", "third"):
        box.put_news(lambda name=name: done.append(name))  # type: ignore[misc]
    go.set()
    box.drain(last=lambda: done.append("end"))
    assert done == ["first", "second", "third", 0, 1, "end"]
    assert box.num_left_out == 2


def test_finding_of_a_service_that_is_slow_to_start_is_late_and_not_lost() -> None:
    box, done = Outbox("a test's"), []
    go = stuck(box)
    box.put_news(lambda: done.append("finding"))
    start = time.monotonic()
    box.settle(0.2)
    box.settle(20)  # it has waited once
    assert time.monotonic() - start < 10
    assert done == []
    go.set()
    box.drain()
    assert done == ["finding"]


def test_finding_is_sent_although_statistics_have_failed() -> None:
    box, done = Outbox("a test's"), []
    go = stuck(box)

    def fail() -> None:
        raise ConnectionError("away")

    for work in (fail, lambda: done.append("statistics")):
        box.put(work)
    go.set()
    while box._waiting:
        time.sleep(0.01)
    box.put_news(lambda: done.append("finding"))
    with pytest.raises(ConnectionError, match="away"):
        box.drain()
    assert done == ["finding"]


def test_what_did_not_arrive_in_time_is_said_with_where_it_is() -> None:
    box = Outbox("a test's")
    go = stuck(box)
    box.put_news(lambda: None)
    box.put_news(lambda: None)
    with pytest.raises(
        TimeoutError, match=r"no answer within 0 s; 2 reports of findings or alerts may not have arrived\. The terminal has"
    ):
        box.drain(0)
    go.set()
    box.drain()
