"""The children of several ranks, healthy ones: what they measure, and that they end."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from numscope.doctor.phases.children import Child
from numscope.doctor.records import Identity, Settings
from tests.doctor.crew import Crew, Told, is_gone
from tests.warm import COLD

NUM = 4
SIZES = (8, 4096, 1 << 18)


@pytest.fixture(scope="module")
def healthy() -> Iterator[dict[int, list[Told]]]:
    with Crew(NUM, sizes=SIZES) as crew:
        yield {phase: crew.run(phase, 100.0) for phase in (4, 5, 6, 7)}


def test_healthy_ranks_fail_in_nothing(healthy: dict[int, list[Told]]) -> None:
    assert {(phase, told.error) for phase, ranks in healthy.items() for told in ranks} == {(4, ""), (5, ""), (6, ""), (7, "")}


def test_backend_starts_gloo_among_all_and_says_why_not_nccl(healthy: dict[int, list[Told]]) -> None:
    for told in healthy[4]:
        assert (told.data["members"], told.data["missing"]) == ([[0, 3]], [])
        assert told.data["groups"]["gloo"]["error"] == ""
        assert told.data["store"]["rank"] == 0
        if not told.data["num_gpus"]:
            assert told.data["groups"]["nccl"]["skipped"] == "ranks 0–3 can't use NCCL"
            assert told.data["lacks"] == ("gpu" if dist.is_nccl_available() else "nccl")


def test_pairs_each_rank_receives_each_size_from_each_other_once(healthy: dict[int, list[Told]]) -> None:
    for rank, told in enumerate(healthy[5]):
        gloo = [pair for pair in told.data["pairs"] if pair["backend"] == "gloo"]
        assert sorted(pair["peer"] for pair in gloo) == [peer for peer in range(NUM) if peer != rank]
        assert {pair["status"] for pair in gloo} == {"ok"}
        for pair in gloo:
            assert [entry["bytes"] for entry in pair["received"]] == list(SIZES)
            assert all(entry["corrupt"] is None and entry["bytes_per_s"] > 0 for entry in pair["received"] if not entry["skipped"])
        assert (told.data["rounds_done"], told.data["num_rounds"], told.data["missing"]) == (3, 3, [])


def test_pairs_announce_each_step_before_it(healthy: dict[int, list[Told]]) -> None:
    assert {f"recv from {peer}, 4 KiB" for peer in (1, 2, 3)} | {f"send to {peer}, 8 B" for peer in (1, 2, 3)} <= set(healthy[5][0].said)


def test_collectives_are_exact_in_the_whole_and_in_halves(healthy: dict[int, list[Told]]) -> None:
    names = {"barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "float_sum"}
    for rank, told in enumerate(healthy[6]):
        done = told.data["collectives"]
        assert {entry["status"] for entry in done} <= {"ok", "skipped"}
        for group, ranks in (("all", [[0, 3]]), ("half", [[0, 1]] if rank < 2 else [[2, 3]])):
            of_group = [entry for entry in done if entry["group"] == group]
            assert {entry["name"] for entry in of_group} == names
            assert all(entry["ranks"] == ranks for entry in of_group)


def test_float_sum_has_the_same_bits_on_all_ranks_of_a_group(healthy: dict[int, list[Told]]) -> None:
    digests: dict[tuple[int, ...], set[str]] = {}
    for told in healthy[6]:
        for entry in told.data["collectives"]:
            if entry["name"] == "float_sum":
                assert entry["repeats"] == 5
                digests.setdefault(tuple(entry["ranks"][0]), set()).update(entry["digests"])
    assert {ranks: len(found) for ranks, found in digests.items()} == {(0, 3): 1, (0, 1): 1, (2, 3): 1}
    assert len(set.union(*digests.values())) == 3


def test_compute_measures_both_probes_as_often(healthy: dict[int, list[Told]]) -> None:
    for told in healthy[7]:
        gemm, copy = told.data["gemm"], told.data["copy"]
        assert gemm["repeats"] == copy["repeats"] >= 1
        assert 0 < gemm["min_s"] <= gemm["median_s"] <= gemm["max_s"]
        assert math.isclose(gemm["flops_per_s"], 2 * gemm["n"] ** 3 / gemm["min_s"])
        assert told.data["threads"] == max(1, len(os.sched_getaffinity(0)) // NUM)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_child_dies_with_its_agent_even_while_it_hangs() -> None:
    code = (
        "import time, threading\n"
        "from numscope.doctor.phases.children import Child\n"
        "from numscope.doctor.budget import Deadline\n"
        "from numscope.doctor.records import Identity, Settings\n"
        "child = Child(Identity(rank=0, world_size=1), Settings())\n"
        "told = threading.Event()\n"
        "threading.Thread(target=lambda: child.run(7, {}, Deadline(60.0), lambda what: told.set()), daemon=True).start()\n"
        "told.wait()\n"
        "print(child.process_group, flush=True)\n"
        "time.sleep(600)\n"
    )
    agent = subprocess.Popen([COLD, "-c", code], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    group = int(agent.stdout.readline())
    os.killpg(group, signal.SIGSTOP)  # no thread of its own can end it now
    agent.kill()
    agent.wait()
    agent.stdout.close()
    assert is_gone(group)


def test_child_that_is_never_told_anything_ends_when_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", COLD)
    child = Child(Identity(rank=0, world_size=1), Settings())
    child.close()
    assert child.ended
    assert is_gone(child.process_group)
    child.close()
