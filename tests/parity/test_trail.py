"""A run that was resumed is compared with the one that went on, step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

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
        (with_step(2, loss=1.0, random="other"), 7, "step 8 the loss is 1, and was 1.3, from the same batch, with another random state."),
        (with_step(0, loss=1.6, batch=""), 5, "at step 6 the batch is another one"),
        (replace(SECOND, begin="weights 0"), -1, "steps first: they were not loaded; the first saved after step 5."),
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
    found = judge_resume([FIRST], [replace(SECOND, is_certain=True)])
    assert found.kind == "resume" and "bit by bit, over 4 steps. Resumed at step 5: all is lost." in found.text
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


def critic_first(folder: Path, num: int, *, saved: dict[str, Any] | None = None) -> tuple[RankTrail, dict[str, Any]]:
    """Two models that take turns, of which the one that is called in both turns steps first."""
    torch.manual_seed(3)
    critic, maker = nn.Sequential(nn.Linear(5, 1, bias=False), nn.Identity()), nn.Linear(2, 5)
    rules = [torch.optim.RMSprop(model.parameters(), lr=0.01) for model in (critic, maker)]
    if saved:
        for one, state in zip((critic, maker, *rules), saved["states"], strict=True):
            one.load_state_dict(state)
    folder.mkdir()
    trail = Trail(str(folder), 99, lambda: None, saves=False)
    optimizer_probe.listen(trail)
    trail.add(critic)
    begin = saved["step"] if saved else 0
    for step in range(begin, begin + num):
        fake = maker(torch.full((6, 2), float(step)))
        critic(torch.ones(6, 5) * step).mean().add(critic(fake.detach()).square().mean()).backward()
        rules[0].step()
        critic(fake).mean().neg().backward()
        rules[1].step()
        for one in rules:
            one.zero_grad()
    trail.close()
    return read_trails(folder)[0], {"step": begin + num, "states": [one.state_dict() for one in (critic, maker, *rules)]}


def test_models_that_take_turns_and_resume_exactly_are_left_alone(tmp_path: Path) -> None:
    (whole, _), (_, saved) = critic_first(tmp_path / "a", 7), critic_first(tmp_path / "b", 4)
    second, _ = critic_first(tmp_path / "c", 3, saved=saved)
    found = judge_resume([replace(whole, saves=[4])], [second])
    assert found.kind is None and "after step 4 goes on as the other one, bit by bit, over 3 steps" in found.text


def test_what_another_turn_has_called_is_no_batch_of_this_one(tmp_path: Path) -> None:
    """The actor, which is called first, gives the critic's turn a target, without gradients, and trains in its own turn alone."""
    torch.manual_seed(4)
    actor, critic = nn.Linear(3, 1), nn.Linear(4, 1)
    rules = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (critic, actor)]
    trail = Trail(str(tmp_path), 99, lambda: None, saves=False)
    optimizer_probe.listen(trail)
    trail.add(actor)
    for step in range(3):
        given = torch.full((6, 3), float(step))
        with torch.no_grad():
            target = critic(torch.cat([given, actor(given)], 1))
        (critic(torch.ones(6, 4)) - target).square().mean().backward()
        rules[0].step()
        critic(torch.cat([given, actor(given)], 1)).mean().backward()
        rules[1].step()
    trail.close()
    assert [step.batch for step in read_trails(tmp_path)[0].steps] == [""] * 3


def test_a_step_that_makes_an_optimizers_state_is_none_of_training(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(4, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = made()
    saved = get_state_dict(*made())
    trail = Trail(str(tmp_path), 99, lambda: None, saves=False)
    optimizer_probe.listen(trail)
    get_state_dict(model, optimizer)
    assert optimizer.state
    set_state_dict(model, optimizer, model_state_dict=saved[0], optim_state_dict=saved[1])
    loaded = Trail._weights(optimizer)
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    trail.close()
    (found,) = read_trails(tmp_path)
    assert (found.begin, len(found.steps)) == (loaded, 1)


def test_only_what_was_compared_is_said() -> None:
    first = replace(FIRST, steps=[step._replace(batch="") for step in WENT_ON])
    second = replace(SECOND, steps=[step._replace(batch="", random="other", loss=9.0) for step in SECOND.steps])
    assert "at step 6 the loss is 9, and was 1.5, with another random state." in judge_resume([first], [second]).text


def test_weights_in_another_order_are_the_same_ones() -> None:
    weights = [nn.Parameter(torch.randn(3, 3)) for _ in range(4)]
    first, second = (torch.optim.SGD(order, lr=0.1) for order in (weights, weights[::-1]))
    before = Trail._weights(first)
    assert before == Trail._weights(second)
    with torch.no_grad():
        weights[0][0, 0] += 1
    assert Trail._weights(first) == Trail._weights(second) != before


def test_weights_that_move_and_come_back_up_to_rounding_are_those_of_the_save(tmp_path: Path) -> None:
    """Sharpness-aware steps: what an optimizer gets as it steps are weights of no step."""

    def run(folder: Path, saved: dict[str, Any] | None, num: int) -> tuple[RankTrail, dict[str, Any]]:
        folder.mkdir()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.load_state_dict(saved or net.state_dict())
        trail = Trail(str(folder), 9, lambda: None, saves=False)
        trail.add(net)
        optimizer_probe.listen(trail)
        for step in range(3 if saved else 0, num):
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            (net(x) - 1).square().mean().backward()
            with torch.no_grad():
                moves = [0.05 * p.grad / p.grad.norm() for p in net.parameters() if p.grad is not None]
                for p, move in zip(net.parameters(), moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            (net(x) - 1).square().mean().backward()
            with torch.no_grad():
                for p, move in zip(net.parameters(), moves, strict=True):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()
        trail.close()
        return trail.found, {name: one.clone() for name, one in net.state_dict().items()}

    _, saved = run(tmp_path / "saved", None, 3)
    first, _ = run(tmp_path / "first", None, 6)
    second, _ = run(tmp_path / "second", saved, 6)
    found = judge_resume([replace(first, saves=[3])], [second])
    assert found.kind is None and "after step 3 goes on as the other one, bit by bit, over 3 steps" in found.text
