"""The layer probe on modules whose outputs are views or are changed in place, and inside compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from numscope.probe.dynamo import prepare_dynamo, release_dynamo
from numscope.probe.layers import LayerProbe, LayerSites, own_base

ACTIVATION, OUTPUT, GRADIENT, DGRAD = range(4)


class Seen:
    """A probe on some layers, and what it showed, by layer and tensor."""

    def __init__(self, *layers: nn.Module, evaluation: bool = False) -> None:
        self.found: dict[tuple[int, int], list[Tensor]] = {}
        self.probe = LayerProbe(self.observe, self.failed)
        self.wanted = {layer: LayerSites(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, evaluation) for i, layer in enumerate(layers)}

    def observe(self, site: int, tensor: Tensor) -> None:
        self.found.setdefault(divmod(site, 4), []).append(tensor.detach().clone())

    def failed(self, error: Exception) -> None:
        raise error

    def one(self, layer: int, tensor: int) -> Tensor:
        (found,) = self.found[layer, tensor]
        return found


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 5, 4)], ids=str)
def test_gradient_of_an_output_that_is_then_changed_in_place_is_seen(shape: tuple[int, ...]) -> None:
    layer, then = nn.Linear(4, 3), nn.ReLU(inplace=True)
    seen = Seen(layer)
    seen.probe.arm(seen.wanted)
    y = then(layer(torch.randn(shape)))
    positive = (y > 0).float()
    (2 * y).sum().backward()
    assert torch.equal(seen.one(0, GRADIENT), 2 * positive)


def test_gradient_of_an_output_that_stays_is_the_same_seen_on_its_base() -> None:
    layer = nn.Linear(4, 3)
    seen = Seen(layer)
    seen.probe.arm(seen.wanted)
    y = layer(torch.randn(2, 5, 4))
    kept: list[Tensor] = []
    y.register_hook(kept.append)
    y.sin().transpose(1, 2).square().sum().backward()
    assert torch.equal(seen.one(0, GRADIENT), kept[0])


@pytest.mark.parametrize("used", [0, 1])
def test_output_that_gets_no_gradient_of_a_node_with_several_shows_none(used: int) -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return x.unbind()

    seen = Seen(layer := Halves())
    seen.probe.arm(seen.wanted)
    layer(torch.randn(2, 3, requires_grad=True) * 1)[used].sum().backward()
    if used == 0:
        assert torch.equal(seen.one(0, GRADIENT), torch.ones(3))
    else:
        assert (0, GRADIENT) not in seen.found


def test_base_that_is_an_inputs_memory_is_not_the_layers_own() -> None:
    x = torch.randn(2, 6, requires_grad=True) * 1
    assert own_base(x.view(3, 4), [x]) is None
    assert own_base(x.view(3, 4).view(12), [x.view(12)]) is None
    assert own_base(x.view(3, 4), []) is x
    assert own_base(x[:1], []) is None
    assert own_base(x.t(), []) is None
    assert own_base((x.view(3, 4),), []) is None
    seen = Seen(layer := nn.Unflatten(1, (2, 3)))
    seen.probe.arm(seen.wanted)
    (layer(x).sum() + 5 * x.sum()).backward()
    assert torch.equal(seen.one(0, GRADIENT), torch.ones(2, 2, 3)), "the input's other consumers are not in it"


@pytest.fixture
def _dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    prepare_dynamo()
    yield
    release_dynamo()
    torch._dynamo.reset()


def train(model: nn.Module, call: Callable[[Tensor], Tensor], seen: Seen | None) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(6):
        if seen is not None:
            seen.probe.arm(seen.wanted if step % 2 else {})
        x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(step))
        loss = call(x).square().mean()
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.usefixtures("_dynamo")
def test_probe_in_a_whole_graph_sees_what_it_sees_in_eager_and_changes_nothing() -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def compiled(model: nn.Module, backend: Any) -> Any:
        return torch.compile(model, backend=backend, fullgraph=True, dynamic=False)

    model = build()
    expected = train(model, compiled(model, "aot_eager"), None)
    torch._dynamo.reset()
    model = build()
    eager = Seen(model[1], model[3], model[5])  # type: ignore[index]
    train(model, model, eager)
    model = build()
    seen = Seen(model[1], model[3], model[5])  # type: ignore[index]
    counter = CompileCounterWithBackend("aot_eager")
    got = train(model, compiled(model, counter), seen)
    assert counter.frame_count == 2, "one bare graph, one with taps"
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert seen.found.keys() == eager.found.keys() and len(seen.found) == 12
    for key, tensors in eager.found.items():
        assert len(tensors) == len(seen.found[key]) == 3
        for a, b in zip(tensors, seen.found[key], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
