"""torch.compile(fullgraph=True) computes bitwise what eager computes, and switches act on compiled models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from transformers.pytorch_utils import Conv1D

from numscope.precision import autocast, convert, states


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def model(recipe: str) -> nn.Module:
    torch.manual_seed(0)
    return convert(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), Conv1D(16, 32), nn.ReLU(), nn.Linear(16, 16, bias=False)), recipe)


def train(recipe: str, compiled: bool, amp: bool = False, region: str | None = None) -> list[Tensor]:
    """Outputs, gradients and scales of three steps; before the last one a GEMM of each layer is switched to high precision."""
    net = model(recipe)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def forward(x: Tensor) -> Tensor:
        y: Tensor = net(x)
        return y

    call = torch.compile(forward, fullgraph=True, backend="aot_eager") if compiled else forward
    seen: list[Tensor] = []
    for seed in range(3):
        if seed == 2:
            for state in states(net).values():
                state.plan = state.plan.with_high(["wgrad"])
        x = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            if region is None:
                y = call(x)
            else:
                with autocast(recipe=region):
                    y = call(x)
        y.float().square().sum().backward()
        optimizer.step()
        seen += [y.detach(), x.grad, *(p.grad.clone() for p in net.parameters())]
    seen += [h.scale for state in states(net).values() for _, h in sorted(state.histories.items())]
    return seen


@pytest.mark.parametrize(("recipe", "amp"), [("delayed", False), ("delayed", True), ("current", False), ("mxfp8", True)])
def test_compiled_training_is_bitwise_eager_training(recipe: str, amp: bool) -> None:
    eager, compiled = train(recipe, False, amp), train(recipe, True, amp)
    assert len(eager) == len(compiled)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))
    assert counters["stats"]["unique_graphs"] == 1, "a switch is no reason to compile again"


def test_region_around_a_compiled_model_decides() -> None:
    eager, compiled = train("high_precision", False, region="current"), train("high_precision", True, region="current")
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


def test_layers_at_rest_are_compiled_as_bare_ones() -> None:
    names: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    net = model("high_precision")
    torch.compile(net, fullgraph=True, backend=keep)(torch.randn(2, 16))
    assert names and not any("fp8" in name for name in names)
    states(net)[net[0]].recipe = next(iter(states(model("current")).values())).recipe
    names.clear()
    torch.compile(net, fullgraph=True, backend=keep)(torch.randn(2, 16))
    assert any("fp8" in name for name in names)


def test_inductor_takes_the_operators() -> None:
    net = model("mxfp8")
    x = torch.randn(4, 16)
    expected = net(x)
    assert torch.equal(torch.compile(net, fullgraph=True)(x), expected)


def test_one_graph_serves_layers_of_one_shape() -> None:
    torch.manual_seed(0)
    blocks = nn.ModuleList(convert(nn.Linear(16, 16), "current") for _ in range(4))
    x = torch.randn(4, 16)
    expected = [block(x) for block in blocks]
    for block in blocks:
        block.compile(fullgraph=True, backend="aot_eager")
    assert all(torch.equal(block(x), y) for block, y in zip(blocks, expected, strict=True))
    assert counters["stats"]["unique_graphs"] == 1
