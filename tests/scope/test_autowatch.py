"""Models that a script builds by itself are found when they are called."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.config.options import WatchOptions
from numscope.records.errors import NonFiniteError
from numscope.scope import model_watch, open_scopes
from numscope.scope.autowatch import AutoWatch
from tests.harm.training import assert_no_hooks, assert_nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Any:
    yield
    assert_nothing_left()


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def train(model: nn.Module, steps: int = 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_outermost_model_is_watched_from_its_first_call() -> None:
    model = small()
    with AutoWatch(WatchOptions()) as auto:
        train(model, 3)
        (scope,) = auto.scopes
        assert scope.model is model and scope.batch == 3 and scope.step_number == 3
    assert scope.closed
    assert_no_hooks(model)


def test_watch_that_begins_within_a_closure_counts_and_judges_its_step() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        return loss

    with AutoWatch(WatchOptions()) as auto:
        inputs = torch.ones(2, 4)
        optimizer.step(closure)  # type: ignore[arg-type]
        (scope,) = auto.scopes
        assert scope.step_number == 1
    with AutoWatch(WatchOptions()), pytest.raises(NonFiniteError, match="step 0"):
        weights = [p.detach().clone() for p in model.parameters()]
        inputs = torch.full((2, 4), torch.inf)
        optimizer.step(closure)  # type: ignore[arg-type]
    assert all(torch.equal(p, before) for p, before in zip(model.parameters(), weights, strict=True))


def test_fault_of_the_first_call_is_found_with_keyword_arguments_replayed(capfd: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
            return self.layer(x) + scale.log()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with AutoWatch(WatchOptions()), pytest.raises(NonFiniteError) as caught:
        model(torch.ones(2, 4), scale=torch.tensor(-1.0)).sum().backward()
        optimizer.step()
    culprit = caught.value.finding.culprit
    assert culprit is not None and culprit.op == "aten.log" and "scale.log()" in culprit.code


def test_modules_without_parameters_are_no_models() -> None:
    with AutoWatch(WatchOptions()) as auto:
        nn.MSELoss()(torch.ones(2), torch.zeros(2))
        assert not auto.scopes


def test_loss_module_between_forward_and_backward_belongs_to_the_loss(capfd: Any) -> None:
    model, loss = small(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with AutoWatch(WatchOptions()) as auto, pytest.raises(NonFiniteError) as caught:
        loss(model(torch.ones(2, 4)), torch.full((2, 1), torch.nan)).backward()
        optimizer.step()
    assert len(auto.scopes) == 1
    assert caught.value.finding.phase.value == "loss"


def test_several_models_are_each_watched() -> None:
    first, second = small(), small()
    with AutoWatch(WatchOptions()) as auto:
        train(first)
        train(second)
        assert [s.model for s in auto.scopes] == [first, second]
        assert [s.batch for s in auto.scopes] == [2, 2]


def test_whole_takes_the_place_of_a_part_that_was_called_alone_before() -> None:
    model = small()
    with AutoWatch(WatchOptions()) as auto:
        model[0](torch.ones(2, 4))
        (part,) = auto.scopes
        assert part.model is model[0]
        train(model)
        (whole,) = auto.scopes
        assert part.closed and whole.model is model and whole.batch == 2
    assert_no_hooks(model)


class Part(nn.Module):
    """Holds its whole as a part of its own."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.linear, self.whole = nn.Linear(4, 4), whole

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * next(self.whole.parameters())


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.part = Part(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x).tanh()


class Adapter(nn.Module):
    """Takes the place of a layer's forward, and is called by nobody, as adapters in scripts for diffusion models are."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(layer.in_features, 2, bias=False), nn.Linear(2, layer.out_features, bias=False)
        self.instead_of, layer.forward = layer.forward, self.forward  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Tensor:
        return self.instead_of(x) + self.up(self.down(x))


def test_adapters_that_the_model_does_not_hold_are_watched() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    adapters = nn.ModuleList([Adapter(model[0]), Adapter(model[2])])
    with AutoWatch(WatchOptions(on_nonfinite="warn")) as watch:
        optimizer = torch.optim.SGD(adapters.parameters(), 0.1)
        for step in range(4):
            model(torch.ones(3, 2)).square().mean().backward()
            if step == 2:
                adapters[1].up.weight.grad[0, 0] = torch.nan
            optimizer.step()
            optimizer.zero_grad()
    assert watch.coverage.watched().steps_of == {"Sequential": 4, "Tensors": 4}
    finding = min((finding for scope in watch.scopes for finding in scope.findings), key=lambda one: one.step)
    assert (finding.step, finding.site.slot) == (2, "grad param_groups[0]['params'][3]")
    assert finding.culprit is not None and finding.culprit.code == "adapters[1].up.weight.grad[0, 0] = torch.nan"


def test_steps_that_a_scaler_leaves_out_are_no_findings_in_a_frozen_model() -> None:
    """The scale begins too high, and gradients come to what is trained through a model that no optimizer has."""
    trained, frozen = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).requires_grad_(False)
    optimizer, scaler = torch.optim.Adam(trained.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**30)
    with AutoWatch(WatchOptions()) as watch:
        for _ in range(24):
            with torch.autocast("cpu", torch.float16):
                loss = frozen(trained(torch.ones(3, 4))).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() < 2.0**30
    assert [finding for scope in watch.scopes for finding in scope.findings] == []


def test_of_many_optimizers_of_loose_weights_few_are_watched() -> None:
    """One for each image, as where inputs are optimized."""
    model = nn.Linear(4, 2).requires_grad_(False)
    with AutoWatch(WatchOptions()) as watch:
        for _ in range(12):
            image = nn.Parameter(torch.ones(1, 4))
            optimizer = torch.optim.SGD([image], 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(image).square().mean().backward()
                optimizer.step()
        del image, optimizer
        assert sum(type(scope.model) is not nn.Linear for scope in watch.scopes) <= 4


def test_model_takes_the_place_of_its_optimizer_s_tensors_that_stepped_before_it_was_called() -> None:
    """torch's ``set_optimizer_state_dict`` has the optimizer step by gradients of zero first, to have states to load into."""
    model = nn.Linear(2, 2)
    with AutoWatch(WatchOptions()) as watch:
        optimizer = torch.optim.Adam(model.parameters())
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        optimizer.zero_grad()
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        assert [scope.model for scope in watch.scopes] == [model]
    assert watch.coverage.watched().steps_of == {"Tensors": 1, "Linear": 3}


def test_parts_that_hold_their_whole_are_watched_as_the_model_that_is_called() -> None:
    model = Whole()
    with AutoWatch(WatchOptions()) as auto:
        train(model)
        assert [scope.model for scope in auto.scopes] == [model]
        with pytest.raises(NonFiniteError) as caught:
            (model(torch.ones(2, 4)) * torch.nan).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert caught.value.finding.culprit is not None
    for module in (model, model.part):  # a cycle, which the checks of hooks below can't walk
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_finding_of_the_part_is_not_lost_when_the_whole_takes_its_place(capfd: Any) -> None:
    model = small()
    with pytest.raises(NonFiniteError), AutoWatch(WatchOptions()):
        (model[0](torch.ones(2, 4)) * torch.nan).sum().backward()
        model(torch.ones(2, 4))


def test_every_watch_is_closed_though_the_first_finds_something_at_its_close(capfd: Any) -> None:
    first, second = small(), small()
    auto = AutoWatch(WatchOptions()).__enter__()
    (first(torch.ones(2, 4)) * torch.nan).sum().backward()
    second(torch.ones(2, 4)).sum().backward()
    with pytest.raises(NonFiniteError):
        auto.finish()
    assert all(s.closed for s in auto.scopes)
    assert_no_hooks(first)
    assert_no_hooks(second)


def test_model_that_the_script_watches_by_itself_is_not_watched_twice() -> None:
    model = small()
    with AutoWatch(WatchOptions()) as auto, numscope.watch(model) as own:
        train(model)
        assert not auto.scopes and [one.model for one in open_scopes.live()] == [model] and not own.closed


def test_data_parallel_is_seen_through() -> None:
    model = nn.DataParallel(small())
    with AutoWatch(WatchOptions()) as auto:
        train(model, 3)
        (scope,) = auto.scopes
        assert scope.model is model.module and scope.batch == 3


def test_modules_called_one_by_one_are_watched_however_many() -> None:
    layers = [nn.Linear(2, 2) for _ in range(40)]
    with AutoWatch(WatchOptions()) as auto:
        x = torch.ones(1, 2)
        for layer in layers:
            x = layer(x)
        assert len(auto.scopes) == 40


def test_model_that_can_not_be_watched_is_left_alone_and_said_once(caplog: Any, monkeypatch: Any) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(model_watch.ModelWatch, "__init__", refuse)
    model = small()
    with AutoWatch(WatchOptions()) as auto:
        train(model)
        assert not auto.scopes
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == ["numscope can't watch Sequential: RuntimeError: planted"]


def test_model_inside_a_model_is_no_model_of_its_own() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    model = Outer()
    with AutoWatch(WatchOptions()) as auto:
        train(model)
        assert [s.model for s in auto.scopes] == [model]


@pytest.mark.parametrize("detection", [None, "raise"])
def test_model_compiled_by_its_own_method_is_watched_from_its_first_call(detection: str | None, tmp_path: Path) -> None:
    torch._dynamo.reset()
    original = nn.Module.compile
    model = small()
    wanted = {"s": {"enabled": True, "layers": {"layer_types": ["Linear"]}, "statistics": {"enabled": True, **ACTIVATIONS}}}
    kept: list[int] = []

    class Kept:
        def log_scalar(self, name: str, value: float, iteration: int, **_: object) -> None:
            kept.append(iteration)

    with AutoWatch(WatchOptions(config=wanted, loggers=[Kept()], on_nonfinite=detection, log_dir=str(tmp_path))) as auto:
        model.compile(backend="aot_eager", fullgraph=True)
        train(model, 4)
        (scope,) = auto.scopes
        assert scope.model is model
    assert kept == [0, 0, 2, 2]
    assert nn.Module.compile is original
    assert_no_hooks(model)


ACTIVATIONS = {"stats": ["max"], "tensors": ["activation"], "freq": 2}


def test_compiled_models_bring_no_warning_about_the_global_hook(recwarn: pytest.WarningsRecorder) -> None:
    torch._dynamo.reset()
    with AutoWatch(WatchOptions()):
        train(torch.compile(small(), backend="aot_eager"))  # type: ignore[arg-type]
    assert not [one for one in recwarn if "global hooks" in str(one.message)]


def test_words_of_one_list_may_be_those_of_different_models(tmp_path: Path) -> None:
    wanted = {"s": {"enabled": True, "layers": {"layer_types": ["Linear", "Bilinear"]}, "statistics": {"enabled": True, **ACTIVATIONS}}}
    other = nn.Bilinear(4, 4, 1)
    with AutoWatch(WatchOptions(config=wanted, on_nonfinite=None, log_dir=str(tmp_path))):
        other(torch.ones(2, 4), torch.ones(2, 4))
        train(small())
    wanted["s"]["layers"]["layer_types"].append("Conv2d")  # type: ignore[index]
    with AutoWatch(WatchOptions(config=wanted, on_nonfinite=None, log_dir=str(tmp_path))), pytest.raises(numscope.UsageError) as caught:
        other(torch.ones(2, 4), torch.ones(2, 4))
        train(small())
    assert '"Conv2d" is neither part of a layer' in str(caught.value) and '"Bilinear" is' not in str(caught.value)


def test_transforms_of_functions_are_said_not_to_be_watched_and_nothing_else_is_lost() -> None:
    from torch.func import functional_call, grad, vmap

    model, other = small(), small()
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss_of(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, state, (x,)).square().mean()

    with AutoWatch(WatchOptions()) as auto:
        for _ in range(2):
            vmap(grad(loss_of), in_dims=(None, 0))(state, torch.randn(3, 1, 4))
        train(other)
        assert [scope.model for scope in auto.scopes] == [other]
    gap = "Sequential inside torch.func transforms (grad, vmap): its tensors have no values there"
    assert auto.coverage.watched().gaps == [gap]


def test_gradients_of_torch_func_are_judged_at_the_optimizers_step(capfd: Any) -> None:
    def loss_of(weight: Tensor, x: Tensor) -> Tensor:
        return ((weight - x) ** 2).sum()

    weight = torch.zeros(3, requires_grad=True)
    x = torch.ones(4, 3)
    with AutoWatch(WatchOptions.of(on_nonfinite="warn")) as auto:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(3):
            x[0, 0] = torch.inf if step == 1 else 1.0
            weight.grad = torch.func.vmap(torch.func.grad(loss_of), (None, 0))(weight.detach(), x).mean(0)
            optimizer.step()
            optimizer.zero_grad()
    finding = auto.coverage.findings[0]
    assert finding.step == 1 and finding.site.slot == "grad param_groups[0]['params'][0]", finding


def test_script_s_own_global_hook_brings_the_warning_and_the_filters_are_the_script_s(recwarn: pytest.WarningsRecorder) -> None:
    torch._dynamo.reset()
    before = list(warnings.filters)
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, args: None)
    try:
        with AutoWatch(WatchOptions()):
            assert warnings.filters == before
            train(torch.compile(small(), backend="aot_eager"))  # type: ignore[arg-type]
    finally:
        handle.remove()
    assert warnings.filters == before
    assert [one for one in recwarn if "global hooks" in str(one.message)]
