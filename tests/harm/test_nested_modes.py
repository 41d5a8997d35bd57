"""Calls, factories and steps in whatever nesting of torch's own modes: nothing fails, and the bits are those of a bare run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import numscope
from numscope.replay import outside
from tests.effort import examples

MODES: dict[str, Callable[[], Any]] = {
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "no grad": torch.no_grad,
    "grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("cpu"),
    "functions": lambda: Functions(),
    "operations": lambda: Operations(),
}


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


Action = Any
ACTIONS = st.recursive(
    st.sampled_from(["call", "calls", "make", "step", "raise"]),
    lambda inner: st.tuples(st.sampled_from([*MODES]), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=12,
)


class Loop:
    """A model, and what a script does with it."""

    def __init__(self, watched: bool) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.watch: Any = numscope.watch(self.model) if watched else contextlib.nullcontext()
        self.seen: list[Tensor] = []

    def do(self, action: Action) -> None:
        if isinstance(action, tuple):
            with contextlib.suppress(KeyError), MODES[action[0]]():
                for inner in action[1]:
                    self.do(inner)
        elif action in ("call", "calls"):  # more often than operations are noted one by one
            for _ in range(1 if action == "call" else 10):
                self.seen.append(self.model(torch.randn(2, 3)).square().mean() + torch.ones(()))
        elif action == "make":
            self.seen.append(torch.zeros(2) + torch.arange(2) + torch.randn(2))
        elif action == "step" and torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            self.optimizer.zero_grad()
            self.model(torch.randn(2, 3)).square().mean().backward()
            self.optimizer.step()
        elif action == "raise":
            raise KeyError
        assert torch._C._len_torch_dispatch_stack() or not torch._C._dispatch_tls_is_dispatch_key_included("Python")

    def run(self, program: list[Action]) -> list[Tensor]:
        with self.watch:
            for action in program:
                with contextlib.suppress(KeyError):
                    self.do(action)
        assert not torch._C._dispatch_tls_is_dispatch_key_included("Python")
        assert not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()
        return [*self.seen, *self.model.parameters()]


@settings(max_examples=examples(50))
@given(st.lists(ACTIONS, min_size=1, max_size=8))
def test_any_nesting_runs_as_bare(program: list[Action]) -> None:
    bare, watched = Loop(False).run(program), Loop(True).run(program)
    assert len(bare) == len(watched) and all(map(torch.equal, bare, watched))


@pytest.mark.parametrize("mode", ["inference", "no grad"])
@pytest.mark.parametrize("between", ["outside", "inside"])
def test_long_evaluation_after_training_goes_on(mode: str, between: str) -> None:
    """From a step's 9th call on functions are noted in place of operations: the mode for these goes within the evaluation."""
    evaluation: list[Action] = [(mode, ["call"]), "make"] * 14 if between == "outside" else [(mode, ["call", "make"] * 14)]
    program = ["step", *evaluation, "step", "step", *evaluation, "make"]
    bare, watched = Loop(False).run(program), Loop(True).run(program)
    assert all(map(torch.equal, bare, watched))


def test_watch_that_is_closed_in_inference_mode_leaves_torch_usable() -> None:
    loop = Loop(False)
    scope = numscope.watch(loop.model)
    loop.do("step")
    with torch.inference_mode():
        loop.do("call")
        scope.close()
        loop.do("calls")
    loop.do("make")
    with torch.inference_mode():
        loop.do("call")
    loop.do("step")


@pytest.mark.parametrize("most", [outside.MOST_IN_A_ROW, 3], ids=["noted", "too long"])
@pytest.mark.parametrize("mode", ["device", "functions", "operations"])
def test_modes_of_the_script_end_as_they_began(mode: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch ends ``with torch.device`` by taking off whatever mode is on top."""
    monkeypatch.setattr(outside, "MOST_IN_A_ROW", most)
    program: list[Action] = ["calls", (mode, ["call"]), "make", "step", (mode, ["calls", "step", (mode, ["call"]), "make"]), "make", "step"]
    bare, watched = Loop(False).run(program), Loop(True).run(program)
    assert all(map(torch.equal, bare, watched))
