"""Compiled in any order, way and part, a model gives the findings and the statistics that it gives uncompiled."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import numscope
from numscope.probe import calls
from numscope.records.finding import Finding, Reason
from numscope.replay import outside
from tests.tape import line_of

FAULTS = {0: "forward", 2: "backward", 4: "loss"}  # by call: in the one that compiles, too


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, planted: Tensor, breaks: bool = False) -> Tensor:
        h = self.layer(x)
        if breaks:
            torch._dynamo.graph_break()
        h = h + torch.log(h.square() + planted[0])  # the logarithm
        return x + torch.tanh(h * planted[1]).square().sum(-1, keepdim=True).sqrt()  # the root


class Model(nn.Module):
    def __init__(self, num_blocks: int, breaks: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(num_blocks))
        self.breaks = breaks

    def forward(self, x: Tensor, planted: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, planted, self.breaks)
        return x


def loss_of(y: Tensor, planted: Tensor) -> Tensor:
    loss = y.square().mean()
    return loss + torch.log(planted[2])  # the loss's logarithm


def planted(fault: str | None) -> Tensor:
    return torch.tensor([-1e6 if fault == "forward" else 1.0, 0.0 if fault == "backward" else 1.0, -1.0 if fault == "loss" else 1.0])


class Run:
    """One training of one model, with faults at some calls.

    Args:
        order: words, done one after the other: "watch", "watch compiled", "compile", "method", "parts", "parts' methods", "step".
    """

    def __init__(
        self,
        order: str,
        *,
        num_blocks: int = 1,
        breaks: bool = False,
        rows: tuple[int, ...] = (3,),
        config: Any = None,
        **compiling: Any,
    ) -> None:
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        self.model = Model(num_blocks, breaks)
        self.call: Any = self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.update: Callable[[], object] = self.optimizer.step
        self.around_backward: Callable[[], Any] = contextlib.nullcontext
        self.loss_of = loss_of
        self.scope: Any = None
        self.numbers: dict[tuple[str, int], float] = {}
        self.found: list[Finding] = []
        self._rows, self._config, self._calls = rows, config, 0
        self._compiling = {"backend": "eager", **compiling}
        for word in order.split(", ") if order else ():
            self.do(word)

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        self.numbers[name, iteration] = value

    def do(self, word: str) -> None:
        blocks = self.model.blocks
        if word.startswith("watch"):
            wanted = {} if self._config is None else {"config": self._config, "loggers": (self,), "default_logging": False}
            self.scope = numscope.watch(self.call if word == "watch compiled" else self.model, **wanted)
        elif word == "compile":
            self.call = torch.compile(self.model, **self._compiling)
        elif word == "method":
            self.model.compile(**self._compiling)
        elif word == "parts":
            for i, block in enumerate(blocks):
                blocks[i] = torch.compile(block, **self._compiling)  # type: ignore[assignment]
        elif word == "parts' methods":
            for block in blocks:
                block.compile(**self._compiling)
        else:
            assert word == "step"
            self.step(None)

    def step(self, fault: str | None) -> None:
        x = torch.randn(self._rows[self._calls % len(self._rows)], 4, generator=torch.Generator().manual_seed(self._calls))
        self._calls += 1
        try:
            given = planted(fault)
            loss = self.loss_of(self.call(x, given), given)
            with self.around_backward():
                loss.backward()
            self.update()
        except numscope.NonFiniteError as error:
            self.found.append(error.finding)
        self.optimizer.zero_grad()

    def train(self, num: int = 6, faults: dict[int, str] = FAULTS) -> list[tuple[Any, ...]]:
        """What is found, in numbers of calls since the training began."""
        with contextlib.redirect_stderr(None):
            first = self._calls - self.scope.batch
            for call in range(self._calls, num):
                self.step(faults.get(call))
            assert not self.scope.fault
            self.scope.close()
        return [(f.batch + first, f.step + first, *described(f)) for f in self.found]


def described(finding: Finding) -> tuple[Any, ...]:
    culprit = finding.culprit
    assert culprit is not None, finding.replay
    return finding.phase, finding.site, finding.kind, culprit.op, culprit.module, culprit.file, culprit.line, culprit.reason


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)
    torch._dynamo.reset()


@functools.cache
def eager(rows: tuple[int, ...], since: int) -> list[tuple[Any, ...]]:
    found = Run("watch", rows=rows).train(faults={call: fault for call, fault in FAULTS.items() if call >= since})
    lines = {"forward": "the logarithm", "backward": "the root", "loss": "the loss's logarithm"}
    assert [one[-2] for one in found] == [line_of(lines[fault], __file__) for call, fault in FAULTS.items() if call >= since]
    return found


@pytest.mark.parametrize(
    "order",
    [
        "compile, watch compiled",
        "compile, watch",
        "watch, compile",
        "method, watch",
        "watch, parts",
        "watch, parts' methods",
        "watch, step, compile",
        "watch, step, method",
        "compile, step, watch",
    ],
)
def test_findings_do_not_depend_on_the_order(order: str) -> None:
    stepped = "step" in order
    assert Run(order).train(faults={c: f for c, f in FAULTS.items() if c or not stepped}) == eager((3,), int(stepped))


@pytest.mark.parametrize(
    "compiling",
    [
        {"backend": "aot_eager", "fullgraph": True},
        {"backend": "inductor"},
        {"backend": "aot_eager", "dynamic": True, "rows": (3, 5, 2)},
        {"rows": (3, 5, 3, 2)},
        {"breaks": True},
    ],
    ids=["fullgraph", "inductor", "dynamic", "recompiled", "several graphs"],
)
def test_findings_do_not_depend_on_how_it_is_compiled(compiling: dict[str, Any]) -> None:
    assert Run("watch, compile", **compiling).train() == eager(compiling.get("rows", (3,)), 0)


def test_compiled_optimizer_is_heard_and_what_the_tool_does_at_its_step_is_not_compiled() -> None:
    run = Run("watch")
    run.update = torch.compile(run.optimizer.step, backend="eager")
    expected = eager((3,), 0)
    counters.clear()
    assert run.train() == expected
    assert counters["stats"]["unique_graphs"] == 1, "the update"


def test_compiled_autograd_shows_gradients() -> None:
    run = Run("watch, compile")
    run.around_backward = lambda: torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager"))
    assert run.train(3) == eager((3,), 0)[:2]


# ---- statistics


def wanted(start: int) -> dict[str, Any]:
    tensors = ["activation", "gradient", "dgrad", "weight", "wgrad", "local_wgrad"]
    asked = {"enabled": True, "stats": ["max", "l2_norm"], "tensors": tensors, "freq": 10, "start_step": start}
    return {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": asked}}


@functools.cache
def eager_numbers(start: int) -> dict[tuple[str, int], float]:
    run = Run("watch", config=wanted(start))
    assert run.train(32, {}) == []
    return run.numbers


@pytest.mark.parametrize(("order", "start"), [("watch, compile", 0), ("watch, method", 5)])
def test_schedule_compiles_nothing_again_and_statistics_are_those_of_eager(order: str, start: int) -> None:
    expected = eager_numbers(start)
    run = Run(order, config=wanted(start), backend="aot_eager")
    assert run.train(32, {}) == []
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert run.numbers.keys() == expected.keys() and len({step for _, step in expected}) >= 3
    assert all(run.numbers[key] == pytest.approx(value, rel=1e-4, abs=1e-6) for key, value in expected.items())


class Pair(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0] * pair[1], pair[1]


class Passes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Pair()

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return self.inner(pair)[0]


def test_container_that_is_new_in_each_call_compiles_nothing_again() -> None:
    torch._dynamo.reset()
    counters.clear()
    model = nn.ModuleDict({"layer": nn.Linear(4, 4), "passes": Passes()})
    with numscope.watch(model):
        model["passes"].compile(backend="eager")
        pairs = [(model["layer"](torch.ones(2, 4)), torch.ones(4)) for _ in range(4)]  # all at once: none has another's id
        for pair in pairs:
            model["passes"](pair).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1


class Attention(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        probabilities = (x @ x.mT).softmax(-1)
        return probabilities @ x, probabilities


def test_attention_is_seen_in_a_graph() -> None:
    class Logger:
        def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
            found.append((name, iteration, pytest.approx(value)))

    found: list[Any] = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), Attention())
        asked = {"enabled": True, "stats": ["attention_entropy"], "tensors": ["attention"]}
        config = {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": "1", "containers": True}, "statistics": asked}}
        with numscope.watch(model, on_nonfinite=None, config=config, loggers=(Logger(),), default_logging=False):
            call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
            call(torch.ones(2, 3, 4))[0].sum().backward()
    assert len(found) % 2 == 0 and found[: len(found) // 2] == found[len(found) // 2 :]


# ---- what eager does not show


def test_operation_that_the_compiler_makes_wrong_is_named_with_its_line() -> None:
    armed = False

    def wrong(x: Tensor) -> Tensor:
        return torch.log(-x.abs() - 1) if armed else torch.tanh(x)

    def compiler(graph: Any, inputs: Any) -> Any:
        tanh = [node for node in graph.graph.nodes if node.target is torch.tanh]
        tanh[1].target = wrong  # the second block's
        graph.recompile()
        return graph

    for order in ("watch, method", "watch, parts"):
        if order.endswith("parts"):  # each block is a graph
            compiler = lambda graph, inputs, _of=compiler: graph if "log" not in str(graph.graph) else _one(graph, wrong)  # noqa: E731
        armed = False
        run = Run(order, num_blocks=2, backend=compiler)
        with contextlib.redirect_stderr(None):
            run.step(None)
            armed = True
            run.step(None)
        (finding,) = run.found
        culprit = finding.culprit
        assert culprit is not None, finding.replay
        assert (finding.step, culprit.op, culprit.reason) == (1, "torch.tanh", Reason.COMPILED)
        assert culprit.module == ("blocks.0" if order.endswith("parts") else "blocks.1")
        assert (culprit.file, culprit.line) == (__file__, line_of("the root", __file__))
        run.scope.close()


def test_memory_that_a_call_writes_is_as_it_was_after_its_graphs_were_looked_at() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.unregistered = [torch.zeros(1)]

        def forward(self, x: Tensor) -> Tensor:
            self.unregistered[0].add_(1)
            return torch.tanh(self.fc(x))

    armed = False

    def wrong(x: Tensor) -> Tensor:
        return torch.log(-x.abs() - 1) if armed else torch.tanh(x)

    model = Counting()
    call = torch.compile(model, backend=lambda graph, inputs: _one(graph, wrong))
    with contextlib.redirect_stderr(None), numscope.watch(model, on_nonfinite="warn") as scope:
        call(torch.ones(1, 2)).sum().backward()
        armed = True
        call(torch.ones(1, 2)).sum().backward()
    (finding,) = scope.findings
    assert finding.culprit is not None and finding.culprit.reason is Reason.COMPILED
    assert model.unregistered[0].item() == 2


def _one(graph: Any, wrong: Any) -> Any:
    for node in graph.graph.nodes:
        if node.target is torch.tanh:
            node.target = wrong
    graph.recompile()
    return graph


def hidden(graph: Any, inputs: Any) -> Any:  # as a fused kernel is
    def call(*args: Any) -> Any:
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            return graph(*args)

    return call


def test_compiled_caller_and_compiled_loss_are_said_with_the_cure() -> None:
    run = Run("watch")
    run.call = torch.compile(lambda x, given: run.model(x, given), backend=hidden)
    with contextlib.redirect_stderr(None):
        run.step(None)
        run.step("forward")
    run.scope.close()
    (finding,) = run.found
    assert (finding.step, finding.site.module) == (1, "blocks.0")
    assert finding.replay == ("not reproduced: Model was called inside a compiled function. Compile the model itself, torch.compile(model)")

    run = Run("watch")
    run.loss_of = torch.compile(loss_of, backend=hidden)
    with contextlib.redirect_stderr(None):
        run.step("loss")
    run.scope.close()
    (finding,) = run.found
    seen = "by compiled code, or under a dispatch mode of the script's. Compute it outside of that to have its operation named"
    assert finding.replay.endswith(seen)


def test_mode_that_is_taken_off_while_dynamo_traces_leaves_torch_as_it_was() -> None:
    """The garbage collector may end a watch at any time. Where a trace fails, torch sets its state back to what it was at its beginning."""

    @torch._dynamo.assume_constant_result
    def end() -> int:
        outside.current().pause()
        return 0

    class Ending(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            end()
            raise ValueError("not for export")

    with numscope.watch(nn.Linear(2, 2)) as scope:
        scope._watch.model(torch.ones(1, 2))
        assert outside.current().watching
        with pytest.raises(Exception, match="export"):
            torch.export.export(Ending(), (torch.ones(1),), strict=True)
        assert torch.ones(1).tolist() == [1.0]
    assert torch.ones(1).tolist() == [1.0]
    assert not torch._C._len_torch_dispatch_stack()


class Branching(nn.Module):
    """Calls other layers as its data say, which dynamo traces into graphs of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cond(x.sum() > 0, lambda x: self.high(x).sin(), lambda x: self.low(x).cos(), (x,))
        return self.head(x)


class Heard:
    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        """Takes what comes."""


OF_ALL = {
    "all": {
        "enabled": True,
        "layers": {"layer_types": "all"},
        "statistics": {"enabled": True, "stats": ["max"], "tensors": ["output", "dgrad"]},
    }
}


@pytest.mark.parametrize("options", [{}, {"config": OF_ALL, "loggers": [Heard()]}], ids=["detection", "statistics"])
def test_branches_of_a_compiled_graph_are_left_alone_which_is_said(options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    calls._said.clear()
    found: list[list[torch.Tensor]] = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = Branching()
        scope = numscope.watch(model, **options) if watched else None
        compiled, optimizer = torch.compile(model, backend="aot_eager", fullgraph=True), torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            compiled(torch.full((2, 4), 0.1 if step % 2 else -0.1)).square().sum().backward()
            optimizer.step()
        found.append([p.detach().clone() for p in model.parameters()])
        if scope is not None:
            scope.close()
            assert not scope.fault and scope.num_steps == 4
    assert all(map(torch.equal, *found))
    assert "what torch's cond runs in a compiled graph" in calls._said
    calls._said.clear()
