"""With ``on_nonfinite="heal"`` the remedy that a trial has shown to work stays on: on all ranks, and in a run that goes on."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import linecache
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

import numscope
from numscope.detect.healing import FILE, KeptRemedy
from tests.distributed.ranks import RankPool

pytestmark = pytest.mark.tried

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


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1, null]",
        '[{"remedy": 1}]',
        '[{"remedy": "os.abort()", "module": "1", "file": "x.py", "line": 1}]',
        '{"a": 1}',
        "[" * 100_000,
        json.dumps([KeptRemedy("log(x.clamp_min(1e-6))", "1", "/dev/zero", 1, "x").written]),
        json.dumps([KeptRemedy("log(x.clamp_min(1e-6))", "gone", __file__, 1, "x").written]),
        json.dumps(
            [
                KeptRemedy("log(x.clamp_min(1e-6))", "1", "\x1b[2J", -1, "\ud800").written,
                KeptRemedy("sqrt(x)", "1", __file__, 1, "").written,
            ]
        ),
        '["__import__(\'os\').abort()", "numscope.high_precision(model.gone)"]',
    ],
)
def test_a_file_that_holds_something_else_is_not_followed(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_text(text)
    model = model_of()
    with numscope.watch(model, on_nonfinite="heal", log_dir=str(tmp_path)) as scope:
        assert not any("forward" in vars(module) for module in model.modules()) and not scope._watch._detection.left_out.healing.on
    assert "\x1b" not in caplog.text and "it holds no remedy for this model and script" in caplog.text


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


class InPlace(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mul(0).log_()


def test_where_no_remedy_can_stay_on_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    model = InPlace(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with numscope.watch(model, on_nonfinite="heal") as scope:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    told = [text for text in caplog.messages if "no remedy stays on" in text]
    assert len(scope.events) == 3 and len(told) == 1 and "step 0: no remedy stays on for aten.log_ at " in told[0]


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


SOURCE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Part(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.layer, self.inner = nn.Linear(4, 4, bias=False), inner

    def compute(self, x):
        p = self.layer(x).abs().sum(-1, keepdim=True)
        return {line}

    def forward(self, x):
        return {result} + (0 if self.inner is None else self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Part(), Part(Part())

    def forward(self, x):
        return self.first(x) + self.second(x / 2)
"""
LINES = {  # what makes a row of zeros bad, and the same with the remedy that is told
    "torch.log(p)": "torch.log(p.clamp_min(1e-6))",
    "p.rsqrt().cos()": "(p + 1e-6).rsqrt().cos()",
    "1 / p": "1 / torch.where(p.abs() < 1e-6, 1e-6, p)",
    "(p - torch.where(p == 0, torch.inf, 0.0)).expand(-1, 3).softmax(-1)": (
        "(p - torch.where(p == 0, torch.inf, 0.0)).expand(-1, 3).clamp_min(torch.finfo(p.dtype).min).softmax(-1)"
    ),
}


def module_of(folder: Path, line: str, result: str = "self.compute(x)") -> Any:
    file = folder / f"m{zlib.crc32((line + result).encode())}.py"
    if not file.exists():  # ranks share it
        file.write_text(SOURCE.format(line=line, result=result))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def zeros_from_step_2(
    module: Any, scope: Any, edited: Any = None, seed: int = 0, wrapped: Any = lambda model: model, has_zeros: bool = True
) -> tuple[list[float], nn.Module]:
    """A training of six steps; ``edited``: what the script becomes after step 2, which it leaves out."""
    torch.manual_seed(0)
    model = module.Net()
    whole = wrapped(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), 1e-3), []
    with scope(whole):
        for step in range(6):
            x = torch.rand(8, 4, generator=torch.Generator().manual_seed(step + 100 * seed))
            x[0] *= step < 2 or not has_zeros
            loss = whole(x).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            if edited is None or step != 2:
                optimizer.step()
            elif edited is not None:
                for part in (model.first, model.second, model.second.inner):
                    part.__class__ = edited.Part
        copied = copy.deepcopy(model)
    assert not torch.overrides._get_current_function_mode_stack()
    assert not any(m._forward_hooks or m._forward_pre_hooks for one in (model, copied) for m in one.modules())
    return losses, model


def heals(**options: Any) -> Any:
    return lambda model: numscope.watch(model, on_nonfinite="heal", **options)


@pytest.mark.parametrize("line", LINES)
def test_a_remedy_on_an_operand_stays_on_as_if_it_were_written_into_the_line(line: str, tmp_path: Path) -> None:
    module = module_of(tmp_path, line)
    losses, model = zeros_from_step_2(module, heals())
    assert is_finite(losses) == [True, True, False, True, True, True]
    by_hand, other = zeros_from_step_2(module, contextlib.nullcontext, edited=module_of(tmp_path, LINES[line]))
    assert losses[3:] == by_hand[3:]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_run_that_goes_on_has_it_from_its_first_step_as_long_as_the_line_is_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = module_of(tmp_path, "torch.log(p)")
    for finite in (False, True):
        losses, _ = zeros_from_step_2(module, heals(log_dir=str(tmp_path / "run")))
        assert is_finite(losses) == [True, True, finite, True, True, True]
    (kept,) = json.loads((tmp_path / "run" / FILE).read_text())
    line = kept["line"]
    assert kept == {
        "remedy": "log(x.clamp_min(1e-6))",
        "module": "first",
        "file": module.__file__,
        "line": line,
        "code": "return torch.log(p)",
    }
    said = f"log(x.clamp_min(1e-6)) at {module.__file__}:{line}"
    assert f"{said} stays on from now on." in caplog.text and f"{said} is on from the first step, as {tmp_path}/run/{FILE}" in caplog.text
    Path(module.__file__).write_text(SOURCE.format(line="torch.log(p.exp())", result="self.compute(x)"))
    linecache.checkcache()
    with numscope.watch(module.Net(), on_nonfinite="heal", log_dir=str(tmp_path / "run")) as scope:
        assert scope.events == []
    assert f"can't stay on: another code stands at {module.__file__}:{line}" in caplog.text


def test_a_stronger_remedy_on_a_line_takes_the_place_of_a_milder_one(tmp_path: Path) -> None:
    module = module_of(tmp_path, "torch.log(p)")
    mild, strong = (f"log(x.clamp_min({eps}))" for eps in ("1e-6", "0.01"))
    at = module.__file__, 14, "return torch.log(p)"
    kept = [KeptRemedy(mild, "first", *at), KeptRemedy(strong, "second", *at)]
    (tmp_path / FILE).write_text(json.dumps([one.written for one in kept]))
    model = module.Net()
    with numscope.watch(model, on_nonfinite="heal", log_dir=str(tmp_path)) as scope:
        assert [*scope._watch._detection.left_out.healing.on] == kept[1:]
        assert torch.equal(model.first(torch.zeros(1, 4)), torch.tensor([[0.01]]).log())


@pytest.mark.parametrize("result", ["self.compute(x)", "checkpoint(self.compute, x, use_reentrant=False)"])
def test_a_run_that_goes_on_with_checkpointing_within_the_module_has_no_operand_changed(
    result: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = module_of(tmp_path, "torch.log(p)", result)
    kept = KeptRemedy("log(x.clamp_min(1e-6))", "first", module.__file__, 14, "return torch.log(p)")
    (tmp_path / FILE).write_text(json.dumps([kept.written]))
    checkpointed = result != "self.compute(x)"
    losses, _ = zeros_from_step_2(module, heals(log_dir=str(tmp_path)))
    assert is_finite(losses) == [True, True, *[not checkpointed] * 4]
    assert caplog.text.count("activation checkpointing begins within its module's forward") == checkpointed


def line_ranked(rank: int, folder: str, differs: bool) -> Any:
    module = module_of(Path(folder), "torch.log(p)")
    if differs and rank == 0:
        linecache.cache[module.__file__] = 0, None, [], module.__file__
    losses, model = zeros_from_step_2(module, heals(), seed=rank, wrapped=nn.parallel.DistributedDataParallel, has_zeros=rank == 1)
    return is_finite(losses), model.first.layer.weight.detach().clone()


@pytest.mark.parametrize("differs", [False, True])
def test_all_ranks_change_the_operand_that_one_has_found_or_none_does(ranks: RankPool, tmp_path: Path, differs: bool) -> None:
    module_of(tmp_path, "torch.log(p)")
    one, other = (told.value for told in ranks.run(line_ranked, str(tmp_path), differs))
    assert one[0] == [True] * 6 and other[0] == [True, True, False, *[not differs] * 3]
    assert torch.equal(one[1], other[1])


def sharded(kind: str) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = model_of(), init_device_mesh("cpu", (2,))
    if kind == "tensor parallel":
        return parallelize_module(model, mesh, {"1.up": ColwiseParallel(), "1.down": RowwiseParallel()})
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32) if kind == "float16" else MixedPrecisionPolicy()
    fully_shard(model[1], mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def sharded_ranked(rank: int, kind: str, by_hand: bool) -> Any:
    model, events = sharded(kind), []
    optimizer, losses = torch.optim.SGD(model.parameters(), 1e-4), []
    with contextlib.nullcontext() if by_hand else numscope.watch(model, on_nonfinite="heal") as scope:
        for step in range(5):
            is_large = step >= 2 and (rank == 1 or kind == "tensor parallel")
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step + 100 * rank)) * (500 if is_large else 1)
            with torch.autocast("cpu", torch.float16, enabled=kind != "float16"):
                loss = model(x).float().square().mean()
            losses.append(loss.item())
            loss.backward()
            if by_hand and step == 2:
                numscope.high_precision(model[1])
            else:
                optimizer.step()
            optimizer.zero_grad()
        events = [] if by_hand else [text for _, text in scope.events]
    return losses, events, [getattr(p, "_local_tensor", p).detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("kind", ["autocast", "float16"])
def test_ranks_of_sharded_weights_try_together_and_heal_as_by_hand(kind: str, ranks: RankPool) -> None:
    healed, by_hand = ([told.value for told in ranks.run(sharded_ranked, kind, hand)] for hand in (False, True))
    for rank, (mine, other) in enumerate(zip(healed, by_hand, strict=True)):
        assert is_finite(mine[0]) == [True, True, rank == 0, True, True]
        assert mine[1] == ["numscope left the step out: a gradient was not finite", f"{REMEDY} stays on from now on"]
        assert mine[0][3:] == other[0][3:] and all(torch.equal(a, b) for a, b in zip(mine[2], other[2], strict=True))


def test_where_sharded_weights_can_t_be_cast_a_line_says_so(ranks: RankPool) -> None:
    for told in ranks.run(sharded_ranked, "tensor parallel", False):
        assert told.value[1] == ["numscope left the step out: a gradient was not finite"] * 3
        assert told.stderr.count("no remedy stays on: weights are sharded, and no module in float32 makes the step's calls finite") == 3
