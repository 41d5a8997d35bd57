"""Sending in the background."""

from __future__ import annotations

import threading

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
