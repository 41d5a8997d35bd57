"""Layers inside whole graphs: what is seen is what an eager run shows, no graph is made twice, and the run computes the same."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from numscope.probe.compiled_layers import enroll, tap_dgrad, tap_forward, tap_gradient
from numscope.probe.dynamo import prepare_dynamo, release_dynamo
from numscope.probe.module import Hook

ACTIVATION, OUTPUT, GRADIENT, DGRAD = range(4)


class Probe:
    """Observes four tensors of each layer: in eager by tensor hooks, in graphs by taps. Off means no hook."""

    def __init__(self, layers: Mapping[str, nn.Module], dgrad: bool = True) -> None:
        self.layers = dict(layers)
        self.dgrad = dgrad
        self.seen: dict[tuple[str, int], list[Tensor]] = {}
        self.tally_id = enroll(self)
        self.handles: list[Any] = []

    def observe(self, site: int, tensor: Tensor) -> None:
        self.seen.setdefault((list(self.layers)[site // 4], site % 4), []).append(tensor.clone())

    def arm(self) -> None:
        for i, layer in enumerate(self.layers.values()):
            if self.dgrad:
                self.handles.append(layer.register_forward_pre_hook(Hook(self.before, 4 * i)))
            self.handles.append(layer.register_forward_hook(Hook(self.after, 4 * i), prepend=True))

    def disarm(self) -> None:
        while self.handles:
            self.handles.pop().remove()

    def before(self, first: int, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if torch.compiler.is_compiling():
            return (tap_dgrad(self.tally_id, first + DGRAD, args[0]), *args[1:])
        return None

    def after(self, first: int, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if torch.compiler.is_compiling():
            tap_forward(self.tally_id, first + ACTIVATION, args[0])
            tap_forward(self.tally_id, first + OUTPUT, output)
            tap_gradient(self.tally_id, first + GRADIENT, output)
        else:
            self.observe(first + ACTIVATION, args[0].detach())
            self.observe(first + OUTPUT, output.detach())
            output.register_hook(lambda g: self.observe(first + GRADIENT, g))


class Block(nn.Module):
    """Siblings that share an input, a residual, an activation that works in place."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        h = functional.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h))
        return x + self.drop(self.act(self.o(h.flatten(0, 1)))).view_as(x)


@pytest.fixture(autouse=True)
def _dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    prepare_dynamo()
    yield
    release_dynamo()
    torch._dynamo.reset()


def build(depth: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(depth)), nn.Linear(8, 1))


def linears(model: nn.Module) -> dict[str, nn.Module]:
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}


def train(model: nn.Module, call: Callable[[Tensor], Tensor], probe: Probe | None, steps: int = 6, parts: int = 1) -> list[Tensor]:
    """Losses and gradients of some steps; the probe is armed on every second one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    found: list[Tensor] = []
    for step in range(steps):
        if probe is not None and step % 2:
            probe.arm()
        losses = [call(torch.randn(2, 5, 8)).square().mean() for _ in range(parts)]
        for loss in losses:
            loss.backward()
        found += [*(loss.detach() for loss in losses), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        if probe is not None:
            probe.disarm()
        optimizer.step()
        optimizer.zero_grad()
    return found


def whole(model: nn.Module, backend: Any = "aot_eager") -> Any:
    return torch.compile(model, backend=backend, fullgraph=True, dynamic=False)


def assert_equal(got: list[Tensor], expected: list[Tensor]) -> None:
    assert len(got) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_training_is_bitwise_the_same_and_each_graph_is_made_once(backend: str) -> None:
    model = build(1 if backend == "inductor" else 2)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    expected = train(model, whole(model, backend), None)
    model.load_state_dict(start)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    probe = Probe(linears(model))
    got = train(model, whole(model, counter), probe)
    assert_equal(got, expected)
    assert counter.frame_count == 2, "one bare graph, one with taps"
    assert {len(v) for v in probe.seen.values()} == {3}
    assert {kind for _, kind in probe.seen} == {ACTIVATION, OUTPUT, GRADIENT, DGRAD}


def test_what_is_seen_is_what_an_eager_run_shows() -> None:
    model = build()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    eager = Probe(linears(model))
    train(model, model, eager)
    model.load_state_dict(start)
    probe = Probe(linears(model))
    train(model, whole(model), probe)
    for key, tensors in eager.seen.items():
        assert len(tensors) == len(probe.seen[key]), key
        for a, b in zip(tensors, probe.seen[key], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_dgrad_is_the_layers_own_part() -> None:
    model = build(1)
    model.eval()  # dropout off
    probe = Probe(linears(model))
    probe.arm()
    whole(model)(torch.randn(2, 5, 8, requires_grad=True)).square().mean().backward()
    assert len(probe.layers) == 5
    for name, layer in probe.layers.items():
        (gradient,), (dgrad,) = probe.seen[name, GRADIENT], probe.seen[name, DGRAD]
        torch.testing.assert_close(dgrad, gradient @ layer.weight.detach())  # type: ignore[operator]


def test_micro_batches_and_regions_share_an_observer() -> None:
    """Two forwards before two backwards, two graphs: nothing that the operator does counts as a change in place."""
    model = build()
    expected = train(model, model, None, parts=2)
    model = build()
    probe = Probe(linears(model))
    regions = nn.Sequential(*(whole(child) for child in model))
    got = train(model, regions, probe, parts=2)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert {len(v) for v in probe.seen.values()} == {6}


def test_second_backward_through_a_kept_graph_is_told_again() -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh())
    probe = Probe({"layer": layer})
    probe.arm()
    loss = whole(model)(torch.randn(2, 4)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert len(probe.seen["layer", OUTPUT]) == 1
    a, b = probe.seen["layer", GRADIENT]
    assert torch.equal(a, b)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.block = Block()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_in_a_graph_is_not_told(reentrant: bool) -> None:
    model = Checkpointed(reentrant)
    probe = Probe(linears(model))
    probe.arm()
    whole(model)(torch.randn(2, 5, 8, requires_grad=True)).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {1}
    assert len(probe.seen) == 16


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_around_a_graph_is_not_told(reentrant: bool) -> None:
    model = Block()
    probe = Probe(linears(model))
    probe.arm()
    checkpoint(whole(model), torch.randn(2, 5, 8, requires_grad=True), use_reentrant=reentrant).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {1}
    assert len(probe.seen) == 16


def test_graph_without_gradients_shows_its_forward() -> None:
    layer = nn.Linear(4, 4)
    probe = Probe({"layer": layer})
    probe.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    with torch.no_grad():
        call(torch.randn(2, 4))
    assert {kind for _, kind in probe.seen} == {ACTIVATION, OUTPUT}


def test_layer_that_is_called_twice_is_seen_twice() -> None:
    layer = nn.Linear(4, 4)
    probe = Probe({"layer": layer})
    probe.arm()
    whole(nn.Sequential(layer, nn.Tanh(), layer))(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {2}


def test_autocast_in_a_graph_shows_low_precision_tensors() -> None:
    layer = nn.Linear(4, 4)
    probe = Probe({"layer": layer})
    probe.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    with torch.autocast("cpu", torch.bfloat16):
        y = call(torch.randn(2, 4))
    y.float().sum().backward()
    assert probe.seen["layer", OUTPUT][0].dtype == probe.seen["layer", GRADIENT][0].dtype == torch.bfloat16


def test_graph_whose_observer_is_gone_runs_on() -> None:
    layer = nn.Linear(4, 4)
    probe = Probe({"layer": layer})
    handle = layer.register_forward_hook(Tap(probe.tally_id))
    call = whole(layer)
    call(torch.randn(2, 4))
    assert len(probe.seen["layer", OUTPUT]) == 1
    del probe
    gc.collect()
    call(torch.randn(2, 4)).sum().backward()
    handle.remove()


class Tap:
    def __init__(self, tally_id: int) -> None:
        self.tally_id = tally_id

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> None:
        if torch.compiler.is_compiling():
            tap_forward(self.tally_id, OUTPUT, output)


def test_observer_that_raises_is_dropped_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def observe(self, site: int, tensor: Tensor) -> None:
            raise ValueError("planted")

    broken = Broken()
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(Tap(enroll(broken)))
    call = whole(layer)
    for _ in range(2):
        call(torch.randn(2, 4)).sum().backward()
    assert [r.getMessage() for r in caplog.records if r.name == "numscope"] == [
        "inside a compiled graph nothing is observed any more: ValueError: planted"
    ]


def test_observer_gets_an_object_of_its_own_each_time() -> None:
    """Compiled code writes new values into one tensor object untold by its version; who remembers objects would take them for seen."""
    objects: list[Tensor] = []

    class Keeps:
        def observe(self, site: int, tensor: Tensor) -> None:
            objects.append(tensor)

    keeps, x = Keeps(), torch.zeros(2)
    number = enroll(keeps)
    for _ in range(2):
        torch.ops.numscope.tally(x, number, 0, False)
    assert len({id(o) for o in (x, *objects)}) == 3
    assert all(o.data_ptr() == x.data_ptr() for o in objects)


def test_observers_have_numbers_of_their_own() -> None:
    layers = {"a": nn.Linear(2, 2)}
    assert Probe(layers).tally_id != Probe(layers).tally_id


def test_the_operator_passes_torchs_own_checks() -> None:
    probe = Probe({"a": nn.Linear(2, 2)})
    for gradient in (False, True):
        arguments = (torch.randn(3, 4), probe.tally_id, 0, gradient)
        torch.library.opcheck(torch.ops.numscope.tally.default, arguments, test_utils=("test_schema", "test_faketensor"))
