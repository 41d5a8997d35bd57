"""The module probe: modules whose outputs are views or are changed in place, a listener and a reader at once, compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from numscope.probe.dynamo import prepare_dynamo, release_dynamo
from numscope.probe.entry import Entry, LayerSites, Leaves
from numscope.probe.hook import Hook, hook_calls, new_id
from numscope.probe.module import ModuleProbe
from numscope.probe.walk import own_base

ACTIVATION, OUTPUT, GRADIENT, DGRAD = range(4)


class Seen:
    """A reader of some layers, and what it was shown, by layer and tensor."""

    def __init__(self, *layers: nn.Module, model: nn.Module | None = None, evaluation: bool = False) -> None:
        self.found: dict[tuple[int, int], list[Tensor]] = {}
        self.probe = ModuleProbe(model or layers[0])
        self.wanted = {layer: LayerSites(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, evaluation) for i, layer in enumerate(layers)}

    def arm(self, on: bool = True) -> None:
        self.probe.arm(self.wanted if on else {}, self)

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        self.found.setdefault(divmod(site, 4), []).append(tensor.detach().reshape(tensor.shape if shape is None else shape).clone())

    def failed(self, error: Exception) -> None:
        raise error

    def one(self, layer: int, tensor: int) -> Tensor:
        (found,) = self.found[layer, tensor]
        return found


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 5, 4)], ids=str)
def test_gradient_of_an_output_that_is_then_changed_in_place_is_seen(shape: tuple[int, ...]) -> None:
    layer, then = nn.Linear(4, 3), nn.ReLU(inplace=True)
    seen = Seen(layer)
    seen.arm()
    y = then(layer(torch.randn(shape)))
    positive = (y > 0).float()
    (2 * y).sum().backward()
    assert torch.equal(seen.one(0, GRADIENT), 2 * positive)


def test_gradient_of_an_output_that_stays_is_the_same_seen_on_its_base() -> None:
    layer = nn.Linear(4, 3)
    seen = Seen(layer)
    seen.arm()
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
    seen.arm()
    layer(torch.randn(2, 3, requires_grad=True) * 1)[used].sum().backward()
    if used == 0:
        assert torch.equal(seen.one(0, GRADIENT), torch.ones(3))
    else:
        assert (0, GRADIENT) not in seen.found


def test_base_that_is_an_inputs_memory_is_not_the_layers_own() -> None:
    x = torch.randn(2, 6, requires_grad=True) * 1
    assert own_base(x.view(3, 4), [x], {}) is None
    assert own_base(x.view(3, 4).view(12), [], {"x": x.view(12)}) is None
    assert own_base(x.view(3, 4), [], {}) is x
    assert own_base(x[:1], [], {}) is None
    assert own_base(x.t(), [], {}) is None
    assert own_base((x.view(3, 4),), [], {}) is None
    seen = Seen(layer := nn.Unflatten(1, (2, 3)))
    seen.arm()
    (layer(x).sum() + 5 * x.sum()).backward()
    assert torch.equal(seen.one(0, GRADIENT), torch.ones(2, 2, 3)), "the input's other consumers are not in it"


class Told:
    """A listener, and what it was told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leaves: list[tuple[str, list[str]]] = []
        self.gradients: list[tuple[str, str, tuple[int, ...]]] = []

    def enter(self, module: nn.Module, entry: Entry, args: Any, kwargs: Any) -> None:
        self.calls.append(f"enter {entry.cls}")

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        self.calls.append(f"leave {entry.cls}")

    def tap(self, entry: Entry, leaves: Leaves) -> None:
        self.leaves.append((entry.name, [slot for slot, _ in leaves]))

    def gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None) -> None:
        self.gradients.append((entry.name, slot, tuple(gradient.shape if shape is None else shape)))

    def failed(self, error: Exception) -> None:
        raise error


def test_listener_and_reader_share_the_hooks_of_a_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    told, seen = Told(), Seen(model[0], model[2], model=model)
    seen.probe.attach(told, deep=True, gradients=True)
    bare = {module: dict(module._forward_hooks) for module in model}
    seen.arm()
    for module in model:
        assert len(module._forward_hooks) == len(module._forward_pre_hooks) == 1
        assert (bare[module] == module._forward_hooks) is (module is model[1]), "hooked anew where something else is wanted, and only there"
    output = model(torch.randn(2, 3, 4, requires_grad=True))
    output.square().sum().backward()
    assert told.calls == ["enter Sequential", "leave Sequential"]
    assert told.leaves == [(name, ["input[0]", "output"]) for name in ("0", "1", "2", "")]
    assert told.gradients == [("2", "grad output", (2, 3, 2)), ("", "grad output", (2, 3, 2)), ("1", "grad output", (2, 3, 8)),
                              ("0", "grad output", (2, 3, 8))]  # fmt: skip
    assert {len(tensors) for tensors in seen.found.values()} == {1} and len(seen.found) == 8
    seen.arm(False)
    assert all(bare[module] != module._forward_hooks or module is model[1] for module in model)
    model(torch.randn(2, 3, 4))
    assert len(told.calls) == 4 and {len(tensors) for tensors in seen.found.values()} == {1}
    seen.probe.detach()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_reader_goes_on_where_the_listener_failed_and_the_other_way_round() -> None:
    class Fails(Told):
        error: Exception | None = None

        def tap(self, entry: Entry, leaves: Leaves) -> None:
            raise ValueError("planted")

        def failed(self, error: Exception) -> None:
            self.error = error

    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    fails, seen = Fails(), Seen(model[0], model=model)
    seen.probe.attach(fails, deep=True, gradients=True)
    seen.arm()
    model(torch.randn(3, 4)).sum().backward()
    assert str(fails.error) == "planted" and not seen.probe.attached
    assert seen.one(0, GRADIENT).shape == (3, 8)

    class Refuses(Seen):
        errors = 0

        def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
            raise ValueError("planted")

        def failed(self, error: Exception) -> None:
            self.errors += 1

    told, refuses = Told(), Refuses(model[0], model=model)
    refuses.probe.attach(told, deep=True, gradients=True)
    refuses.arm()
    model(torch.randn(3, 4)).sum().backward()
    assert refuses.errors == 1 and not refuses.probe.is_read
    assert len(told.leaves) == len(told.gradients) == 3


def test_scripted_module_is_left_alone_and_its_call_is_told_by_the_module_around_it() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 2))
    told, seen = Told(), Seen(model[0], model[1], model=model)
    seen.probe.attach(told, deep=True, gradients=True)
    seen.arm()
    model(torch.randn(3, 4)).sum().backward()
    assert [name for name, _ in told.leaves] == ["1", ""]
    assert {layer for layer, _ in seen.found} == {1}


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
            seen.arm(bool(step % 2))
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
    eager = Seen(model[1], model[3], model[5], model=model)  # type: ignore[index]
    train(model, model, eager)
    model = build()
    seen = Seen(model[1], model[3], model[5], model=model)  # type: ignore[index]
    counter = CompileCounterWithBackend("aot_eager")
    got = train(model, compiled(model, counter), seen)
    assert counter.frame_count == 2, "one bare graph, one with taps"
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert seen.found.keys() == eager.found.keys() and len(seen.found) == 12
    for key, tensors in eager.found.items():
        assert len(tensors) == len(seen.found[key]) == 3
        for a, b in zip(tensors, seen.found[key], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_hooks_stand_in_one_order_in_the_ordered_dict_and_in_the_plain_one_inside() -> None:
    """torch 2.10 finds a hook for a graph's guards by its place in the plain dict."""
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda *_: None)
    keys = [new_id() for _ in range(3)]
    for key, first in zip(keys, (False, True, True), strict=True):
        hook_calls(module, key, Hook(print), Hook(print), always=False, first=first)
    hook_calls(module, keys[0], Hook(print), Hook(print), always=False, first=False)  # others in their place
    hooks: dict[int, object] = module._forward_hooks
    assert [key for key in hooks if key < 0] == [keys[2], keys[1], keys[0]]
    assert list(dict.keys(hooks)) == list(hooks)
    handle = module.register_forward_hook(lambda *_: None, prepend=True)  # by the script, later
    assert list(dict.keys(hooks)) == list(hooks) and next(iter(hooks)) == handle.id
