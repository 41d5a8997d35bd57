"""With ``on_nonfinite="heal"`` the remedy that a trial has shown to work stays on: on all ranks, and in a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

import numscope
from numscope.detect.healing import FILE
from tests.distributed.ranks import RankPool

REMEDY = "numscope.high_precision(model[1])"


class Block(nn.Module):
    """Its square overflows float16 where inputs are large, and what it returns does not."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x) ** 2 * 3e-4)


def model_of() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Block(), nn.LayerNorm(8), nn.Linear(8, 1))
    model[0].weight.data.mul_(2)
    return model


def train(model: nn.Module, num_steps: int = 6, large_from: int = 2, scaler: GradScaler | None = None, seed: int = 0) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), 1e-4), []
    for step in range(num_steps):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step + 100 * seed)) * (500 if step >= large_from else 1)
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().square().mean()
        losses.append(loss.item())
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
    return losses


def is_finite(losses: list[float]) -> list[bool]:
    return [loss - loss == 0 for loss in losses]


@pytest.mark.parametrize("scaled", [False, True])
def test_one_step_is_lost_and_the_module_computes_in_float32_until_the_watch_ends(scaled: bool) -> None:
    model = model_of()
    with numscope.watch(model, on_nonfinite="heal") as scope:
        losses = train(model, scaler=GradScaler("cpu", init_scale=4.0) if scaled else None)
        assert "forward" in vars(model[1])
    assert is_finite(losses) == [True, True, False, True, True, True]
    who = "GradScaler" if scaled else "numscope"
    assert scope.events == [(2, f"{who} left the step out: a gradient was not finite"), (2, f"{REMEDY} stays on from now on")]
    assert scope.findings == [] and not any("forward" in vars(module) for module in model.modules())


def test_a_run_that_goes_on_in_its_folder_heals_again_from_its_first_step(tmp_path: Path) -> None:
    for attempt in range(2):
        model = model_of()
        with numscope.watch(model, on_nonfinite="heal", log_dir=str(tmp_path)):
            losses = train(model, 3, large_from=1)
        assert is_finite(losses) == [True, attempt == 1, True]
    assert json.loads((tmp_path / FILE).read_text()) == [REMEDY]


@pytest.mark.parametrize("text", ["{", "[1, null]", '{"a": 1}', '["__import__(\'os\').abort()", "numscope.high_precision(model.gone)"]'])
def test_a_file_that_holds_something_else_is_not_followed(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    model = model_of()
    with numscope.watch(model, on_nonfinite="heal", log_dir=str(tmp_path)):
        assert not any("forward" in vars(module) for module in model.modules())


def test_where_the_file_can_t_be_written_the_remedy_stays_on_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).mkdir()
    model = model_of()
    with numscope.watch(model, on_nonfinite="heal", log_dir=str(tmp_path)):
        assert is_finite(train(model)) == [True, True, False, True, True, True]
    assert f"{FILE} can't be written" in caplog.text and "begins unhealed" in caplog.text


def test_what_no_remedy_cures_is_left_out_and_a_finding_after_ten() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(numscope.NonFiniteError), numscope.watch(model, on_nonfinite="heal") as scope:
        for _ in range(12):
            model(torch.full((2, 4), float("nan"))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert len(scope.events) == 10 and not any("stays on" in text for _, text in scope.events)


def ranked(rank: int) -> Any:
    model = nn.parallel.DistributedDataParallel(model_of())
    with numscope.watch(model, on_nonfinite="heal") as scope:
        losses = train(model, large_from=2 if rank == 1 else 99, seed=rank)
        healed = "forward" in vars(model.module[1])
    return is_finite(losses), healed, scope.events, model.module[0].weight.detach().clone()


def test_all_ranks_heal_what_one_has_found(ranks: RankPool) -> None:
    one, other = (told.value for told in ranks.run(ranked))
    assert one[0] == [True] * 6 and other[0] == [True, True, False, True, True, True]
    assert one[1] and other[1] and one[2] == other[2] and one[2][-1] == (2, f"{REMEDY} stays on from now on")
    assert torch.equal(one[3], other[3])
