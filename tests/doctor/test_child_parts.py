"""The child's parts that need no process."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.doctor.budget import Overdue
from numscope.doctor.child.pairs import difference, pattern
from numscope.doctor.child.reporting import Report
from numscope.doctor.child.session import sentence
from numscope.records.words import in_bytes
from tests.doctor.planted.sitecustomize import Faults


@settings(deadline=None)
@given(st.integers(1, 300), st.sets(st.tuples(st.integers(0, 299), st.integers(0, 7)), max_size=6))
def test_difference_counts_each_flipped_bit(num_bytes: int, flips: set[tuple[int, int]]) -> None:
    expected = pattern(num_bytes, "x")
    got = expected.clone()
    flips = {(offset % num_bytes, bit) for offset, bit in flips}
    for offset, bit in flips:
        got[offset] ^= 1 << bit
    found = difference(got, expected)
    if not flips:
        assert found is None
    else:
        offsets = {offset for offset, _ in flips}
        assert found == {"first_offset": min(offsets), "num_bytes": len(offsets), "num_bits": len(flips)}


def test_pattern_is_the_same_for_the_same_words_and_covers_all_bits() -> None:
    one = pattern(1 << 16, "pair", 0, 1, 8)
    assert torch.equal(one, pattern(1 << 16, "pair", 0, 1, 8))
    assert not torch.equal(one, pattern(1 << 16, "pair", 1, 0, 8))
    counts = torch.bincount(one.to(torch.int64), minlength=256)
    assert counts.min() > 150  # of 256 on average; 6 deviations below
    assert counts.max() < 370


def test_slow_fault_is_that_of_its_rank() -> None:
    assert (Faults("slow:rank=2,factor=8", 2).slowness, Faults("slow:rank=2,factor=8", 1).slowness) == (8, 1)


def test_faults_of_other_ranks_and_phases_leave_alone() -> None:
    faults = Faults("corrupt:rank=1,peer=2;hang:phase=5,rank=1,step=send;die:phase=6,rank=0", 1)
    payload = torch.zeros(8, dtype=torch.uint8)
    faults.strike(4, "send")
    faults.strike(5, "recv")
    faults.strike(6, "send")
    faults.corrupt(5, payload, peer=0)
    faults.corrupt(6, payload, peer=2)
    assert payload.sum() == 0
    faults.corrupt(5, payload, peer=2)
    assert payload.tolist() == [0, 0, 0, 0, 0, 0, 5, 128]


def test_unknown_fault_is_refused_with_those_known() -> None:
    with pytest.raises(ValueError, match="NUMSCOPE_TEST_FAULT: got 'corupt:rank=0', expected corrupt:peer,phase,rank; slow:factor,rank; "):
        Faults("corupt:rank=0", 0)


def test_step_that_was_left_behind_says_nothing_any_more() -> None:
    reading, writing = os.pipe()
    report = Report(writing)
    back = threading.Event()
    ended = threading.Event()

    def work() -> None:
        with report.step("first"):
            back.wait()
        ended.set()  # not reached: the announcement after the step ends the thread

    with pytest.raises(Overdue, match=r"^not done within 0\.1 s$"):
        report.limited(0.1, work)
    back.set()
    report.set(second=True)
    end = time.monotonic() + 0.3
    while time.monotonic() < end and not ended.is_set():
        time.sleep(0.01)
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert [line["event"] for line in map(json.loads, lines)] == ["doing", "set"]
    assert not ended.is_set()


def test_limited_gives_results_and_errors() -> None:
    report = Report(1)
    assert report.limited(10.0, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        report.limited(10.0, lambda: 1 // 0)


def test_words_for_sizes_and_errors() -> None:
    assert [in_bytes(size) for size in (8, 4096, 1 << 20, 64 << 20, 3 << 29)] == ["8 B", "4 KiB", "1 MiB", "64 MiB", "1.5 GiB"]
    gloo = "[/x/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:30437: reset. This is typically caused by\nmore"
    assert sentence(RuntimeError(gloo)) == "Read error [10.0.0.2]:30437: reset"
    assert sentence(RuntimeError()) == "RuntimeError"
