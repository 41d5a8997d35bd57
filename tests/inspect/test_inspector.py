"""The inspector's course: which steps, which tensors, merged how; the bare model in between; no harm."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import numscope
from numscope.records.errors import NonFiniteError, UsageError
from numscope.records.observation import Observation

ALL = ["activation", "weight", "gradient", "output", "wgrad", "dgrad"]


class Net(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 8)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(8, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Kept:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        self.lines.append((name, value, iteration))

    def steps(self, name: str) -> list[int]:
        return [step for known, _, step in self.lines if known == name]

    def value(self, name: str, step: int = 0) -> float:
        return next(value for known, value, at in self.lines if (known, at) == (name, step))


def config(pattern: str = ".*(fc1|fc2)", tensors: list[str] = ALL, stats: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    feature = {"enabled": True, "stats": stats or ["mean", "max", "num_nan"], "tensors": tensors, **more}
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "statistics": feature}}


def by_tensor(observations: list[Observation]) -> dict[tuple[str, str], Observation]:
    return {(o.layer, o.tensor): o for o in observations}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, micro_batches: int = 1, width: int = 6) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            loss = model(torch.randn(4, width, generator=generator)).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses


def num_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


@pytest.fixture
def net() -> Iterator[Net]:
    torch.manual_seed(0)
    yield Net()


def test_off_schedule_steps_run_the_bare_model(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = Kept()
    hooked = []
    with numscope.watch(net, config=config(freq=3, start_step=2, end_step=7), on_nonfinite=None, loggers=[kept]):
        for _ in range(10):
            hooked.append(num_hooks(net) > 0)
            train(net, optimizer, 1)
    assert kept.steps("fc1_activation_mean") == [3, 6]
    assert hooked == [step in (3, 6) for step in range(10)]


def test_without_config_and_detection_nothing_is_hooked(net: Net) -> None:
    backward = torch.autograd.backward
    with numscope.watch(net, on_nonfinite=None) as scope:
        assert num_hooks(net) == 0
        assert torch.autograd.backward is backward
        assert scope._watch.inspector is None
        scope.step()


def test_micro_batches_merge_to_what_one_pass_gives(net: Net) -> None:
    seen: list[Tensor] = []
    handle = net.fc2.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().double()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    stats = ["mean", "std", "sample_std", "kurtosis", "min", "l1_norm", "l2_norm", "rms"]
    with numscope.watch(net, config=config("fc2", ["activation"], stats), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 1, micro_batches=3)
    handle.remove()
    (found,) = scope._watch.inspector.last
    x = torch.cat(seen).numpy().ravel()
    assert (found.calls, found.fields["numel"]) == (3, x.size)
    expected = {
        "mean": x.mean(), "std": x.std(), "sample_std": x.std(ddof=1), "min": x.min(), "l1_norm": np.abs(x).sum(),
        "l2_norm": np.sqrt((x**2).sum()), "rms": np.sqrt((x**2).mean()), "kurtosis": ((x - x.mean()) ** 4).mean() / x.var() ** 2,
    }  # fmt: skip
    assert found.values == pytest.approx(expected, rel=1e-12)


def test_weights_and_their_gradients_are_those_the_optimizer_takes(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    before = net.fc1.weight.detach().clone()
    with numscope.watch(net, config=config("fc1", ["weight", "wgrad"], ["max", "l2_norm"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 1, micro_batches=2)
        gradient = net.fc1.weight.grad
        assert gradient is not None
        found = by_tensor(scope._watch.inspector.last)
    assert found["fc1", "weight"].values["max"] == before.max().item()
    assert found["fc1", "wgrad"].values["l2_norm"] == pytest.approx(gradient.double().norm().item(), rel=1e-12)


def test_gradient_is_of_the_output_and_dgrad_is_the_layers_own_part(net: Net) -> None:
    class Residual(Net):
        def forward(self, x: Tensor) -> Tensor:
            hidden = x.requires_grad_() * 2
            return hidden + self.fc2(self.act(self.fc1(hidden)))

    torch.manual_seed(0)
    model = Residual()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model.fc1.weight.detach().clone()
    gradients: list[Tensor] = []
    handle = model.fc1.register_forward_hook(lambda _, __, output: output.register_hook(gradients.append) and None)
    with numscope.watch(model, config=config("fc1", ["gradient", "dgrad"], ["l2_norm"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(model, optimizer, 1)
    handle.remove()
    found = by_tensor(scope._watch.inspector.last)
    assert found["fc1", "gradient"].values["l2_norm"] == pytest.approx(gradients[0].double().norm().item(), rel=1e-12)
    assert found["fc1", "dgrad"].values["l2_norm"] == pytest.approx((gradients[0] @ weight).double().norm().item(), rel=1e-12)


@pytest.mark.parametrize("detection", [None, "raise"])
def test_training_is_bitwise_the_same(detection: str | None, tmp_path: Path) -> None:
    runs = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(Net(), nn.Dropout(0.3), Net())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if watched:
            of_others = ("update", "ratio", "adam", "momentum", "attention", "spectral", "stable_rank", "sketch")
            everything = [name for name in numscope_statistics() if not any(word in name for word in of_others)]
            with numscope.watch(model, config=config("fc", stats=everything), on_nonfinite=detection, log_dir=str(tmp_path)):
                losses = train(model, optimizer, 4, micro_batches=2)
            assert num_hooks(model) == 0
        else:
            losses = train(model, optimizer, 4, micro_batches=2)
        runs.append((losses, [p.detach().clone() for p in model.parameters()]))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))


def numscope_statistics() -> list[str]:
    from numscope.summary.statistics import STATISTICS

    return [name for name in STATISTICS if not name.startswith("operand_")]  # those are of quantized layers


def test_two_optimizers_of_one_model_make_one_step(net: Net) -> None:
    first, second = torch.optim.SGD(net.fc1.parameters(), lr=0.1), torch.optim.Adam(net.fc2.parameters())
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["wgrad"]), on_nonfinite=None, loggers=[kept]) as scope:
        for _ in range(3):
            net.zero_grad()
            net(torch.randn(4, 6)).sum().backward()
            first.step()
            second.step()
        assert scope.step_number == 3
    assert kept.steps("fc1_wgrad_mean") == kept.steps("fc2_wgrad_mean") == [0, 1, 2]


def test_an_optimizer_that_seldom_steps_holds_up_one_step_only(net: Net) -> None:
    often, seldom = torch.optim.SGD(net.fc1.parameters(), lr=0.1), torch.optim.SGD(net.fc2.parameters(), lr=0.1)
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["activation"]), on_nonfinite=None, loggers=[kept]):
        for _ in range(4):
            net(torch.randn(4, 6)).sum().backward()
            often.step()
    del seldom
    assert kept.steps("fc1_activation_mean") == [0, 1, 2, 3]


def test_step_alone_ends_steps_once_it_has_been_called(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["activation"]), on_nonfinite=None, loggers=[kept]) as scope:
        for _ in range(3):
            train(net, optimizer, 1)
            scope.step()
        assert scope.step_number == 3
        train(net, optimizer, 2)
        assert scope.step_number == 3
        scope.step()
    assert kept.steps("fc1_activation_mean") == [0, 1, 2, 3]


def test_inference_ends_steps_with_step(net: Net) -> None:
    kept = Kept()
    net.eval()
    with (
        numscope.watch(net, config=config(tensors=["output"], evaluation=True), on_nonfinite=None, loggers=[kept]) as scope,
        torch.no_grad(),
    ):
        for _ in range(2):
            net(torch.randn(4, 6))
            scope.step()
    assert kept.steps("fc2_output_max") == [0, 1]


def test_evaluation_in_between_is_not_mixed_in(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=config(tensors=["activation"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        net.eval()
        with torch.no_grad():
            net(torch.full((4, 6), 1e9))
        net.train()
        train(net, optimizer, 1)
        assert by_tensor(scope._watch.inspector.last)["fc1", "activation"].calls == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_count_once(net: Net, reentrant: bool) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(
        net, config=config(tensors=["activation", "output", "gradient", "dgrad"]), on_nonfinite=None, loggers=[Kept()]
    ) as scope:
        x = torch.randn(4, 6, requires_grad=True)
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        optimizer.step()
        found = by_tensor(scope._watch.inspector.last)
    assert {key: o.calls for key, o in found.items()} == {
        (layer, tensor): 1 for layer in ("fc1", "fc2") for tensor in ("activation", "output", "gradient", "dgrad")
    }


@pytest.mark.parametrize("detection", [None, "raise"])
def test_a_compiled_model_shows_what_it_shows_uncompiled(detection: str | None) -> None:
    shown, losses = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = Net()
        called = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = Kept()
        generator = torch.Generator().manual_seed(1)
        wanted = config(stats=["max", "num_nan", "l2_norm"], freq=2)
        with numscope.watch(called, config=wanted, on_nonfinite=detection, loggers=[kept]):
            for _ in range(4):
                optimizer.zero_grad()
                loss = called(torch.randn(4, 6, generator=generator).requires_grad_()).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        shown.append(kept.lines)
    assert losses[:4] == losses[4:]
    assert {step for _, _, step in shown[0]} == {0, 2}
    assert sorted(shown[0]) == sorted(shown[1])


def test_a_layer_called_twice_merges_both_calls(net: Net) -> None:
    class Twice(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(super().forward(x))

    model = Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, config=config(tensors=["activation", "gradient"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(model, optimizer, 1)
        assert {o.calls for o in scope._watch.inspector.last} == {2}


def test_the_step_that_detection_stops_is_written_at_the_close(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = Kept()
    with pytest.raises(NonFiniteError), numscope.watch(net, config=config(), loggers=[kept]):
        train(net, optimizer, 1)
        with torch.no_grad():
            net.fc1.weight[0, 0] = torch.inf
        train(net, optimizer, 1)
    assert kept.steps("fc2_activation_num_nan") == [0, 1]


def test_an_error_of_ours_ends_statistics_and_nothing_else(
    net: Net, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=config(), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 1)
        monkeypatch.setattr(type(scope._watch.inspector._tally), "observe", lambda *_: 1 / 0)
        losses = train(net, optimizer, 2)
        assert num_hooks(net) == 0
    assert all(np.isfinite(losses))
    assert caplog.text.count("no more statistics of Net: ZeroDivisionError") == 1


def test_close_leaves_nothing_behind(net: Net, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scope = numscope.watch(net, config=config(), on_nonfinite=None, log_dir=str(tmp_path))
    train(net, optimizer, 2)
    copied = copy.deepcopy(net)
    torch.save(net, tmp_path / "net.pt")
    scope.close()
    scope.close()
    assert num_hooks(net) == 0
    copied(torch.randn(2, 6)).sum().backward()
    watched = weakref.ref(net.fc1)
    model = weakref.ref(scope._watch.inspector)
    del scope, net, optimizer, copied
    gc.collect()
    assert model() is None
    del watched


def test_groups_of_sites_merge_as_one_pass_over_the_joined_tensors(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    joined = torch.cat([net.fc1.weight.flatten(), net.fc2.weight.flatten()]).detach().double().numpy()
    with numscope.watch(
        net, config=config(tensors=["weight"], stats=["std", "max"], merge="all"), on_nonfinite=None, loggers=[Kept()]
    ) as scope:
        train(net, optimizer, 1)
    (merged,) = [o for o in scope._watch.inspector.last if o.layer == "all"]
    assert (merged.fields["numel"], merged.values["max"], merged.cls) == (joined.size, joined.max(), "")
    assert merged.values["std"] == pytest.approx(joined.std(), rel=1e-12)


def test_models_with_layers_of_the_same_names_are_told_apart(tmp_path: Path) -> None:
    from numscope.config.options import WatchOptions
    from numscope.scope.autowatch import AutoWatch

    kept = Kept()
    first, second = Net(), Net()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    with AutoWatch(WatchOptions(config=config(tensors=["weight"]), on_nonfinite=None, loggers=(kept,))):
        (first(torch.randn(2, 6)) + second(torch.randn(2, 6))).sum().backward()
        optimizer.step()
    assert sorted({name for name, _, _ in kept.lines if name.endswith("weight_mean")}) == [
        "Net.fc1_weight_mean", "Net.fc2_weight_mean", "fc1_weight_mean", "fc2_weight_mean",
    ]  # fmt: skip


def test_a_pattern_that_matches_nothing_is_refused_before_anything_is_hooked(net: Net) -> None:
    with pytest.raises(UsageError, match="fc9"):
        numscope.watch(net, config=config("fc9"), on_nonfinite=None, loggers=[Kept()])
    assert num_hooks(net) == 0


def test_frozen_weights_are_read_too(net: Net) -> None:
    net.fc1.requires_grad_(False)
    optimizer = torch.optim.SGD(net.fc2.parameters(), lr=0.1)
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["weight"]), on_nonfinite=None, loggers=[kept]):
        train(net, optimizer, 2)
    assert kept.steps("fc1_weight_mean") == kept.steps("fc2_weight_mean") == [0, 1]


def test_a_step_that_gradscaler_leaves_out_is_a_step(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["wgrad"], stats=["num_inf", "num_nan"]), on_nonfinite=None, loggers=[kept]):
        for bad in (False, True, False):
            optimizer.zero_grad()
            scaler.scale(net(torch.randn(4, 6)).sum() * (torch.inf if bad else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert kept.steps("fc1_wgrad_num_nan") == [0, 1, 2]
    assert kept.value("fc1_wgrad_num_inf", 1) + kept.value("fc1_wgrad_num_nan", 1) > 0


def test_names_that_were_given_are_kept(net: Net) -> None:
    net.fc1.name = "model.decoder.layers.4.linear_fc1"
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = Kept()
    with numscope.watch(net, config=config("layers.4", tensors=["weight"]), on_nonfinite=None, loggers=[kept]):
        train(net, optimizer, 1)
    assert {name for name, _, _ in kept.lines} == {f"model.decoder.layers.4.linear_fc1_weight_{s}" for s in ("mean", "max", "num_nan")}


def test_plug_ins_numbers_are_columns_of_the_run(net: Net, tmp_path: Path) -> None:
    features = tmp_path / "own.py"
    features.write_text(
        "import numscope\n\n\n"
        "@numscope.statistic('spread')\ndef spread(summary):\n    return summary.max - summary.min\n\n\n"
        "@numscope.feature('Corner')\ndef corner(layer, tensor_name, tensor, step, settings):\n    return {'corner': tensor.flatten()[0]}\n"
    )
    wanted = config("fc1", ["weight"], ["spread", "max"])
    wanted["section"]["Corner"] = {"enabled": True, "tensors": ["weight"]}
    first = net.fc1.weight[0, 0].item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=wanted, features=[str(features)], on_nonfinite=None, log_dir=str(tmp_path / "run")):
        train(net, optimizer, 1)
    (row,) = numscope.load(tmp_path / "run").to_dict("records")
    assert row["corner"] == first
    assert row["spread"] == row["max"] - row["min"]


def test_failure_at_close_is_logged_and_hooks_are_gone(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    from numscope.inspect.switches import Switchboard

    def fail(self: Switchboard) -> bool:
        raise RuntimeError("device lost")

    net = Net()
    with numscope.watch(net, config=config("fc1", ["activation"], ["max"]), on_nonfinite=None, loggers=[Kept()]):
        monkeypatch.setattr(Switchboard, "anything", property(fail))
    assert "device lost" in caplog.text
    assert not net.fc1._forward_hooks and not net.fc1._forward_pre_hooks


def test_optimizer_whose_making_failed_ends_no_statistics() -> None:
    half = torch.optim.SGD.__new__(torch.optim.SGD)
    net, kept = Net(), Kept()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=config("fc1", ["activation"], ["max"]), loggers=[kept]):
        for _ in range(2):
            net(torch.ones(2, 6)).sum().backward()
            optimizer.step()
    assert not hasattr(half, "param_groups")
    assert kept.steps("fc1_activation_max") == [0, 1]


@pytest.mark.parametrize("detection", [None, "raise"])
def test_weights_alone_are_written_where_no_optimizer_is(net: Net, detection: str | None) -> None:
    """The update is made by hand, so nothing but backward tells steps apart."""
    kept = Kept()
    with numscope.watch(net, config=config(tensors=["weight"], stats=["max"]), on_nonfinite=detection, loggers=[kept]):
        expected = []
        for _ in range(3):
            expected.append(net.fc1.weight.detach().max().item())
            net(torch.randn(4, 6)).square().mean().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    [name] = {known for known, _, _ in kept.lines if "fc1" in known}
    assert kept.steps(name) == [0, 1, 2]
    assert [kept.value(name, step) for step in range(3)] == expected


def test_first_step_is_the_same_number_in_findings_and_statistics(net: Net, capfd: Any) -> None:
    kept = Kept()
    options: dict[str, Any] = {"config": config(tensors=["output"], stats=["num_nan"]), "loggers": [kept], "first_step": 1000}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, on_nonfinite="warn", **options) as scope:
        for step in range(5):
            assert scope.step_number == 1000 + step
            with torch.no_grad():
                net.fc1.weight[0, 0] = torch.nan if step == 3 else 0.5
            optimizer.zero_grad()
            net(torch.randn(4, 6)).square().mean().backward()
            if step == 3:
                with torch.no_grad():
                    net.fc1.weight[0, 0] = 0.5
                    net.fc1.weight.grad = None
            optimizer.step()
    [finding] = scope.findings
    bad = [step for name, value, step in kept.lines if "fc1" in name and value]
    assert bad[0] == finding.step == 1003
