"""DistributedDataParallel: what goes wrong on one rank stops all of them in the same step, and all name that rank and line."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.config.options import WatchOptions
from numscope.scope.autowatch import AutoWatch
from tests.distributed.ranks import RankPool, Told
from tests.distributed.root import DIVISION, Root
from tests.tape import line_of


def here(mark: str) -> tuple[str, int]:
    return __file__, line_of(mark, __file__)


class Net(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.first = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor, fault: str = "") -> Tensor:
        h = self.drop(self.first(x))
        if "forward" in (fault, self.fault):
            h = h + torch.log(-h.abs())  # in the forward
        if self.fault == "backward":
            h = Root.apply(h)
        return self.last(h)


def batches(rank: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(3, 4, generator=generator) for _ in range(4)]


def digest(model: nn.Module) -> str:
    data = b"".join(p.detach().contiguous().view(torch.uint8).numpy().tobytes() for p in model.parameters())
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def caught(error: numscope.NonFiniteError) -> dict[str, Any]:
    f = error.finding
    c = f.culprit
    return {
        "step": f.step,
        "rank": f.rank,
        "phase": f.phase.value,
        "file": None if c is None else c.file,
        "line": None if c is None else c.line,
        "reason": None if c is None else c.reason.value,
        "op": None if c is None else c.op,
        "replay": f.replay,
        "site": str(f.site),
        "model": f.model,
    }


def fault_on_rank_1(rank: int, fault: str) -> dict[str, Any]:
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scope = numscope.watch(model)
    weights = ""
    for step, x in enumerate(batches(rank)):
        bad = rank == 1 and step == 2
        net.fault = fault if bad else ""
        if bad and fault == "batch":
            x = x * float("nan")
        weights = digest(model)
        try:
            out = model(x)
            loss = out.square().mean()
            if bad and fault == "loss":
                loss = loss + torch.log(-loss)  # in the loss
            if bad and fault == "loss only":
                loss = loss + torch.log(-loss.detach())  # in the loss alone
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except numscope.NonFiniteError as error:
            scope.close()
            return {**caught(error), "untouched": digest(model) == weights, "weights": digest(model)}
    return {}


@pytest.mark.parametrize(
    ("fault", "phase", "mark", "reason"),
    [
        ("forward", "forward", "in the forward", "argument outside the function's domain"),
        ("batch", "forward", "", "bad input data"),
        ("loss", "loss", "in the loss", "argument outside the function's domain"),
        ("loss only", "loss", "in the loss alone", "argument outside the function's domain"),
        ("backward", "backward", "the division", "division by zero"),
    ],
)
def test_fault_on_one_rank_stops_all_in_the_same_step_and_all_name_it(
    ranks: RankPool, fault: str, phase: str, mark: str, reason: str
) -> None:
    told = ranks.run(fault_on_rank_1, fault)
    values = [t.value for t in told]
    untouched = [value.pop("untouched") for value in values]
    assert values[0] == values[1]  # the weights too
    value = values[0]
    assert (value["step"], value["rank"], value["phase"]) == (2, 1, phase)
    # Of a loss that is bad on its own rank the gradients are good, of log(-loss) too: the other rank may have used them before it hears.
    assert untouched == [True, True] or phase == "loss"
    assert value["reason"] == reason
    if mark:
        assert (value["file"], value["line"]) == (DIVISION if fault == "backward" else here(mark))
    one_line_on_rank_0_full_report_on_rank_1(told)


def one_line_on_rank_0_full_report_on_rank_1(told: list[Told]) -> None:
    assert len(told[0].said) == 1 and told[0].said[0].startswith("numscope: rank 0: ")
    assert " — " not in told[0].said[0]  # reason and advice
    assert len(told[1].said) > 10


class Masked(nn.Module):
    def __init__(self, on: bool) -> None:
        super().__init__()
        self.on, self.score, self.last = on, nn.Linear(4, 4), nn.Linear(4, 2)
        self.keep = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        scores = self.keep(self.score(x).masked_fill(x > 0.5, float("-inf")) if self.on else self.score(x))
        return self.last(torch.where(scores.isinf(), 0.0, scores))


def contained_on_rank_0(rank: int) -> tuple[int, list[str]]:
    model = DDP(Masked(rank == 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        for x in batches(rank):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    return len(scope.findings), [str(f.site) for f in scope.contained]


def test_infinity_contained_on_one_rank_stops_nobody(ranks: RankPool) -> None:
    told = ranks.run(contained_on_rank_0)
    assert [t.value[0] for t in told] == [0, 0]
    assert "keep (Identity) output" in told[0].value[1] and not told[1].value[1]


def train(rank: int, watched: bool, micro_batches: int) -> tuple[list[float], str]:
    torch.manual_seed(7)
    model = DDP(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scope = numscope.watch(model) if watched else None
    losses = []
    for x in batches(rank):
        optimizer.zero_grad()
        for k in range(micro_batches):
            if k < micro_batches - 1:
                with model.no_sync():
                    loss = model(x + k).square().mean()
                    loss.backward()
            else:
                loss = model(x + k).square().mean()
                loss.backward()
            losses.append(loss.item())
        optimizer.step()
    if scope is not None:
        scope.close()
    return losses, digest(model)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_on_or_off_losses_and_weights_are_bitwise_the_same(ranks: RankPool, micro_batches: int) -> None:
    on, off = (ranks.run(train, watched, micro_batches) for watched in (True, False))
    assert [t.value for t in on] == [t.value for t in off]
    assert on[0].value[1] == on[1].value[1]


def warned(rank: int) -> dict[str, Any]:
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step, x in enumerate(batches(rank)):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if rank == 1 and step == 1:
                loss = loss + torch.log(-loss.detach())
            loss.backward()
            optimizer.step()
    return {"findings": [(f.step, f.rank, f.phase.value) for f in scope.findings], "weights": digest(model), "steps": scope.step_number}


def test_warning_notes_the_finding_on_every_rank_and_training_goes_on(ranks: RankPool) -> None:
    told = ranks.run(warned)
    assert told[0].value == told[1].value
    assert told[0].value["findings"] == [(1, 1, "loss")]


def accumulated(rank: int) -> dict[str, Any]:
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numscope.watch(model)
    try:
        for step, x in enumerate(batches(rank)):
            optimizer.zero_grad()
            for k in range(4):
                with model.no_sync():
                    model(x, "forward" if (rank, step, k) == (1, 1, 2) else "").square().mean().backward()
            model(x).square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return {**caught(error), "batch": error.finding.batch}
    return {}


def test_fault_under_no_sync_is_found_with_its_micro_batch(ranks: RankPool) -> None:
    told = ranks.run(accumulated)
    assert told[0].value == told[1].value
    value = told[0].value
    assert (value["step"], value["rank"], value["batch"], value["line"]) == (1, 1, 5 + 2, here("in the forward")[1])


def late(rank: int, fault: str) -> dict[str, Any]:
    """The model is watched first and wrapped afterwards, as ``numscope.watch(model)`` at its birth would be."""
    net = Net()
    numscope.watch(net)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for step, x in enumerate(batches(rank)):
            net.fault = fault if (rank, step) == (1, 2) else ""
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return caught(error)
    return {}


def test_wrapping_after_watching_is_found_out(ranks: RankPool) -> None:
    told = ranks.run(late, "forward")
    assert told[0].value == told[1].value
    assert told[0].value["rank"] == 1


def evaluating_alone(rank: int, bad: bool) -> str:
    """Rank 0 alone evaluates between steps; the model's output may be nan there."""
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for x in batches(rank):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if rank == 0:
                net.fault = "forward" if bad else ""
                with torch.no_grad():
                    net(x)
                net(x)  # with a graph that nobody uses
                net.fault = ""
    assert scope.findings == []  # what was evaluated reached no training
    return ",".join(f"{note.step}:{note.rank}" for note in scope._watch.without_gradients)


@pytest.mark.parametrize("bad", [False, True])
def test_evaluation_on_one_rank_asks_nobody(ranks: RankPool, bad: bool) -> None:
    told = ranks.run(evaluating_alone, bad)
    assert [bool(t.value) for t in told] == [bad, False]


def joined(rank: int, fault: bool) -> Any:
    """Rank 1 has more batches than rank 0."""
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen: list[float] = []
    with numscope.watch(model, on_nonfinite="warn") as scope, model.join():
        for step, x in enumerate(batches(rank)[: 2 + 2 * rank]):
            net.fault = "forward" if fault and (rank, step) == (1, 3) else ""
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
    return len(seen), [(f.step, f.rank, f.culprit.line if f.culprit else None) for f in scope.findings]


@pytest.mark.parametrize("fault", [False, True])
def test_uneven_inputs_under_join_do_not_hang(ranks: RankPool, fault: bool) -> None:
    told = ranks.run(joined, fault)
    assert [t.value[0] for t in told] == [2, 4]
    assert told[1].value[1] == ([(3, 1, here("in the forward")[1])] if fault else [])
    assert told[0].value[1] == []


def watched_on_rank_0_only(rank: int) -> Any:
    from numscope.distributed import agree

    patience, agree.PATIENCE_S = agree.PATIENCE_S, 0.5
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(model) if rank == 0 else None
    try:
        for x in batches(rank):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    finally:
        agree.PATIENCE_S = patience
        if scope is not None:
            scope.close()
    return digest(model), scope is not None and len(scope.findings)


def test_watch_on_one_rank_only_does_not_hang(ranks: RankPool) -> None:
    told = ranks.run(watched_on_rank_0_only)
    assert told[0].value[0] == told[1].value[0]
    assert any("is watched on rank 0, not on all of ranks [0, 1]" in line for line in told[0].said)


def failing_watch(rank: int, where: str) -> Any:
    """The tool itself fails on rank 0 in step 1; in step 3 rank 1 has a fault."""
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(model)
    assert scope._watch._detection is not None
    owner: Any = scope._watch._detection.judge if where == "after_step" else scope._watch._detection
    original = getattr(owner, where)

    def broken(*args: Any) -> Any:
        if scope.batch >= 2 and rank == 0:
            raise RuntimeError("planted")
        return original(*args)

    setattr(owner, where, broken)
    steps = 0
    try:
        for step, x in enumerate(batches(rank)):
            net.fault = "forward" if (rank, step) == (1, 3) else ""
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            steps += 1
    except numscope.NonFiniteError as error:
        return steps, error.finding.rank, scope.closed
    return steps, None, scope.closed


@pytest.mark.parametrize("where", ["_own_loss", "_see_gradients", "after_step"])
def test_watch_that_fails_on_one_rank_leaves_the_others_watching(ranks: RankPool, where: str) -> None:
    told = ranks.run(failing_watch, where)
    assert told[0].value == (4, None, True)
    assert told[1].value == (3, 1, False)


def destroyed(rank: int) -> int:
    model = DDP(Net())
    torch.manual_seed(rank)  # else ranks drop the same units, which is asked about
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(model)
    for x in batches(rank):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model(batches(rank)[0]).sum().backward()  # a step that no optimizer ends
    net = model.module
    del model
    dist.barrier()
    dist.destroy_process_group()
    scope.close()
    assert net is not None
    return len(scope.findings)


def test_closing_after_the_process_group_is_gone_is_silent(ranks: RankPool) -> None:
    told = ranks.run(destroyed)
    assert [(t.value, t.said) for t in told] == [(0, []), (0, [])]


def update(rank: int) -> dict[str, Any]:
    """Finite gradients, and a rate that makes the update infinite."""
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numscope.watch(model)
    try:
        for step, x in enumerate(batches(rank)):
            optimizer.param_groups[0]["lr"] = float("inf") if step == 1 else 0.01
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return caught(error)
    return {}


def test_bad_update_is_told_alike_by_all_ranks(ranks: RankPool) -> None:
    told = ranks.run(update)
    assert told[0].value == told[1].value
    assert (told[0].value["phase"], told[0].value["step"], told[0].value["rank"]) == ("optimizer", 1, 0)


class Communicating(nn.Module):
    """Its forward averages over ranks, as SyncBatchNorm (which runs on GPUs only) does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.fault = ""

    def forward(self, x: Tensor) -> Tensor:
        from torch.distributed.nn.functional import all_reduce

        h = self.first(x)
        if self.fault == "before":
            h = h + torch.log(-h.abs())  # before the collective
        mean = all_reduce(h.mean(0)) / dist.get_world_size()
        h = h - mean
        if self.fault == "after":
            h = h / (h * 0)  # after the collective
        if self.fault == "backward":
            h = Root.apply(h)
        return self.last(h)


def communicating(rank: int, fault: str, fault_rank: int) -> dict[str, Any]:
    net = Communicating()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numscope.watch(model)
    try:
        for step, x in enumerate(batches(rank)):
            bad = (rank, step) == (fault_rank, 1)
            net.fault = fault if bad else ""
            if bad and fault == "data":
                x = x / (x * 0)  # in the data of a communicating model
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if bad and fault == "loss":
                loss = torch.log(-loss)  # in the loss of a communicating model
            loss.backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return caught(error)
    return {}


@pytest.mark.parametrize(
    ("fault", "mark", "fault_rank"),
    [
        ("before", "before the collective", 1),
        ("after", "after the collective", 0),
        ("backward", "the division", 0),
        ("backward", "the division", 1),
        ("loss", "in the loss of a communicating model", 1),
        ("data", "in the data of a communicating model", 0),
    ],
)
def test_model_that_communicates_is_replayed_by_all_ranks_together(ranks: RankPool, fault: str, mark: str, fault_rank: int) -> None:
    told = ranks.run(communicating, fault, fault_rank)
    assert told[0].value == told[1].value
    value = told[0].value
    assert (value["step"], value["rank"], value["replay"]) == (1, fault_rank, "reproduced")
    assert (value["file"], value["line"]) == (DIVISION if fault == "backward" else here(mark))


def evaluating_a_communicating_model(rank: int) -> Any:
    net = Communicating()
    net.fault = "after" if rank == 1 else ""
    with numscope.watch(net, on_nonfinite="warn") as scope, torch.no_grad():
        net(batches(rank)[0])
    assert scope.findings == []  # the result reached no training
    return [note.replay for note in scope.contained]


def test_communicating_model_is_not_replayed_by_one_rank_alone(ranks: RankPool) -> None:
    told = ranks.run(evaluating_a_communicating_model)
    assert told[0].value == []
    assert told[1].value[0].startswith("not replayed: the model communicates between ranks")


def forking(rank: int, entrance: str) -> dict[str, Any]:
    """As a data loader's workers do at each epoch, once the ranks have spoken to each other."""
    net = Net()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch: Any = AutoWatch(WatchOptions()) if entrance == "all models" else numscope.watch(model)
    told: dict[str, Any] = {"ended": []}
    with watch:
        for step, x in enumerate(batches(rank)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            child = os.fork()
            if child == 0:
                gc.collect()
                os._exit(7)
            deadline = time.monotonic() + 30
            ended = (0, 0)
            while ended[0] == 0 and time.monotonic() < deadline:
                ended = os.waitpid(child, os.WNOHANG)
                time.sleep(0.01)
            if ended[0] == 0:
                os.kill(child, signal.SIGKILL)
            told["ended"].append(os.waitstatus_to_exitcode(ended[1]) if ended[0] else "hangs")
            if step == 2:
                break
    return told


@pytest.mark.parametrize("entrance", ["all models", "one model"])
def test_forked_children_end_and_ranks_stay_together(ranks: RankPool, entrance: str) -> None:
    """The sockets between ranks are the parent's: in a child, what waits for their threads as they go would wait for ever."""
    for told in ranks.run(forking, entrance):
        assert told.value == {"ended": [7, 7, 7]}, told.value
        assert "judges its steps alone" not in told.stderr
