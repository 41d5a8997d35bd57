"""Nothing of the tool is left behind, whatever happens, and copies of a watched model are not watched."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import subprocess
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import numscope
from numscope.records.errors import NonFiniteError, UsageError
from numscope.scope import open_scopes
from tests.harm.training import assert_no_hooks, assert_nothing_left

pytestmark = pytest.mark.tried


@pytest.fixture(autouse=True)
def _clean() -> Any:
    assert_nothing_left()
    yield
    assert_nothing_left()


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


class Interrupt(BaseException):
    """As Ctrl-C, or a notebook's stop button."""


def raising(error: type[BaseException]) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        raise error("stop")

    return hook


def in_forward(model: nn.Sequential, optimizer: torch.optim.Optimizer, error: type[BaseException]) -> None:
    handle = model[1].register_forward_hook(raising(error))
    try:
        model(torch.ones(2, 4))
    finally:
        handle.remove()


def in_loss(model: nn.Sequential, optimizer: torch.optim.Optimizer, error: type[BaseException]) -> None:
    _ = model(torch.ones(2, 4)).sum() * 2
    raise error("stop")


def in_backward(model: nn.Sequential, optimizer: torch.optim.Optimizer, error: type[BaseException]) -> None:
    loss = model(torch.ones(2, 4))
    loss.register_hook(raising(error))
    loss.sum().backward()


def in_optimizer(model: nn.Sequential, optimizer: torch.optim.Optimizer, error: type[BaseException]) -> None:
    model(torch.ones(2, 4)).sum().backward()
    handle = optimizer.register_step_pre_hook(raising(error))
    try:
        optimizer.step()
    finally:
        handle.remove()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, Interrupt])
@pytest.mark.parametrize("place", [in_forward, in_loss, in_backward, in_optimizer])
@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_exception_leaves_no_hook_patch_or_mode(level: str, place: Callable[..., None], error: type[BaseException]) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(error), numscope.watch(model, level=level):
        train(model, optimizer)
        place(model, optimizer, error)
    assert_nothing_left()
    assert_no_hooks(model)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("place", [in_forward, in_loss, in_backward, in_optimizer])
def test_watch_goes_on_after_an_exception_that_the_script_caught(
    place: Callable[..., None], error: type[BaseException], capfd: Any
) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(2):
            with contextlib.suppress(error):
                place(model, optimizer, error)
            optimizer.zero_grad()
        batch, step = scope.batch, scope.step_number
        train(model, optimizer)
        assert not scope.closed and not scope.findings
        assert (scope.batch, scope.step_number) in [(batch + n, step + m) for n in (2, 3) for m in (1, 2, 3)]
        with pytest.raises(NonFiniteError) as caught:
            optimizer.zero_grad()
            (model(torch.ones(2, 4)) - torch.inf).sum().backward()
            optimizer.step()
    assert caught.value.finding.phase.value == "loss"
    assert_no_hooks(model)


def test_finding_raised_leaves_nothing(capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(NonFiniteError), numscope.watch(model):
        (model(torch.ones(2, 4)) * torch.nan).sum().backward()
        optimizer.step()
    assert_nothing_left()
    assert_no_hooks(model)


def test_finding_raised_by_close_leaves_nothing(capfd: Any) -> None:
    model = small()
    scope = numscope.watch(model)
    (model(torch.ones(2, 4)) * torch.nan).sum().backward()
    with pytest.raises(NonFiniteError):
        scope.close()
    assert scope.closed
    assert_no_hooks(model)
    scope.close()


def test_patches_stay_until_the_last_scope_closes() -> None:
    original = torch.autograd.backward
    first, second = numscope.watch(small()), numscope.watch(small())
    assert torch.autograd.backward is not original
    first.close()
    assert torch.autograd.backward is not original
    second.close()
    assert torch.autograd.backward is original


def test_watching_again_under_somebody_elses_patch_tells_once() -> None:
    original = torch.autograd.backward
    scope = numscope.watch(small())
    ours = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    try:
        scope.close()
        assert torch.autograd.backward is theirs
        model = small()
        with numscope.watch(model) as scope:
            told = []
            scope._watch.steps.before_backward = told.append
            model(torch.ones(2, 4)).sum().backward()
            assert len(told) == 1
    finally:
        torch.autograd.backward = original


def test_nothing_attached_is_nothing() -> None:
    assert_no_hooks(small())


# ---- several scopes


def test_nested_scopes_on_different_models_close_in_any_order() -> None:
    first, second = small(), small()
    outer = numscope.watch(first)
    inner = numscope.watch(second)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for _ in range(2):
        (first(torch.ones(2, 4)) * second(torch.ones(2, 4))).sum().backward()
        optimizer.step()
    outer.close()
    assert_no_hooks(first)
    second(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert inner.batch == 3 and not inner.closed
    inner.close()
    assert_no_hooks(second)


def test_two_scopes_on_one_model_work_side_by_side(capfd: Any) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, on_nonfinite="warn") as outer:
        with numscope.watch(model, on_nonfinite="warn", level="sentinel") as inner:
            train(model, optimizer)
            with torch.no_grad():
                model[0].weight.fill_(torch.inf)
            train(model, optimizer, 1)
        assert outer.findings and inner.findings and inner.closed and not outer.closed
        assert outer.batch == inner.batch == 3
        train(model, optimizer, 1)
        assert outer.batch == 4
    assert_no_hooks(model)


def test_scope_on_a_part_of_a_watched_model_works() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as whole, numscope.watch(model[0]) as part:
        train(model, optimizer, 3)
        assert whole.batch == part.batch == 3 and not whole.closed and not part.closed
    assert_no_hooks(model)


# ---- copies


def test_state_dict_and_parameters_are_unchanged() -> None:
    model = small()
    before = list(model.state_dict()), [n for n, _ in model.named_modules()], repr(model)
    with numscope.watch(model):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert (list(model.state_dict()), [n for n, _ in model.named_modules()], repr(model)) == before


def test_deep_copy_of_a_watched_model_is_not_watched() -> None:
    model = small()
    with numscope.watch(model) as scope:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        events = scope.batch
        twin = copy.deepcopy(model)
        assert scope.batch == events
        train(twin, torch.optim.SGD(twin.parameters(), lr=0.1))
        assert scope.batch == events and not scope.closed
        model(torch.ones(2, 4))
        assert scope.batch == events + 1
    assert twin(torch.ones(2, 4)).isfinite().all()


def test_averaged_model_of_a_watched_one_is_not_watched() -> None:
    model = small()
    with numscope.watch(model) as scope:
        averaged = torch.optim.swa_utils.AveragedModel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        averaged.update_parameters(model)
        averaged(torch.ones(2, 4))
        assert scope.batch == 2 and not scope.closed


def test_watched_model_is_saved_and_loaded_where_there_is_no_numscope(tmp_path: Any) -> None:
    model = small()
    with numscope.watch(model):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        torch.save(model, tmp_path / "model.pt")
        data = pickle.dumps(model)
    assert b"numscope" not in data
    expected = model(torch.ones(2, 4))
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(torch.ones(2, 4)), expected)
    assert torch.equal(pickle.loads(data)(torch.ones(2, 4)), expected)
    code = (
        "import sys; sys.modules['numscope'] = None\nimport torch\n"
        f"m = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\nm(torch.ones(2, 4)).sum().backward()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_saving_a_watched_models_output_warns_of_nothing() -> None:
    model = small()
    with numscope.watch(model), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(model(torch.ones(2, 4)), io.BytesIO())


def test_watch_does_not_keep_a_model_alive_after_close() -> None:
    model = small()
    scope = numscope.watch(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scope.close()
    gone = weakref.ref(model)
    del model, scope
    gc.collect()
    assert gone() is None


# ---- models that change


def test_modules_added_after_the_watch_are_watched_from_the_next_call(capfd: Any) -> None:
    class Adapter(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.up(self.down(x))

    model = small()
    with numscope.watch(model, on_nonfinite="warn") as scope:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.requires_grad_(False)
        model[0] = Adapter(model[0])
        model[0].down.requires_grad_(True)
        model[0].up.requires_grad_(True)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        train(model, optimizer)
        assert scope.step_number >= 3
        with torch.no_grad():
            model[0].down.weight.fill_(torch.inf)
        train(model, optimizer, 1)
        assert scope.findings[0].site.module == "0.down", scope.findings[0]
    assert_no_hooks(model)


def test_replaced_parameter_is_judged_before_its_optimizer_steps(capfd: Any) -> None:
    model = small()
    with numscope.watch(model) as scope:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model[2].weight = nn.Parameter(torch.ones(1, 4))
        optimizer = torch.optim.SGD([model[2].weight], lr=0.1)
        train(model, optimizer)
        with pytest.raises(NonFiniteError):
            optimizer.zero_grad()
            model[2].weight.register_hook(lambda g: g * torch.inf)
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert model[2].weight.isfinite().all()
    assert scope.findings[0].site.slot == "grad weight"


def test_scripted_model_is_refused_with_advice() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.script(small())
    with pytest.raises(UsageError, match=r"^watch: got a RecursiveScriptModule, expected a model that runs as Python\. Watch it before"):
        numscope.watch(model)
    assert open_scopes.live() == ()


def test_no_mode_is_left_when_the_loss_is_never_used() -> None:
    model = small()
    with numscope.watch(model):
        model(torch.ones(2, 4)).sum()
    assert not _get_current_dispatch_mode_stack()


class Warns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("mine", stacklevel=1)
        return self.layer(x)


def test_the_scripts_own_warnings_and_tracebacks_name_the_same_lines() -> None:
    def told(watched: bool) -> list[tuple[str, int | None]]:
        model = nn.Sequential(Warns(), nn.ReLU())
        here = []
        with warnings.catch_warnings(record=True) as caught, numscope.watch(model) if watched else contextlib.nullcontext():
            warnings.simplefilter("always")
            for wrong in (lambda: model(torch.ones(2, 5)), lambda: model(torch.ones(2, 4)).backward()):
                with pytest.raises(RuntimeError) as raised:
                    wrong()
                here += [(frame.name, frame.lineno) for frame in traceback.extract_tb(raised.tb) if frame.filename == __file__]
        return [*here, *((warning.filename, warning.lineno) for warning in caught)]

    assert told(True) == told(False)


def test_parameters_can_be_swapped_as_without_a_watch() -> None:
    def trained(watched: bool) -> list[Tensor]:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scope = numscope.watch(model) if watched else None
        for dtype in (torch.float64, torch.float32):
            train(model, optimizer)
            model.zero_grad()
            model.to(dtype).to(torch.float32)
        torch.utils.swap_tensors(model[0].bias, nn.Parameter(torch.ones(4)))
        model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
        train(model, optimizer)
        if scope is not None:
            scope.close()
            assert (scope.fault, scope.findings, scope.num_steps) == ("", [], 6)
            model.to(torch.float64).to(torch.float32)
        return [p.detach().clone() for p in model.parameters()]

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        bare = trained(False)
        assert all(map(torch.equal, trained(True), bare))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_learned_learning_rate_is_read_without_a_warning() -> None:
    """Torch warns where a number is taken from a tensor with a graph."""
    model, rate = small(), torch.tensor(0.1, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate.clone(), differentiable=False)
    with warnings.catch_warnings(record=True) as warned, numscope.watch(model) as scope:
        warnings.simplefilter("always")
        train(model, optimizer, 3)
    assert not scope.fault
    assert [str(one.message) for one in warned if "scalar" in str(one.message)] == []


STATISTICS = {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": "."}, "statistics": {
    "enabled": True, "stats": ["max", "l2_norm"], "tensors": ["activation", "gradient", "dgrad", "weight", "local_wgrad"]}}}  # fmt: skip


@pytest.mark.parametrize("config", [None, STATISTICS], ids=["detection", "statistics"])
@pytest.mark.parametrize("where", ["before", "within"])
def test_watch_that_ends_within_a_call_lets_the_call_go_on(where: str, config: Any, tmp_path: Any) -> None:
    """Torch takes down the hooks of a call as it begins, and asks later whether they take keyword arguments."""
    model = small()
    scopes: list[Any] = []

    def close(*_: Any) -> None:
        if scopes:
            scopes.pop().close()

    if where == "before":
        handle = torch.nn.modules.module.register_module_forward_pre_hook(close)
    else:
        handle = model[1].register_forward_pre_hook(close)
    expected = model(torch.ones(2, 4)).tolist()
    more = {} if config is None else {"config": config, "log_dir": str(tmp_path)}
    scopes.append(numscope.watch(model, **more))
    assert model(torch.ones(2, 4)).tolist() == expected and not scopes
    handle.remove()


def test_script_dies_of_its_own_exception_that_has_no_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    model = small()
    with pytest.raises(Mute), numscope.watch(model) as scope:
        model(torch.ones(2, 4)).log().mean().sum().mul(float("nan")).backward()
        raise Mute
    assert not scope.fault
    assert [finding.note for finding in scope.findings] == ["the script ended with Mute"]
