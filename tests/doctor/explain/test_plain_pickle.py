"""Pickles from anywhere: read or refused, nothing is executed, and memory stays in proportion to the file."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.doctor.explain import examine
from numscope.doctor.explain.plain_pickle import PickleRefused, loads

MOST = 128  # bytes of memory for a byte of the file
AT_LEAST = 1 << 16  # for the unpickler itself
PROTOCOL = b"\x80\x04"


def outcome(data: bytes) -> Any:
    """The value, or the refusal, with memory within bounds."""
    tracemalloc.start()
    try:
        try:
            return loads(data)
        except PickleRefused as refused:
            return refused
        finally:
            assert tracemalloc.get_traced_memory()[1] <= MOST * len(data) + AT_LEAST
    finally:
        tracemalloc.stop()


class _Evil:
    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize(
    "reduced",
    [(os.mkdir, ("pwned",)), (eval, ("__import__('os').mkdir('pwned')",)), (list, (), None, iter([1]))],
    ids=lambda reduced: reduced[0].__name__,
)
def test_pickle_that_requests_code_is_refused_with_a_sentence(
    tmp_path: Path, protocol: int, reduced: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"entries": [_Evil(reduced)]}, protocol=protocol)
    assert isinstance(outcome(data), PickleRefused)
    Path("nccl_trace_rank_0").write_bytes(data)
    explanation = examine([Path("nccl_trace_rank_0")])
    assert not Path("pwned").exists()
    assert explanation.findings == () and not explanation.recognized
    if protocol >= 2:
        assert "refused: it requests code to be executed" in explanation.files[0].problem
        assert reduced[0].__name__ in explanation.files[0].problem


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'touch pwned'\ntR.",  # GLOBAL, REDUCE
        b"(S'touch pwned'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch pwned'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02Pan object elsewhere\n.",  # PERSID
        b"\x80\x02K\x01Q.",  # BINPERSID
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02}}b.",  # BUILD
        b"\x80\x05\x97.",  # NEXT_BUFFER
    ],
    ids=lambda data: str(data[:12]),
)
def test_opcode_that_names_or_builds_something_is_refused(data: bytes) -> None:
    assert isinstance(outcome(data), PickleRefused)


HUGE = struct.pack("<Q", 1 << 40)


@pytest.mark.parametrize(
    "data",
    [
        b"r\xff\xff\xff\x7f.",  # LONG_BINPUT without a value
        b"\x96" + HUGE,  # BYTEARRAY8
        b"\x8e" + HUGE,  # BINBYTES8
        b"\x8d" + HUGE + b"a.",  # BINUNICODE8
        b"X\xff\xff\xff\x7fa",  # BINUNICODE
        b"B\xff\xff\xff\x7fa",  # BINBYTES
        b"\x8b\xff\xff\xff\x7f",  # LONG4
        b"((((u.",
        b"}h\x00.",
        b"]N",
        b"N" + b"\x85" * 100_000,
        b"]\x94" * 100_000,
        b"}\x94" * 100_000,
        b"N" + b"\x94" * 100_000,
        b"(]" * 100_000,
        b"}N" + b"\x85" * 100_000 + b"Ns.",  # a key whose hash would overflow the stack
    ],
    ids=lambda data: str(data[:12]),
)
def test_damaged_or_hostile_pickle_is_refused_within_memory(data: bytes) -> None:
    assert isinstance(outcome(PROTOCOL + data), PickleRefused)


def test_sparse_memo_and_long_frame_cost_nothing() -> None:
    assert outcome(PROTOCOL + b"Nr\xff\xff\xff\x7f.") is None
    assert outcome(PROTOCOL + b"\x95" + HUGE + b"N.") is None


@given(st.lists(st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes]) | st.binary(max_size=9), max_size=60))
def test_any_opcodes_are_read_or_refused(parts: list[bytes]) -> None:
    outcome(PROTOCOL + b"".join(parts))


def plain_values(*leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=8), *leaves),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text(max_size=4) | st.integers() | st.tuples(st.text(max_size=2), st.text(max_size=2)), inner, max_size=4)
        ),
        max_leaves=20,
    )


# Before protocol 3, bytes are written as calls.
@given(st.tuples(plain_values(), st.just(2)) | st.tuples(plain_values(st.binary(max_size=8)), st.integers(3, 5)), st.integers(0, 400))
def test_plain_values_come_back_and_cut_ones_are_refused(written: tuple[Any, int], cut: int) -> None:
    value, protocol = written
    data = pickle.dumps({"entries": value}, protocol=protocol)
    assert outcome(data) == {"entries": value}
    assert isinstance(outcome(data[: min(cut, len(data) - 1)]), PickleRefused)


def test_lists_that_contain_each_other_have_no_endless_text(tmp_path: Path) -> None:
    doubled: list[Any] = ["x"]
    for _ in range(60):
        doubled = [doubled, doubled]  # its text has 2^60 characters
    entry = {"collective_seq_id": 1, "profiling_name": "nccl:x", "process_group": (doubled, doubled), "input_dtypes": doubled, "frames": []}
    entry["frames"] = [{"filename": "train.py", "name": doubled}]
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": [entry], "pg_config": {"0": {"ranks": doubled}}}, protocol=2))
    assert [file.problem.partition(":")[0] for file in examine([tmp_path]).files] == ["refused"]
