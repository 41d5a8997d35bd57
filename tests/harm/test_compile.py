"""Compiled whole, a model stays whole, is not compiled again each step, computes the same, and is left clean."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.testing import CompileCounterWithBackend

import numscope
from numscope.config.options import WatchOptions
from numscope.probe.compiled import Graphs
from numscope.scope.autowatch import AutoWatch
from tests.harm.training import assert_no_hooks, assert_nothing_left


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    assert torch._dynamo.config.skip_nnmodule_hook_guards, "torch's own setting"
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert_nothing_left()
    assert torch._dynamo.config.skip_nnmodule_hook_guards, "the last scope puts torch's own setting back"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(self.norm(x)).tanh()


def build(num_blocks: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(num_blocks)), nn.Linear(4, 1))


def train(call: Callable[[Tensor], Tensor], model: nn.Module, steps: int = 4) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for i in range(steps):
        loss = call(torch.randn(3, 4, generator=torch.Generator().manual_seed(i))).pow(2).mean()
        loss.backward()
        found += [loss.detach(), *[p.grad.clone() for p in model.parameters()]]
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *[p.detach().clone() for p in model.parameters()]]


def observed(monkeypatch: Any) -> list[int]:
    """Counts the calls of our operator from within graphs."""
    calls: list[int] = []
    original = Graphs.arrive
    monkeypatch.setattr(Graphs, "arrive", lambda *args: calls.append(1) or original(*args))
    return calls


WAYS = ["before", "after", "method before", "method after", "wrapper watched"]


def compiled(way: str, counter: Any, watched: bool) -> tuple[nn.Module, Callable[[Tensor], Tensor], Any]:
    model = build()
    options = {"backend": counter, "fullgraph": True}
    if way == "before":
        call: Any = torch.compile(model, **options)
        call(torch.ones(3, 4))
        scope = numscope.watch(model) if watched else None
    elif way == "after":
        scope = numscope.watch(model) if watched else None
        call = torch.compile(model, **options)
    elif way == "method before":
        model.compile(**options)
        call = model
        scope = numscope.watch(model) if watched else None
    elif way == "method after":
        scope = numscope.watch(model) if watched else None
        model.compile(**options)
        call = model
    else:
        call = torch.compile(model, **options)
        scope = numscope.watch(call) if watched else None
    return model, call, scope


@functools.cache
def compiled_and_bare() -> list[Tensor]:
    """What no way of compiling changes."""
    torch._dynamo.reset()
    model, call, _ = compiled("after", CompileCounterWithBackend("aot_eager"), False)
    return train(call, model)


@pytest.mark.parametrize("way", WAYS)
def test_compiled_model_trains_the_same_in_one_graph_that_is_made_once(way: str, monkeypatch: Any) -> None:
    calls = observed(monkeypatch)
    expected = compiled_and_bare()
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model, call, scope = compiled(way, counter, True)
    before = counter.frame_count
    got = train(call, model)
    made = counter.frame_count
    assert made - before <= 2, "compiled again each step"
    train(call, model, 2)
    assert counter.frame_count == made
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert not scope.closed and scope.step_number >= 3
    assert calls, "nothing was seen inside the graph"
    scope.close()
    assert_no_hooks(model)
    assert_no_hooks(call)
    calls.clear()
    torch.manual_seed(0)
    train(call, model, 2)
    assert not calls, "the graph still calls our operator"
    made = counter.frame_count
    train(call, model, 2)
    assert counter.frame_count == made, "compiled again each step"


@functools.cache
def with_the_backward_inside(entrance: str, backend: str, compiles_backward: bool) -> list[Tensor]:
    """Losses, gradients and weights of a training whose compiled function holds the backward; ``entrance``: of the watch, if any."""
    torch._dynamo.reset()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(compiled_autograd=compiles_backward))
        if entrance == "run":
            stack.enter_context(AutoWatch(WatchOptions()))
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        scope = stack.enter_context(numscope.watch(model)) if entrance == "watch" else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend=backend)
        def step(x: Tensor) -> Tensor:
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        found = []
        for i in range(3):
            found.append(step(torch.randn(3, 4, generator=torch.Generator().manual_seed(i))).detach())
            found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
        assert scope is None or not scope.closed
    return [*found, *[p.detach().clone() for p in model.parameters()]]


@pytest.mark.parametrize(
    ("entrance", "backend", "compiles_backward"),
    [("watch", "eager", False), ("watch", "aot_eager", True), ("run", "eager", True), ("run", "aot_eager", False)],
)
@pytest.mark.filterwarnings("error:Dynamo detected")
def test_compiled_function_may_hold_the_backward(entrance: str, backend: str, compiles_backward: bool) -> None:
    expected, got = (with_the_backward_inside(way, backend, compiles_backward) for way in ("", entrance))
    assert len(expected) == len(got) and all(map(torch.equal, expected, got))


def test_part_compiled_within_a_watched_model_trains_the_same(monkeypatch: Any) -> None:
    def run(watched: bool) -> list[Tensor]:
        torch._dynamo.reset()
        model = build(2)
        model[0].compile(backend="aot_eager", fullgraph=True)
        model[1] = torch.compile(model[1], backend="aot_eager", fullgraph=True)
        scope = numscope.watch(model) if watched else None
        found = train(model, model)
        if scope is not None:
            assert not scope.closed
            scope.close()
            assert_no_hooks(model)
        return found

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


def test_compiled_model_that_nobody_watches_is_not_compiled_again_when_another_is() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    other = torch.compile(build(), backend=counter)
    other(torch.ones(3, 4))
    with numscope.watch(build()) as scope:
        other(torch.ones(3, 4))
        assert not scope.batch


def test_dynamo_that_is_loaded_after_the_watch_began_is_left_clean_too() -> None:
    code = """
import sys, torch
from torch import nn
import numscope
from numscope.probe.compiled import Graphs
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
kept = []
class Kept:
    def log_scalar(self, name, value, iteration, **_):
        kept.append((name, iteration))
wanted = {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": {
    "enabled": True, "stats": ["max"], "tensors": ["activation"], "freq": 2, "start_step": FIRST}}}
assert "torch._dynamo" not in sys.modules
statistics = numscope.watch(model, config=wanted, loggers=[Kept()], on_nonfinite=None)
calls = []
original = Graphs.arrive
Graphs.arrive = lambda *args: calls.append(1) or original(*args)
detection = DETECTION and numscope.watch(model)
call = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    call(torch.ones(2, 4)).sum().backward()
    optimizer.step()
assert calls
statistics.close()
if detection:
    detection.close()
calls.clear()
call(torch.ones(2, 4)).sum().backward()
assert not calls
assert kept == [(f"{layer}_activation_max", step) for step in range(FIRST, 7, 2) for layer in (0, 1)], kept
assert torch._dynamo.config.skip_nnmodule_hook_guards
"""
    for first, detection in (("0", "True"), ("2", "False")):
        subprocess.run([sys.executable, "-c", code.replace("FIRST", first).replace("DETECTION", detection)], check=True)


def inside(model: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(x) * 2


def broken_off(model: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = model(x) * 2
        torch._dynamo.graph_break()
        return y + torch.ones(4)


@torch.inference_mode()
def decorated(model: nn.Module, x: Tensor) -> Tensor:
    return model(x) + torch.zeros(4)


@pytest.mark.parametrize(("function", "backend"), [(inside, "aot_eager"), (broken_off, "eager"), (decorated, "eager")])
def test_inference_mode_within_compiled_code_runs_as_bare(function: Callable[[nn.Module, Tensor], Tensor], backend: str) -> None:
    """More often than operations are noted one by one, with factories between, and a training step now and then."""

    def run(watched: bool) -> list[Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(function, backend=backend, fullgraph=function is not broken_off)
        seen = []
        with numscope.watch(model) if watched else contextlib.nullcontext():
            for _ in range(2):
                seen += [compiled(model, torch.randn(2, 4)) + torch.ones(4) for _ in range(11)]
                optimizer.zero_grad()
                model(torch.randn(2, 4)).square().sum().backward()
                optimizer.step()
        return [*seen, *model.parameters(), torch.randn(2)]

    assert all(map(torch.equal, run(False), run(True)))


CUDA_GRAPHS: dict[str, dict[str, Any]] = {
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
    "option": {"options": {"triton.cudagraphs": True}},
    "backend": {"backend": "cudagraphs"},
}


@pytest.mark.parametrize("way", [*CUDA_GRAPHS, "no graphs"])
def test_code_that_runs_as_cuda_graphs_has_nothing_of_ours_in_it(way: str, monkeypatch: Any, caplog: Any) -> None:
    """A replay runs no Python, and what we allocate while torch warms a graph up, torch refuses: it is not one of the graph's outputs."""
    monkeypatch.setattr("numscope.probe.compiled._has_cuda", lambda: True)
    monkeypatch.setattr("numscope.probe.calls._said", set())
    # What is asked of a backend is asked while dynamo traces: the kernels themselves are left uncompiled.
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: lookup_backend("aot_eager")(graph, inputs))
    arrived = []
    monkeypatch.setattr(Graphs, "arrive", lambda self, place, tensors: arrived.append(place))
    model = build()
    with numscope.watch(model, alerts=False) as scope:
        train(torch.compile(model, **CUDA_GRAPHS.get(way, {})), model)
    said = [record.message for record in caplog.records if "CUDA graphs" in record.message and record.name == "numscope"]
    assert scope.num_steps == 4
    assert (bool(arrived), len(said)) == ((True, 0) if way == "no graphs" else (False, 1)), (arrived, said)
