"""The watchdog's words and flight-recorder dumps: who differs, who is behind."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from numscope.doctor.explain import examine
from numscope.doctor.explain.plain_pickle import loads
from tests.doctor.explain.nccl_samples import watchdog

SAMPLES = Path(__file__).parent / "samples" / "flight_recorder"


def entry(
    seq: int, op: str = "nccl:all_reduce", size: int = 16, *, state: str = "completed", dtype: str = "Float", line: int = 7, **more: Any
) -> dict[str, Any]:
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": 1_700_000_000_000_000_000,
        "input_sizes": [[size]],
        "input_dtypes": [dtype],
        "output_sizes": [[size]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else 5,
        "time_discovered_completed_ns": 6 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/usr/torch/distributed/distributed_c10d.py", "line": 99},
            {"name": "step", "filename": "train.py", "line": line},
        ],
        **more,
    }


def dump(folder: Path, rank: int, entries: list[dict[str, Any]], world: int = 4) -> None:
    values = {
        "version": "2.10",
        "entries": entries,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
    }
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(values, protocol=2))


def the(folder: Path, id: str):
    return next(one for one in examine([folder]).findings if one.id == id)


def test_a_real_dump_of_a_rank_that_is_behind_names_rank_number_op_size_and_site() -> None:
    one = the(SAMPLES / "behind", "rank-behind")
    assert one.ranks == (1,)
    assert "#2 all_reduce of 16 Float at /job/ex/fr.py:12" in one.summary


def test_a_real_dump_of_different_ops_names_both_sites() -> None:
    one = the(SAMPLES / "op", "collective-mismatch")
    assert one.confidence == "certain"
    assert "rank 0 called all_reduce of 16 Float at /job/ex/fr.py:17" in one.summary
    assert "rank 1 called broadcast of 16 Float at /job/ex/fr.py:16" in one.summary


def test_the_json_form_is_read_as_the_pickle_is() -> None:
    assert the(SAMPLES / "json_behind", "rank-behind").ranks == (1,)


def test_real_dumps_of_a_healthy_run_give_no_finding() -> None:
    assert examine([SAMPLES / "ok"]).findings == ()


def test_the_dump_of_the_torch_at_hand_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    import subprocess
    import sys

    script = (
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(8))\n"
        "open(sys.argv[1], 'wb').write(torch._C._distributed_c10d._dump_fr_trace())\n"
    )
    file = tmp_path / "nccl_trace_rank_0"
    subprocess.run([sys.executable, "-c", script, str(file)], check=True, timeout=120)
    explanation = examine([file])
    assert explanation.files[0].kinds == {"flight recorder"}
    assert loads(file.read_bytes())["entries"][0]["input_sizes"] == [[8]]
    assert explanation.findings == ()


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"size": 32}, "of 32 Float"),
        ({"dtype": "Half"}, "of 16 Half"),
        ({"op": "nccl:_all_gather_base"}, "_all_gather_base"),
    ],
)
def test_the_one_rank_that_differs_is_named(tmp_path: Path, odd: dict[str, Any], words: str) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [entry(1), entry(2, state="started", **(odd if rank == 2 else {}))])
    one = the(tmp_path, "collective-mismatch")
    assert one.ranks == (2,)
    assert "#2" in one.summary and words in one.summary and "train.py:7 (step)" in one.summary


def test_the_first_difference_is_told_not_what_follows_from_it(tmp_path: Path) -> None:
    for rank in range(3):
        dump(
            tmp_path,
            rank,
            [entry(1), *(entry(2 + i + (rank != 1), size=i) for i in range(3))] + ([entry(2, size=99)] if rank != 1 else []),
            world=3,
        )
    assert "#2" in the(tmp_path, "collective-mismatch").summary


def test_sizes_of_uneven_all_to_all_may_differ(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [entry(1, "nccl:all_to_all", 16 + rank)])
    assert examine([tmp_path]).findings == ()


def test_a_snapshot_in_which_a_rank_is_ahead_of_a_complete_call_is_healthy(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [entry(1), *([entry(2, "nccl:broadcast")] if rank == 0 else [])])
    assert examine([tmp_path]).findings == ()


def test_a_rank_whose_gpu_has_not_started_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [entry(1), entry(2, state="scheduled" if rank == 3 else "started")])
    one = the(tmp_path, "rank-behind")
    assert one.ranks == (3,)
    assert "the GPU has not started it" in one.summary


def test_all_stuck_in_the_same_call_could_not_be_told(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [entry(1), entry(2, state="started")])
    one = the(tmp_path, "collective-stuck")
    assert "is unknown" in one.summary
    assert one.confidence == "possible"


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        dump(tmp_path, rank, [entry(1)])
    one = the(tmp_path, "flight-recorder-rank-missing")
    assert (one.ranks, one.severity) == ((2,), "note")


def test_deep_json_does_not_crash(tmp_path: Path) -> None:
    (tmp_path / "t0.json").write_text('{"entries":' + "[" * 100_000)
    assert "nested too deeply" in examine([tmp_path]).files[0].problem or "damaged" in examine([tmp_path]).files[0].problem


def test_json_of_wrong_types_does_not_crash(tmp_path: Path) -> None:
    wrong = {
        "entries": [3, {"collective_seq_id": "x"}, entry(1, input_sizes=[["a"]], frames=[1, {"filename": 3}], input_dtypes=[None])],
        "pg_config": [],
        "pg_status": 4,
    }
    (tmp_path / "t0.json").write_text(json.dumps(wrong))
    assert examine([tmp_path]).findings == ()


def lines_of(tmp_path: Path, lines: list[str]) -> Path:
    file = tmp_path / "train.err"
    file.write_text("\n".join(lines))
    return file


def test_a_watchdog_that_names_different_ops_finds_the_rank(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in watchdog(rank, 1580, "BROADCAST" if rank == 2 else "ALLREDUCE", 466119168)]
    one = the(lines_of(tmp_path, lines), "collective-mismatch")
    assert one.ranks == (2,)
    assert "#1580" in one.summary and "BROADCAST of 466,119,168 elements" in one.summary


def test_a_watchdog_that_names_different_sizes_finds_the_rank(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in watchdog(rank, 8, "ALLREDUCE", 195812480 if rank == 1 else 51123456)]
    assert the(lines_of(tmp_path, lines), "collective-mismatch").ranks == (1,)


def test_a_rank_whose_watchdog_is_silent_is_the_suspect(tmp_path: Path) -> None:
    lines = ["[rank3]: loading batch", *(line for rank in (0, 1, 2) for line in watchdog(rank, 8, "ALLREDUCE", 1024))]
    (tmp_path / "out").write_text("[rank3]: Traceback (most recent call last):")
    one = next(one for one in examine([lines_of(tmp_path, lines), tmp_path / "out"]).findings if one.id == "rank-behind")
    assert (one.ranks, one.confidence) == ((3,), "possible")


def test_all_watchdogs_at_one_collective_could_not_be_told(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in watchdog(rank, 7753, "_REDUCE_SCATTER_BASE", 544997376)]
    one = the(lines_of(tmp_path, lines), "collective-stuck")
    assert "is unknown" in one.summary and "TORCH_FR_BUFFER_SIZE=2000" in one.remedy[0]


def test_the_oldest_form_of_the_watchdog_is_read(tmp_path: Path) -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE,"
        " Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out."
    )
    assert "#469508" in the(lines_of(tmp_path, [line.format(rank) for rank in (1, 3)]), "collective-stuck").summary
