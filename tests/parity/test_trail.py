"""A run that was resumed is compared with the one that went on, step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from numscope.parity.trail import RankTrail, Trail, TrailStep, judge_resume, read_trails, steps_after
from numscope.probe import optimizer as optimizer_probe
from numscope.records.errors import UsageError

WENT_ON = [TrailStep(f"batch {i}", "random", 2.0 - i / 10, f"weights {i + 1}") for i in range(9)]
FIRST = RankTrail(0, "weights 0", WENT_ON, [2, 5])
SECOND = RankTrail(0, "weights 5", WENT_ON[5:], lost=["Resumed at step 5: all is lost."])


def with_step(at: int, **fields: Any) -> RankTrail:
    steps = [*SECOND.steps]
    steps[at] = steps[at]._replace(**fields)
    return replace(SECOND, steps=steps)


@pytest.mark.parametrize(
    ("second", "step", "text"),
    [
        (with_step(1, batch="other"), 6, "at step 7 the batch is another one. Resumed at step 5: all is lost."),
        (with_step(0, loss=1.6), 5, "at step 6 the loss is 1.6, and was 1.5, from the same batch. Resumed"),
        (with_step(2, loss=1.0, random="other"), 7, "at step 8 the loss is 1, and was 1.3, from the same batch and other random numbers."),
        (replace(SECOND, begin="weights 0"), -1, "begins at the beginning again: it loads nothing; the first saved after step 5."),
        (replace(SECOND, begin="weights 9"), -1, "goes on after step 9, the last one of the first, which has saved as it was ended."),
        (replace(SECOND, begin="strange"), -1, "begins with weights of no step of the first; the first saved after step 5."),
    ],
)  # fmt: skip
def test_the_first_thing_that_differs_is_named(second: RankTrail, step: int, text: str) -> None:
    found = judge_resume([FIRST], [second])
    assert (found.kind, found.step) == ("resume", step) and text in found.text


def test_runs_that_agree_do_so_in_bits_or_up_to_rounding() -> None:
    found = judge_resume([FIRST], [SECOND])
    assert found.kind is None and "after step 5 goes on as the other one, bit by bit, over 4 steps" in found.text and found.notes
    found = judge_resume([FIRST], [with_step(3, weights="others", loss=WENT_ON[8].loss * (1 + 1e-7))])  # type: ignore[operator]
    assert found.kind is None and "up to rounding: losses differ by 1e-07" in found.text
    found = judge_resume([FIRST, replace(FIRST, rank=1)], [SECOND, replace(with_step(0, batch="other"), rank=1)])
    assert "at step 6 on rank 1 the batch is another one" in found.text


def test_runs_that_show_nothing_are_refused() -> None:
    assert steps_after([FIRST], 20) == 4 and steps_after([FIRST], 3) == 3
    with pytest.raises(UsageError, match="has made 9 steps and saved no checkpoint that was seen"):
        steps_after([replace(FIRST, saves=[])], 20)
    with pytest.raises(UsageError, match="saved after the last one alone"):
        steps_after([replace(FIRST, saves=[9])], 20)


class Over(SystemExit):
    """Ends the run."""


@pytest.mark.parametrize(("every", "saved", "ends"), [(2, [2, 4], 6), (3, [3], 6), (7, [7], 10)])
def test_a_run_ends_after_its_steps_or_before_the_next_save(tmp_path: Path, every: int, saved: list[int], ends: int) -> None:
    def over() -> None:
        raise Over

    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trail = Trail(str(tmp_path), 3, over, saves=True)
    optimizer_probe.listen(trail)
    trail.add(model)
    with pytest.raises(Over):
        for step in range(1, 20):
            loss = model(torch.full((3, 4), float(step))).sum()
            loss.backward()
            optimizer.step()
            torch.save({"small": torch.ones(1)}, tmp_path / "small")
            if step % every == 0:
                torch.save(model.state_dict(), tmp_path / "checkpoint")
    trail.close()
    (found,) = read_trails(tmp_path)
    assert (found.saves, len(found.steps), found.error) == (saved, ends, "")
    assert len({step.weights for step in found.steps} | {found.begin}) == ends + 1 and len({step.batch for step in found.steps}) == ends
    assert found.steps[-1].loss == pytest.approx(loss.item())
    assert not any(key.endswith("_hooks") and value for key, value in vars(model).items())
