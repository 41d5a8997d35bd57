"""A few bytes in a dump or a log cost little time, whatever they say."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numscope.doctor import explain, redact
from numscope.doctor.explain import examine
from numscope.doctor.explain.log_files import MAX_LINE_CHARS

_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
SECONDS = 20  # of processor time; what took longer took minutes
NUM_CHARS = 8 * MAX_LINE_CHARS


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """All patterns that lines of logs are searched for."""
    for name in ("", *(module.name for module in pkgutil.iter_modules(explain.__path__))):
        module = importlib.import_module(f"{explain.__name__}.{name}") if name else redact
        for key, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{name}.{key}", value
        if name in ("patterns", "nccl_rules"):
            yield from dict(getattr(module, "PATTERNS" if name == "patterns" else "_RULES")).items()


def example(items: Any, chance: random.Random) -> str:
    """A text that these parts of a pattern match, or nearly."""
    text = ""
    for kind, content in items:
        match str(kind):
            case "LITERAL":
                text += chr(content)
            case "IN":
                kind, content = chance.choice(content)
                text += {"LITERAL": lambda c: chr(c), "RANGE": lambda c: chr(chance.randint(*c))}.get(str(kind), lambda _: "a")(content)
            case "BRANCH":
                text += example(chance.choice(content[1]), chance)
            case "SUBPATTERN":
                text += example(content[3], chance)
            case "MAX_REPEAT" | "MIN_REPEAT":
                times = min(content[0] + chance.choice([0, 1, 3]), content[1])
                text += "".join(example(content[2], chance) for _ in range(times))
            case "ANY" | "NOT_LITERAL":
                text += "x"
    return text


def pumps(pattern: re.Pattern[str], chance: random.Random) -> Iterator[str]:
    """Parts of texts that the pattern matches, which long repeated make it begin or go on again and again."""
    tree = list(_parser.parse(pattern.pattern, pattern.flags))
    sequences: list[Any] = [tree]
    for sequence in sequences:
        for kind, content in sequence:
            match str(kind):
                case "BRANCH":
                    sequences += map(list, content[1])
                case "SUBPATTERN":
                    sequences.append(list(content[3]))
                case "MAX_REPEAT" | "MIN_REPEAT":
                    sequences.append(list(content[2]))
    for _ in range(12):
        sequence = chance.choice(sequences)
        if sequence:
            begin = chance.randrange(len(sequence))
            yield example(sequence[begin : chance.randint(begin + 1, len(sequence))], chance)


PATTERNS = dict(patterns())


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_takes_time_in_proportion_to_the_line(name: str) -> None:
    """Eight times the longest line takes a second at most; a quadratic pattern takes several, some of them minutes."""
    pattern, chance = PATTERNS[name], random.Random(0)
    lines = {(pump * (NUM_CHARS // len(pump) + 1))[:NUM_CHARS]: pump for pump in pumps(pattern, chance) if pump}  # each once
    for line, pump in lines.items():
        for end in ("", "\x00"):
            begun = time.process_time()
            pattern.search(line + end)
            assert time.process_time() - begun < 1.0, f"{pump!r}, repeated"


def nested(levels: int) -> bytes:
    """Opcodes of a tuple of twice a tuple of twice a tuple …"""
    return b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (level, level, level + 1) for level in range(levels))


HOSTILE = {
    "shared tuples as a foreign object's name": b"\x80\x02" + nested(60) + b"Q.",
    "deep tuples as a foreign object's name": b"\x80\x02)" + b"\x85" * 100_000 + b"Q.",
    "shared tuples as a key": b"\x80\x02}" + nested(60) + b"\x85Ns.",
    "deep lists": b"\x80\x02}X\x07\x00\x00\x00entries]" + b"]" * 100_000 + b"a" * 100_000 + b"s.",
    "deep JSON": b'{"entries": [' + b"[" * 900 + b"]" * 900 + b"]}",
    "a million brackets": b'{"entries": ' + b"[" * 1_000_000,
    "sizes that all calls share": pickle.dumps(
        {
            "entries": [
                {"collective_seq_id": number, "profiling_name": "nccl:x", "input_sizes": sizes}
                for sizes in [[[1] * 64] * 5000]
                for number in range(5000)
            ]
        }
    ),
    "ranks that all groups share": pickle.dumps(
        {"entries": [], "pg_config": {str(group): {"ranks": ranks} for ranks in [f"[{'1,' * 500_000}1]"] for group in range(5000)}}
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_dump_is_refused_at_once(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "trace_rank_0").write_bytes(data)
    begun = time.process_time()
    (file,) = examine([tmp_path]).files
    assert file.problem
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    "line",
    [
        "n:1:1 [0] NCCL INFO Bootstrap : Using " + "3" * 16_000,
        "n:1:1 [0] NCCL INFO " + "NCCL_" * 3_200,
        "n:1:1 [0] NCCL INFO " + "comm 0x0 rank 0 nranks 0 commId 0x0" * 450,
        "n:1:1 [0] NCCL WARN " + "/dev/shm" * 2_000,
        "Port 1 is already in use " + "[" * 16_000,
        "n:1:1 [0] NCCL WARN " + "-a" * 8_000,
        "_" * 8_000 + " NCCL WARN",
    ],
    ids=lambda line: line[-12:],
)
def test_long_lines_are_read_at_once(tmp_path: Path, line: str) -> None:
    (tmp_path / "job.log").write_text(f"{line}\n" * 60)
    begun = time.process_time()
    assert examine([tmp_path], redact=True).files
    assert time.process_time() - begun < SECONDS


def test_many_warnings_of_many_hosts_are_joined_in_bounded_time(tmp_path: Path) -> None:
    lines = (
        f"h{number}:{number}:1 [0] NCCL INFO Bootstrap : Using eth0:10.{number >> 16}.{number >> 8 & 255}.{number & 255}<0>\n"
        f"h{number}:{number}:1 [0] NCCL WARN Connection closed by remote peer p{number}<1>\n"
        f"h{number}:{number}:1 [0] NCCL WARN Call to connect to 10.9.{number >> 8}.{number & 255}<1> failed : Connection refused\n"
        for number in range(6000)
    )
    (tmp_path / "job.log").write_text("".join(lines))
    begun = time.process_time()
    assert {"nccl-peer-closed", "nccl-connect-failed"} <= {one.id for one in examine([tmp_path]).findings}
    assert time.process_time() - begun < SECONDS
