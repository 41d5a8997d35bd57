"""Ranks that meet because one of them has something to say: wherever they are by then, whoever has gone, whoever listened for the host."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.distributed import host_memory as boards
from numscope.distributed.host_memory import NOWHERE, At, HostMemory
from tests.distributed.ranks import RankPool
from tests.distributed.test_ddp import Net, batches, digest

STEPS = 8


class Training:
    """Steps of one model that is watched."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = DDP(Net())
        torch.manual_seed(dist.get_rank())  # else ranks drop the same units, which is asked about
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scope = numscope.watch(self.model, **options)

    @property
    def meetings(self) -> Any:
        return self.scope._watch._detection.ranks._meetings  # type: ignore[union-attr]

    def step(self, rank: int, step: int, *, bad: bool = False, late: float = 0.0, alone: bool = False) -> None:
        """``bad``: the loss is, though its gradient is not; ``alone``: the gradient too, and it is not reduced."""
        self.optimizer.zero_grad()
        with self.model.no_sync() if alone else torch.enable_grad():
            loss = self.model(batches(rank)[step % 4]).square().mean()
            if bad:
                loss = loss + torch.log(-loss if alone else -loss.detach())
            loss.backward()
        time.sleep(late)
        self.optimizer.step()


def found(error: numscope.NonFiniteError) -> Any:
    return error.finding.step, error.finding.rank, error.finding.culprit and error.finding.culprit.op


def heard_late(rank: int, at_fault: int, step_of_fault: int) -> Any:
    """The other ranks have passed the place where one finds something."""
    training, place = Training(), 0
    try:
        for step in range(STEPS):
            bad = (rank, step) == (at_fault, step_of_fault)
            training.step(rank, step, bad=bad, late=0.1 if bad else 0.0)
        place = -1
        time.sleep(0.5 if rank != at_fault else 0.0)  # as saving a checkpoint takes
        training.scope.close()
    except numscope.NonFiniteError as error:
        return found(error), place or training.meetings._place, digest(training.model)
    return None


@pytest.mark.parametrize("at_fault", [0, 3])
def test_ranks_that_have_passed_the_place_meet_the_others_at_a_later_one(four_ranks: RankPool, at_fault: int) -> None:
    told = [t.value for t in four_ranks.run(heard_late, at_fault, 2)]
    assert all(value == told[0] for value in told)  # at the same place, with the same weights
    assert told[0][0] == (2, at_fault, "aten.log") and told[0][1] > 5


def test_what_is_found_in_the_last_step_is_heard_as_the_others_end(ranks: RankPool) -> None:
    told = ranks.run(heard_late, 1, STEPS - 1)
    assert [t.value[0] for t in told] == [(STEPS - 1, 1, "aten.log")] * 2
    assert "numscope: rank 0: " in told[0].said[0]


def bad_alone(rank: int) -> Any:
    """A gradient that is bad on one rank only, which finds it last."""
    training = Training()
    weights = ""
    try:
        for step in range(STEPS):
            bad = (rank, step) == (1, 2)
            weights = digest(training.model) if step == 2 else weights
            training.step(rank, step, bad=bad, late=0.1 if bad else 0.0, alone=step == 2)
    except numscope.NonFiniteError as error:
        return found(error), all(bool(p.isfinite().all()) for p in training.model.parameters())
    return None


def test_bad_gradient_of_one_rank_reaches_no_weight(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(bad_alone)] == [((2, 1, "aten.log"), True)] * 2


def both_at_once(rank: int) -> Any:
    training = Training(on_nonfinite="warn")
    for step in range(STEPS):
        training.step(rank, step, bad=(rank, step) in ((0, 2), (1, 2), (2, 3)))
    training.scope.close()
    return [(f.step, f.rank) for f in training.scope.findings], digest(training.model)


def test_several_that_speak_at_once_are_told_alike(four_ranks: RankPool) -> None:
    told = [t.value for t in four_ranks.run(both_at_once)]
    assert all(value == told[0] for value in told) and told[0][0][0] == (2, 0)


def leader_leaves(rank: int, how: str) -> Any:
    """The rank that listens for the host goes; another takes its place. All ranks here share one host, and all train to the end."""
    training = Training(on_nonfinite="warn")
    for step in range(STEPS):
        others = {0, 1, 2, 3} - leader_of(training, rank, step)
        training.step(rank, step, bad=step == 5 and rank == min(others))
        if step == 2 and rank not in others:
            if how == "closes":
                training.scope.close()
            else:  # as if its process had ended
                host = training.meetings._host
                host._listener.stop()
                host.board.resign()
                slot = training.meetings._slot
                slot._cells[slot._start + boards._PID] = gone_process()
                training.meetings.is_open = False
        if step == 3:
            time.sleep(1.2)
    training.scope.close()
    return "led" if rank not in others else [f.step for f in training.scope.findings]


def gone_process() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


leaders: set[int] = set()


def leader_of(training: Training, rank: int, step: int) -> set[int]:
    """The rank that led in step 1, known to all by the run's own group."""
    if step == 1:
        leads = torch.tensor([float(training.meetings._host.board._leads) * (rank + 1)])
        dist.all_reduce(leads)
        leaders.clear()
        leaders.add(int(leads.item()) - 1)
    return leaders


@pytest.mark.parametrize("how", ["closes", "is gone"])
def test_another_rank_listens_where_the_one_that_did_has_gone(four_ranks: RankPool, how: str) -> None:
    told = [t.value for t in four_ranks.run(leader_leaves, how)]
    assert sorted(map(str, told)) == ["[5]"] * 3 + ["led"]


def without_store(rank: int) -> Any:
    training = Training()
    steps = []
    for step in range(STEPS):
        if step == 3:
            training.meetings._board.end()
        try:
            training.step(rank, step, bad=(rank, step) == (1, 5))
        except numscope.NonFiniteError as error:
            return steps, found(error)
        steps.append(step)
        if step == 5:
            break
    training.scope.close()
    return steps, None


def test_store_that_is_gone_is_said_once_and_each_rank_judges_alone(ranks: RankPool) -> None:
    told = ranks.run(without_store)
    assert told[0].value == ([*range(6)], None) and told[1].value == ([*range(5)], (5, 1, "aten.log"))
    assert sum("judges its steps alone" in line for t in told for line in t.said) == 1


def two_models(rank: int) -> Any:
    first, second = Training(), Training()
    try:
        for step in range(STEPS):
            first.step(rank, step)
            second.step(rank, step, bad=(rank, step) == (1, 3))
    except numscope.NonFiniteError as error:
        return found(error), error.finding.model, first.meetings._place >= 8
    return None


def test_of_two_models_the_one_that_is_bad_is_met_about(ranks: RankPool) -> None:
    told = [t.value for t in ranks.run(two_models)]
    assert told == [((3, 1, "aten.log"), told[0][1], True)] * 2


def sockets(rank: int) -> Any:
    before = _held()
    training = Training()
    for step in range(3):
        training.step(rank, step)
    after = _held()
    leads = training.meetings._host.board._leads
    path = training.meetings._host.board._path
    training.scope.close()
    dist.barrier()
    return after[0] - before[0], after[1] - before[1], leads, os.path.exists(path)


def _held() -> tuple[int, int]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sum(name.startswith("socket:") for name in names), len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")
def test_a_rank_has_no_sockets_for_the_others_and_the_memory_goes_with_the_last(four_ranks: RankPool) -> None:
    told = [t.value for t in four_ranks.run(sockets)]
    assert sum(leads for _, _, leads, _ in told) == 1
    assert not any(remains for *_, remains in told)


# ---- the memory by itself


@pytest.fixture
def board() -> Any:
    made = HostMemory(f"test-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    for slot in made.slots_of({*range(10)}):
        slot.clear()
    made.close()


def test_place_that_nobody_has_passed(board: HostMemory) -> None:
    slots = [board.take(node)[0] for node in (7, 8, 9)]
    assert all(slots) and board.slots_of({8, 9, 10}) and len(board.slots_of({8, 9, 10})) == 2
    for slot, place, at in zip(slots, (4, 5, 5), (At.STANDS, At.PASSED, At.STANDS), strict=True):
        assert slot is not None
        slot.mark(place, at)
    assert [slot.next_place(0.1) for slot in slots if slot is not None] == [4, 6, 5]


def test_ring_is_told_to_whom_it_concerns(board: HostMemory) -> None:
    one, other = board.take(1)[0], board.take(2)[0]
    assert one is not None and other is not None
    one.concern(5)
    assert (one.told_at(5), other.told_at(5), one.told_at(4)) == (0, None, None)
    one.concern(5, 12)
    one.concern(6, NOWHERE)
    assert (one.told_at(5), one.told_at(6)) == (12, NOWHERE)


def test_slot_of_a_watch_that_has_ended_is_taken_again(board: HostMemory) -> None:
    slots = [board.take(node)[0] for node in (1, 2)]
    assert slots[0] is not None
    slots[0].mark(3, At.PASSED)
    slots[0].clear()
    again, dead = board.take(3)
    assert again is not None and again.next_place(0.1) == 1 and not dead
    assert {slot.node for slot in board.slots_of({1, 2, 3})} == {2, 3}


def test_file_goes_with_the_last_slot_and_what_a_killed_job_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards.os, "access", lambda *_: False)
    monkeypatch.setattr(boards.tempfile, "gettempdir", lambda: str(tmp_path))
    left = tmp_path / f"numscope-{boards._user()}-killed"
    left.write_bytes(b"")
    os.utime(left, (1.0, 1.0))
    made = HostMemory("job")
    assert [path.name for path in tmp_path.iterdir()] == [f"numscope-{boards._user()}-job-{boards._namespace()}"]
    assert oct(next(tmp_path.iterdir()).stat().st_mode & 0o777) == "0o600"
    slot, _ = made.take(1)
    assert slot is not None
    slot.clear()
    made.close()
    assert [*tmp_path.iterdir()] == []


def test_full_memory_is_found_before_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(boards.os, "posix_fallocate", full)
    made = HostMemory(f"full-{time.monotonic_ns()}")
    assert made._file == -1 and made.take(1)[0] is not None and made.lead()
    made.close()


def test_forked_child_writes_nothing(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(forked)] == [(True, [False])] * 2


def forked(rank: int) -> Any:
    training = Training()
    training.step(rank, 0)
    meetings = training.meetings
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes([meetings.is_open]))
        os._exit(0)
    os.waitpid(child, 0)
    told = [bool(one) for one in os.read(reader, 1)]
    for fd in (reader, writer):
        os.close(fd)
    training.step(rank, 1)
    is_open = meetings.is_open
    training.scope.close()
    return is_open, told
