"""Whatever is in a file, explain ends and says something."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numscope.doctor.explain import examine, print_explanation, to_json_values
from tests.doctor.explain.nccl_samples import rank_lines, warn, watchdog
from tests.effort import examples

SAMPLES = sorted(file for file in (Path(__file__).parent / "samples").rglob("*") if file.is_file())
FRAGMENTS = [
    *rank_lines(0, 3, complete=False),
    *rank_lines(1, 3, host="node2", network="Socket", ib=""),
    warn("Call to connect failed : Connection timed out"),
    warn("Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703"),
    *watchdog(2, 10**17, "ALLREDUCE", 10**17),
    *(line for file in SAMPLES if file.suffix == ".log" for line in file.read_text().splitlines() if "frame #" not in line),
]

quick = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def survives(data: bytes, name: str = "nccl_trace_rank_0") -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        for redact in (False, True):
            explanation = examine([file], redact=redact)
            out = io.StringIO()
            print_explanation(explanation, out)
            json.dumps(to_json_values(explanation))
            assert "\x1b" not in out.getvalue()
            assert out.getvalue().strip()


@quick
@given(st.binary(max_size=400), st.sampled_from([b"", b"\x80\x02", b"\x80\x05", b"\x1f\x8b", b'{"entries":[', b"node1:1:1 [0] NCCL INFO "]))
def test_any_bytes_are_survived(data: bytes, head: bytes) -> None:
    survives(head + data)


@quick
@given(st.sampled_from(SAMPLES), st.integers(0, 4000), st.integers(0, 4000), st.binary(max_size=4))
def test_real_samples_cut_and_damaged_are_survived(file: Path, at: int, cut: int, dirt: bytes) -> None:
    data = file.read_bytes()
    at %= len(data) + 1
    survives(data[:at] + dirt + data[at + cut % 200 :])
    survives(data[:at])


@quick
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40), st.randoms())
def test_lines_of_all_kinds_in_any_order_are_survived(lines: list[str], random) -> None:
    lines = [line if random.random() < 0.8 else line[: random.randrange(len(line) + 1)] for line in lines]
    survives("\n".join(lines).encode())


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["ranks", "0", "frames", "line", "filename"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_KEYS = [
    "collective_seq_id",
    "profiling_name",
    "process_group",
    "input_sizes",
    "input_dtypes",
    "state",
    "frames",
    "retired",
    "is_p2p",
    "pg_id",
]


@quick
@given(st.lists(st.dictionaries(st.sampled_from(_KEYS), _plain), max_size=5), _plain, _plain)
def test_dumps_of_any_values_are_survived(entries: list[dict], config: object, status: object) -> None:
    survives(
        json.dumps(
            {
                "entries": [{"collective_seq_id": 1, "profiling_name": "x", **one} for one in entries],
                "pg_config": config,
                "pg_status": status,
            }
        ).encode()
    )
