"""The inspector does no harm and says what is so, in whatever way a script trains."""

from __future__ import annotations

import gc
import itertools
import json
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.records.errors import UsageError
from numscope.summary.statistics import STATISTICS
from tests.harm.training import assert_no_hooks, assert_nothing_left

ALL = ["activation", "gradient", "output", "wgrad", "dgrad", "weight"]
OF_WEIGHTS = [name for name, statistic in STATISTICS.items() if "weight" in statistic.tensors]
OF_ATTENTION = [name for name, statistic in STATISTICS.items() if statistic.tensors == ("attention",)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Kept:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        self.lines.append((name, value, iteration))


def everything(**more: Any) -> dict[str, Any]:
    """Every statistic of every tensor of every module."""
    layers = {"layer_types": "all", "containers": True}
    stats = [name for name in STATISTICS if name not in (*OF_WEIGHTS, *OF_ATTENTION) and not name.startswith("operand_")]
    tensors = {"enabled": True, "stats": stats, "tensors": ALL[:-1], **more}
    weights = {"enabled": True, "stats": [name for name in STATISTICS if name not in OF_ATTENTION], "tensors": ["weight"], **more}
    return {
        "tensors": {"enabled": True, "layers": layers, "statistics": tensors},
        "weights": {"enabled": True, "layers": layers, "statistics": weights},
    }


def few(stats: list[str], tensors: list[str], layers: str = ".", **more: Any) -> dict[str, Any]:
    feature = {"enabled": True, "stats": stats, "tensors": tensors, **more}
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": layers}, "statistics": feature}}


def watched(model: nn.Module, config: dict[str, Any], **options: Any) -> Any:
    return numscope.watch(model, config=config, on_nonfinite=None, loggers=options.pop("loggers", [Kept()]), **options)


def found(scope: Any) -> dict[tuple[str, str], Any]:
    return {(o.layer, o.tensor): o for o in scope._watch.inspector.last}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert_nothing_left()


def test_an_optimizer_with_a_closure_makes_its_step_within_its_step() -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    with watched(net, everything()) as scope:
        for step in range(3):
            before = net.fc1.weight.detach().clone()

            def closure() -> Tensor:
                loss = net(torch.randn(4, 6)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                return loss

            optimizer.step(closure)
            seen = found(scope)
            assert {(o.step, o.calls) for o in seen.values()} == {(step, 1)}
            assert net.fc1.weight.grad is not None
            assert seen["fc1", "wgrad"].values["max"] == net.fc1.weight.grad.max().item()
            assert seen["fc1", "weight"].values["max"] == before.max().item()
            assert seen["fc1", "activation"].fields["numel"] == 24
        assert scope.step_number == 3


def test_lbfgs_counts_a_step_for_all_its_evaluations() -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = net(torch.ones(4, 6)).square().mean()
        loss.backward()
        return loss

    with watched(net, few(["mean"], ALL)) as scope:
        for _ in range(2):
            calls = 0
            optimizer.step(closure=closure)
            seen = found(scope)
            assert seen["fc1", "activation"].calls == seen["fc1", "gradient"].calls == calls > 1
            assert seen["fc1", "wgrad"].calls == 1
        assert scope.step_number == 2


def test_scripted_parts_show_their_weights() -> None:
    model = nn.Sequential(nn.Linear(6, 6), torch.jit.script(nn.Linear(6, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(model, everything()) as scope:
        model(torch.randn(2, 6)).sum().backward()
        optimizer.step()
        assert not scope._watch.inspector.closed
        assert {("1", "weight"), ("1", "wgrad"), ("0", "gradient")} <= set(found(scope))


def test_threads_that_share_a_model_lose_no_tensor() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    num_threads, num_calls = 6, 40
    stats = ["max", "mean", "exponent_histogram"]
    with watched(model, few(stats, ["activation"], evaluation=True)) as scope, torch.no_grad():

        def run(value: int) -> None:
            with torch.no_grad():
                for _ in range(num_calls):
                    model(torch.full((256, 64), float(value)))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        scope.step()
        first = found(scope)["0", "activation"]
    assert first.calls == num_threads * num_calls
    assert first.fields["numel"] == sum(first.extras["exponents"]) == num_threads * num_calls * 256 * 64
    assert (first.values["max"], first.values["mean"]) == (5.0, 2.5)


@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_what_is_traced_or_exported_knows_nothing_of_the_watch() -> None:
    net, x = Net(), torch.randn(2, 6)
    bare = str(torch.export.export(net, (x,)).graph)
    with watched(net, everything()) as scope:
        traced = torch.jit.trace(net, x)
        exported = torch.export.export(net, (x,))
        assert torch.equal(traced(x), net(x))
        assert not scope._watch.inspector.closed
    assert str(exported.graph) == bare
    assert_no_hooks(net)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_default_device_is_not_where_rows_are_made(device: str) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.set_default_device(device)
    try:
        with watched(net, everything()) as scope:
            net(torch.randn(2, 6, device="cpu")).sum().backward()
            optimizer.step()
            assert not scope._watch.inspector.closed
            assert found(scope)["fc1", "weight"].fields["numel"] == 48
    finally:
        torch.set_default_device(None)


def test_inference_mode_in_between_spoils_no_rows() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watched(net, everything(evaluation=True)) as scope:
        with torch.inference_mode():
            net(torch.randn(3, 6))
        net(torch.randn(4, 6)).sum().backward()
        optimizer.step()
        assert not scope._watch.inspector.closed
        assert {o.calls for (_, tensor), o in found(scope).items() if tensor in ("activation", "output")} == {2}


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()


def test_two_watches_in_one_folder_are_one_run(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    first, second = Net(), Net()
    wanted = few(["mean"], ["weight"])
    with watched(first, wanted, log_dir=tmp_path, loggers=[]), watched(second, wanted, log_dir=tmp_path, loggers=[]):
        train(first, 2)
        train(second, 3)
    rows = numscope.load(tmp_path)
    assert rows.groupby("layer").size().to_dict() == {"fc1": 2, "fc2": 2, "Net.fc1": 3, "Net.fc2": 3}
    described = json.loads((tmp_path / "ranks" / "rank0-1.json").read_text())["layers"]
    assert {"fc1", "Net.fc1"} <= {layer["name"] for layer in described}
    with watched(first, wanted, log_dir=tmp_path, loggers=[]):  # after they are closed: another attempt, the same names
        train(first, 1)
    rows = numscope.load(tmp_path)
    assert rows.groupby("layer").size().to_dict() == {"fc1": 1, "fc2": 1}


def test_a_refused_configuration_leaves_no_file_open(tmp_path: Path) -> None:
    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(UsageError, match="zzz"):
            watched(net, few(["mean"], ["weight"], "zzz"), log_dir=tmp_path)
        gc.collect()
    assert (tmp_path / "debug_logs").exists()
    assert not [path for path in open_files() if str(tmp_path) in path]
    assert_no_hooks(net)


def open_files() -> list[str]:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no /proc here")
    return [str(link.resolve()) for link in folder.iterdir()]


def test_a_log_dir_that_is_no_path_is_refused() -> None:
    with pytest.raises(UsageError, match=r"log_dir: got 3, expected a folder's path"):
        watched(Net(), few(["mean"], ["weight"]), log_dir=3)


def test_steps_are_numbered_from_where_the_run_goes_on() -> None:
    net, kept = Net(), Kept()
    with watched(net, few(["mean"], ["activation", "weight"], "fc1", freq=5), loggers=[kept], first_step=148) as scope:
        train(net, 4)
        assert scope.step_number == 152
    assert {step for _, _, step in kept.lines} == {150}
    with pytest.raises(UsageError, match="first_step: got -1"):
        watched(net, few(["mean"], ["weight"]), first_step=-1)


def test_many_steps_keep_no_more_than_few() -> None:
    net = Net()

    class Nowhere:
        def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None: ...

    def blocks_after(steps: int) -> int:
        train(net, steps)
        gc.collect()
        return sys.getallocatedblocks()

    with watched(net, everything(), loggers=[Nowhere()]):
        after = [blocks_after(30), *(blocks_after(50) for _ in range(3))]
    # less than a number a step; what else the process does comes to some tens, and not in every stretch
    assert min(later - earlier for earlier, later in itertools.pairwise(after)) < 50


def test_what_a_forward_made_is_gone_when_the_script_lets_go() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watched(net, everything()):
        hidden = net.fc1(torch.randn(4, 6))
        output = net.fc2(net.act(hidden))
        kept = weakref.ref(hidden), weakref.ref(output)
        output.sum().backward()
        optimizer.step()
        gc.disable()
        try:
            del hidden, output
            assert [ref() for ref in kept] == [None, None]
        finally:
            gc.enable()


def test_adapters_put_in_after_the_watch_began_are_seen() -> None:
    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    net, kept = Net(), Kept()
    with watched(net, few(["mean"], ["activation", "wgrad"], "fc"), loggers=[kept]) as scope:
        train(net, 1)
        net.requires_grad_(False)
        net.fc1 = Adapted(net.fc1)
        train(net, 1)  # whose hooks were put on when the step before ended
        train(net, 1)
        assert {layer for layer, _ in found(scope)} == {"fc1.base", "fc1.down", "fc1.up", "fc2"}
        assert {layer for layer, tensor in found(scope) if tensor == "wgrad"} == {"fc1.down", "fc1.up"}
        net.fc2 = nn.Identity()
        del net.fc1
        net.fc1 = nn.Linear(6, 6)
        train(net, 2)
        assert {layer for layer, _ in found(scope)} == {"fc1"}
        assert scope.step_number == 5
    assert {step for name, _, step in kept.lines if name == "fc1_activation_mean"} == {0, 1, 4}
    assert_no_hooks(net)


def test_a_section_that_changed_modules_leave_without_a_layer_is_said(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    with watched(net, few(["mean"], ["activation"], "fc2")):
        train(net, 1)
        net.fc2 = nn.Identity()
        net.fc1 = nn.Linear(6, 6)
        train(net, 3)
    assert caplog.text.count("after modules have changed") == 1
