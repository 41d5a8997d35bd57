"""Tensors without numbers, and objects that answer oddly, leave the watch at work: it skips what it can't read, and finds the rest."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import numscope
from numscope.config.options import WatchOptions
from numscope.probe import calls
from numscope.scope.autowatch import AutoWatch


@pytest.fixture(autouse=True)
def said() -> Iterator[None]:
    calls._said.clear()
    yield
    calls._said.clear()


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, between: Any = lambda: None, given: Any = lambda x: x) -> Any:
    """Three good steps with something between them, and a bad one."""
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step in range(4):
            between()
            optimizer.zero_grad()
            loss = model(given(torch.ones(4, 4))).pow(2).mean()
            if step == 3:
                loss = (loss - loss.detach()).log()  # FAULT
            loss.backward()
            optimizer.step()
    return scope


def assert_found(scope: Any) -> None:
    assert not scope.fault
    assert [(f.step, f.culprit.op, f.culprit.code.endswith("# FAULT")) for f in scope.findings] == [(3, "aten.log", True)]


def jacobian_by_rows(model: nn.Module) -> None:
    x = torch.ones(4, 4, requires_grad=True)
    torch.autograd.grad(model(x), x, torch.eye(3)[:, None, :].expand(3, 4, 3), is_grads_batched=True)


def jacobian_of_parameters(model: nn.Module) -> None:
    y = (model(torch.ones(2, 4)).mean(0) * 2).exp()
    torch.autograd.grad(y, list(model.parameters()), torch.eye(3), is_grads_batched=True)


def vectorized(model: nn.Module) -> None:
    torch.autograd.functional.jacobian(model, torch.ones(2, 4), vectorize=True)


def per_sample(model: nn.Module) -> None:
    weights = {name: p.detach() for name, p in model.named_parameters()}
    loss = lambda w, x: torch.func.functional_call(model, w, (x,)).sum()  # noqa: E731
    torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, torch.ones(2, 4))


def faked(model: nn.Module) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(torch.ones(4, 4)).sum().backward()


def traced(model: nn.Module) -> None:
    make_fx(lambda x: torch.autograd.grad(model(x).sum(), x))(torch.ones(4, 4, requires_grad=True))


class Logged(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_a_mode(model: nn.Module) -> None:
    with Logged():
        model(torch.ones(4, 4)).sum().backward()


@pytest.mark.parametrize("between", [jacobian_by_rows, jacobian_of_parameters, vectorized, per_sample, traced, under_a_mode])
def test_what_has_no_numbers_is_skipped_and_the_step_is_watched(between: Callable[[nn.Module], None], capfd: Any) -> None:
    model = small()
    assert_found(train(model, torch.optim.SGD(model.parameters(), lr=1e-3), lambda: between(model)))


@pytest.mark.parametrize("between", [faked, jacobian_by_rows])
def test_it_is_said_once_what_is_not_watched(between: Callable[[nn.Module], None], caplog: Any) -> None:
    model = small()
    with numscope.watch(model) as scope:
        for _ in range(3):
            between(model)
        model.zero_grad()
    assert not scope.fault
    (record,) = [record for record in caplog.records if "does not watch" in record.message]
    assert record.levelno == logging.WARNING
    assert record.message.endswith("there are no numbers to read. The rest is watched.")


@pytest.mark.parametrize("fused", [False, True])
def test_a_training_without_numbers_leaves_the_watch_open(fused: bool) -> None:
    with FakeTensorMode():
        model = small()
        optimizer = torch.optim.Adam(model.parameters(), foreach=fused)
        with numscope.watch(model) as scope:
            for _ in range(3):
                model(torch.ones(4, 4)).sum().backward()
                optimizer.step()
    assert not scope.fault and not scope.findings


def test_a_meta_model_leaves_the_watch_open() -> None:
    with torch.device("meta"):
        model = small()
        with numscope.watch(model) as scope:
            model(torch.ones(4, 4)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not scope.fault and not scope.findings


def test_flops_are_those_of_the_script() -> None:
    def flops(watch: Any) -> int:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        with FlopCounterMode(display=False) as counter, watch(model):
            for _ in range(2):
                model(torch.ones(4, 4)).sum().backward()
                optimizer.step()
        return int(counter.get_total_flops())

    assert flops(numscope.watch) == flops(lambda model: contextlib.nullcontext())


class Equal(torch.optim.SGD):
    """Has no hash."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)


class Alike(torch.optim.SGD):
    """Two of them are the same key."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


class Unasked(torch.optim.SGD):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = torch.optim.SGD.__hash__

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


@pytest.mark.parametrize("kind", [Equal, Alike, Unasked])
def test_optimizers_are_told_apart_by_identity(kind: type[torch.optim.Optimizer], capfd: Any) -> None:
    model = small()
    other = kind(small().parameters(), lr=1.0)  # type: ignore[call-arg]
    scope = train(model, kind(model[:1].parameters(), lr=1e-3), other.step)  # type: ignore[call-arg]
    assert_found(scope)


@pytest.mark.parametrize("scaler", [False, True])
def test_each_of_two_optimizers_that_are_alike_counts(scaler: bool) -> None:
    model = small()
    optimizers = [Alike(model[:1].parameters(), lr=1e-3), Alike(model[2:].parameters(), lr=1e-3)]
    grads = torch.amp.GradScaler("cpu", enabled=scaler)
    with numscope.watch(model) as scope:
        for _ in range(3):
            grads.scale(model(torch.ones(4, 4)).sum()).backward()
            for optimizer in optimizers:
                grads.step(optimizer)
            grads.update()
    assert (scope.num_steps, scope.fault, scope.findings) == (3, "", [])


class Hearing(Tensor):
    heard: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("level", ["modules", "sentinel"])
@pytest.mark.parametrize("weights", [False, True])
def test_a_subclass_hears_of_its_scripts_calls_alone(weights: bool, level: str) -> None:
    def heard(watch: Any) -> Counter[str]:
        model = small()
        if weights:
            model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Hearing))
        optimizer = torch.optim.Adam(model.parameters())
        Hearing.heard = []
        with watch(model):
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(torch.ones(4, 4).as_subclass(Hearing)).pow(2).mean()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        return Counter(Hearing.heard)

    bare = heard(lambda model: contextlib.nullcontext())
    assert heard(lambda model: numscope.watch(model, level=level)) == bare
    assert heard(lambda model: AutoWatch(WatchOptions(level=level))) == bare


def test_a_subclass_runs_as_ever_in_a_replay(capfd: Any) -> None:
    class Doubling(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(func, types, args, kwargs or {})
            return torch.div(result, 0) if func is torch.tanh else result

    model = small()
    with pytest.raises(numscope.NonFiniteError) as raised, numscope.watch(model):
        model(torch.ones(4, 4).as_subclass(Doubling)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    culprit = raised.value.finding.culprit
    assert culprit is not None and (culprit.op, culprit.module) == ("aten.div", "1"), raised.value.finding.replay


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda x: x.to_sparse(),
    "compressed": lambda x: x.to_sparse_csr(),
    "complex": lambda x: torch.complex(x, x),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "nested": lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
    "meta": lambda x: x.to("meta"),
    "lazily negated": lambda x: torch.complex(x, x).conj().imag,
}


class Plainly(nn.Module):
    """Takes any kind of tensor, passes it on as an output, and computes with another one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.passes = nn.Identity()

    def forward(self, odd: Tensor) -> Tensor:
        self.passes(odd)
        return self.linear(torch.ones(2, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_tensor_leaves_the_watch_at_work(kind: str, capfd: Any) -> None:
    model = Plainly()
    assert_found(train(model, torch.optim.SGD(model.parameters(), lr=1e-3), given=KINDS[kind]))


class OddModule(nn.Linear):
    """Its attributes raise what nobody expects."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("weight", "bias"):
            return super().__getattr__(name)
        raise RuntimeError(f"no {name} here")

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("not to be iterated")


def test_a_module_with_odd_methods_leaves_the_watch_at_work(capfd: Any) -> None:
    model = nn.Sequential(OddModule(4, 4), nn.Tanh(), OddModule(4, 3))
    assert_found(train(model, torch.optim.SGD(model.parameters(), lr=1e-3)))


def test_a_root_with_odd_methods_leaves_the_watch_at_work(capfd: Any) -> None:
    model = OddModule(4, 3)
    assert_found(train(model, torch.optim.SGD(model.parameters(), lr=1e-3)))


class Alias(nn.Module):
    """Returns a view of its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor | None = None) -> Tensor:
        return self.weight[:2] if x is None else x @ self.weight


def test_a_view_whose_node_torch_refuses_to_tell_leaves_the_watch_at_work(caplog: pytest.LogCaptureFixture) -> None:
    model, views = Alias(), []

    def between() -> None:
        with torch.no_grad():
            views.append(model())
            views[-1].mul_(0.5)
        with pytest.raises(RuntimeError, match="no_grad"):
            print(views[-1].grad_fn)
        torch.ones(2, requires_grad=True).sum().backward()

    assert_found(train(model, torch.optim.SGD(model.parameters(), lr=1e-3), between=between))
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR and "numscope" in one.getMessage()]
