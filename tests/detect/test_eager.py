"""A compiled step beside eager mode: right code is left alone, of wrong code the compiler's part, the operation and the line are named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.backends.common
import torch._inductor.config
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.detect import experiments
from numscope.detect.eager import MISCOMPILED

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x))
        h = torch.tanh(h)  # at fault
        return self.last(self.dropout(h))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(net: nn.Module, inputs: Callable[[], tuple[Tensor, ...]], check: str | None, steps: int = 3) -> tuple[list[Any], list[Tensor]]:
    optimizer, scope = torch.optim.SGD(net.parameters(), 1e-3), None
    with contextlib.ExitStack() as stack:
        if check is not None:
            scope = stack.enter_context(numscope.watch(net, check=check))
        for _ in range(steps):
            net(*inputs()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    found = [alert for alert in scope.alerts if alert.rule == MISCOMPILED] if scope is not None else []
    return found, [p.detach().clone() for p in net.parameters()]


def made(backend: Any, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    net = Net(dropout)
    net.compile(backend=backend)
    return net


def rows() -> tuple[Tensor, ...]:
    return (torch.randn(16, 8),)


def line_of(text: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        return f"{__file__}:{1 + next(number for number, line in enumerate(file) if text in line)}"


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_right_code_is_left_alone_and_trains_to_the_same_bits(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    (_, bare), (found, watched) = train(made(backend), rows, None), train(made(backend), rows, "eager:every=1")
    assert found == [] and all(map(torch.equal, bare, watched))
    assert "not compared" not in caplog.text


def with_wrong(target: Any, change: Callable[[torch.fx.Graph, torch.fx.Node], Any]) -> Callable[[torch.fx.Graph], None]:
    """A pass that gets an operation of the backward wrong."""

    def wrong(graph: torch.fx.Graph) -> None:
        is_backward = any(n.op == "placeholder" and n.name.startswith("tangents") for n in graph.nodes)
        for node in graph.nodes if is_backward else ():
            if node.target is target:
                change(graph, node)

    return wrong


def test_an_operation_of_the_backward_that_inductor_gets_wrong_is_named() -> None:
    def changed(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
        if node.args[0] == 1:  # 1 - tanh(x)^2, of its derivative
            node.args = (0.5, node.args[1])

    wrong = with_wrong(aten.sub.Tensor, changed)
    with torch._inductor.config.patch(post_grad_custom_post_pass=wrong, fx_graph_cache=False):
        [alert] = train(made("inductor"), rows, "eager:at=1")[0]
    assert alert.step == 1 and alert.text.startswith("the gradient of norm.bias is ") and "compiled by Inductor" in alert.text
    assert (alert.evidence["op"], alert.evidence["line"]) == ("torch.ops.aten.sub.Tensor", line_of("# at fault"))
    assert "(backward) at " in alert.text


@pytest.mark.parametrize("in_place", [False, True], ids=["forked", "in place"])
def test_a_wrong_decomposition_is_named(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        return grad * (1 - y)

    def compiled(graph: Any, inputs: Any) -> Any:
        return torch._dynamo.backends.common.aot_autograd(
            fw_compiler=lambda g, _: g, decompositions={aten.tanh_backward.default: tanh_backward}
        )(graph, inputs)

    if in_place:
        monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)
    [alert] = train(made(compiled), rows, "eager:at=1")[0]
    assert torch._dynamo.eval_frame._stance == torch._dynamo.eval_frame.DynamoStance()
    assert "the gradient of norm.bias is " in alert.text and "compiled by the backend compiled" in alert.text


def test_a_public_case_is_named() -> None:
    class Pools(nn.Module):
        """pytorch/pytorch#185509, which torch 2.13 has: the forward is right."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            x = F.interpolate(self.first(x), scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)
            x = self.last(x[:, :, 1:7, 1:8])  # the convolution
            return torch.where(mask, x, F.max_pool2d(x, kernel_size=3, stride=1, padding=1))

    torch.manual_seed(0)
    net, mask = Pools(), torch.randn(2, 4, 6, 7) > 0
    net.compile()
    given = torch.ones(2, 3, 8, 8), mask
    both = [torch.autograd.grad(call(*given).sum(), net.last.bias)[0] for call in (net, net.forward)]
    if torch.allclose(*both, rtol=1e-3):
        pytest.skip("this torch compiles it rightly")
    [alert] = train(net, lambda: (torch.randn(2, 3, 8, 8), mask), "eager:at=1", 2)[0]
    assert "the gradient of last.bias is " in alert.text and "compiled by Inductor" in alert.text
    assert (alert.evidence["op"], alert.evidence["line"]) == ("torch.ops.aten.convolution_backward.default", line_of("# the convolution"))


def test_what_was_not_compared_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert train(made("inductor", dropout=0.5), rows, "eager:at=1")[0] == []
    assert "compiled code was not compared with eager: its random numbers are others than eager's" in caplog.text
