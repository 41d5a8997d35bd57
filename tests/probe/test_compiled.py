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

from numscope.probe.compiled import Graphs
from numscope.probe.dynamo import prepare_dynamo, release_dynamo
from numscope.probe.entry import Entry, LayerSites, Leaves
from numscope.probe.module import ModuleProbe
from numscope.records.site import Phase

ACTIVATION, OUTPUT, GRADIENT, DGRAD = range(4)


class Seen:
    """Shown four tensors of each layer while it is armed; off means no hook."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self.layers = dict(layers)
        self.seen: dict[tuple[str, int], list[Tensor]] = {}
        self.probe = ModuleProbe(next(iter(self.layers.values())))
        self.error: Exception | None = None

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        found = self.seen.setdefault((list(self.layers)[site // 4], site % 4), [])
        found.append(tensor.reshape(tensor.shape if shape is None else shape).clone())

    def failed(self, error: Exception) -> None:
        self.error = error

    def arm(self) -> None:
        sites = {layer: LayerSites(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3) for i, layer in enumerate(self.layers.values())}
        self.probe.arm(sites, self)

    def disarm(self) -> None:
        self.probe.disarm()


class Block(nn.Module):
    """Siblings that share an input, a residual, an activation that works in place."""

    def __init__(self, width: int = 8, attends: bool = False) -> None:
        super().__init__()
        self.attends = attends
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = self.q(h), self.k(h), self.v(h)
        h = functional.scaled_dot_product_attention(q, k, v) if self.attends else q * k + v
        return x + self.drop(self.act(self.o(h.flatten(0, 1)))).view_as(x)


@pytest.fixture(autouse=True)
def _dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    prepare_dynamo()
    yield
    release_dynamo()
    torch._dynamo.reset()


def build(attends: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(attends=attends), nn.Linear(8, 1))


def linears(model: nn.Module) -> dict[str, nn.Module]:
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}


def train(model: nn.Module, call: Callable[[Tensor], Tensor], probe: Seen | None, steps: int = 6, parts: int = 1) -> list[Tensor]:
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
    small = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    model = small if backend == "inductor" else build()  # inductor's compiler takes seconds for each kernel
    start = {k: v.clone() for k, v in model.state_dict().items()}
    expected = train(model, whole(model, backend), None)
    model.load_state_dict(start)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    probe = Seen(linears(model))
    got = train(model, whole(model, counter), probe)
    assert_equal(got, expected)
    assert counter.frame_count == 2, "one bare graph, one with taps"
    assert {len(v) for v in probe.seen.values()} == {3}
    assert {kind for _, kind in probe.seen} == {ACTIVATION, OUTPUT, GRADIENT, DGRAD}


def test_what_is_seen_is_what_an_eager_run_shows() -> None:
    model = build(attends=True)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    eager = Seen(linears(model))
    train(model, model, eager)
    model.load_state_dict(start)
    probe = Seen(linears(model))
    train(model, whole(model), probe)
    for key, tensors in eager.seen.items():
        assert len(tensors) == len(probe.seen[key]), key
        for a, b in zip(tensors, probe.seen[key], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_dgrad_is_the_layers_own_part() -> None:
    model = build()
    model.eval()  # dropout off
    probe = Seen(linears(model))
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
    probe = Seen(linears(model))
    regions = nn.Sequential(*(whole(child) for child in model))
    got = train(model, regions, probe, parts=2)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert {len(v) for v in probe.seen.values()} == {6}


def test_second_backward_through_a_kept_graph_is_told_again() -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh())
    probe = Seen({"layer": layer})
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
    probe = Seen(linears(model))
    probe.arm()
    whole(model)(torch.randn(2, 5, 8, requires_grad=True)).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {1}
    assert len(probe.seen) == 16


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_around_a_graph_is_not_told(reentrant: bool) -> None:
    model = Block()
    probe = Seen(linears(model))
    probe.arm()
    checkpoint(whole(model), torch.randn(2, 5, 8, requires_grad=True), use_reentrant=reentrant).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {1}
    assert len(probe.seen) == 16


def test_graph_without_gradients_shows_its_forward() -> None:
    layer = nn.Linear(4, 4)
    probe = Seen({"layer": layer})
    probe.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    with torch.no_grad():
        call(torch.randn(2, 4))
    assert {kind for _, kind in probe.seen} == {ACTIVATION, OUTPUT}


def test_layer_that_is_called_twice_is_seen_twice() -> None:
    layer = nn.Linear(4, 4)
    probe = Seen({"layer": layer})
    probe.arm()
    whole(nn.Sequential(layer, nn.Tanh(), layer))(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert {len(v) for v in probe.seen.values()} == {2}


def test_autocast_in_a_graph_shows_low_precision_tensors() -> None:
    layer = nn.Linear(4, 4)
    probe = Seen({"layer": layer})
    probe.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    with torch.autocast("cpu", torch.bfloat16):
        y = call(torch.randn(2, 4))
    y.float().sum().backward()
    assert probe.seen["layer", OUTPUT][0].dtype == probe.seen["layer", GRADIENT][0].dtype == torch.bfloat16


def test_gradient_of_an_input_that_a_layer_returns_as_it_is_is_seen() -> None:
    layer = nn.Dropout(0.0)
    probe = Seen({"layer": layer})
    probe.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    for _ in range(2):
        call(torch.zeros(2, 4, requires_grad=True) * 1).sum().backward()
    assert [g.tolist() for g in probe.seen["layer", GRADIENT]] == [torch.ones(2, 4).tolist()] * 2


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * self.weight, self.weight


def test_hooks_on_a_parameter_that_is_returned_do_not_pile_up() -> None:
    model = Weighted()
    told = Told()
    probe = ModuleProbe(model)
    probe.attach(told, deep=True, gradients=True)
    call = whole(model)
    for _ in range(3):
        y, w = call(torch.ones(3))
        (y.sum() + w.sum()).backward()
    assert not model.weight._backward_hooks
    assert [slot for _, slot, _ in told.gradients] == ["grad output[0]"] * 3


class Told:
    """A listener, and what it was told."""

    def __init__(self) -> None:
        self.leaves: list[tuple[str, list[tuple[str, Any]]]] = []
        self.gradients: list[tuple[str, str, Tensor]] = []

    def enter(self, module: nn.Module, entry: Entry, args: Any, kwargs: Any) -> None: ...

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None: ...

    def tap(self, entry: Entry, leaves: Leaves) -> None:
        self.leaves.append((entry.name, [(slot, x.detach().clone() if isinstance(x, Tensor) else x) for slot, x in leaves]))

    def gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None = None) -> None:
        self.gradients.append((entry.name, slot, gradient.reshape(gradient.shape if shape is None else shape).clone()))

    def failed(self, error: Exception) -> None:
        raise error


class Nested(nn.Module):
    """Keyword arguments, nothing among the inputs, a dict for an output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, bias: Tensor) -> dict[str, Any]:
        return {"states": [self.layer(x) + bias, x.sum(-1).long()], "mask": mask, "name": "nested"}


class Outer(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.first, self.nested, self.block = nn.Embedding(5, 8), Nested(), block

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.nested(self.first(ids), None, bias=torch.ones(8))["states"][0]
        y: Tensor = self.block(found).square().mean()
        return y


@pytest.mark.parametrize(("dynamic", "backend"), [(False, "aot_eager"), (True, "inductor")])
def test_listener_is_told_in_graphs_what_it_is_told_in_eager(backend: str, dynamic: bool) -> None:
    def run(compiled: bool) -> tuple[Told, list[Tensor]]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        told, block = Told(), Block()
        block.drop.p = 0.0
        model = Outer(nn.LayerNorm(8) if backend == "inductor" else block)  # whose compiler takes seconds for each kernel
        probe = ModuleProbe(model)
        probe.attach(told, deep=True, gradients=True)
        call = torch.compile(model, backend=counter, fullgraph=True, dynamic=dynamic) if compiled else model
        for i in range(3):
            call(torch.tensor([[0, 1, 2, 3][: 4 - i if dynamic else 4]] * 2)).backward()
            made.append(counter.frame_count)
        return told, [p.grad.clone() for p in model.parameters() if p.grad is not None]

    counter, made = CompileCounterWithBackend(backend), list[int]()
    (expected, gradients), (got, same) = run(False), run(True)
    assert made[3:] == [made[3]] * 3, "compiled again each step"
    for a, b in zip(same, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert [name for name, _ in got.leaves] == [name for name, _ in expected.leaves]
    for (_, leaves), (_, wanted) in zip(got.leaves, expected.leaves, strict=True):
        assert [slot for slot, _ in leaves] == [slot for slot, _ in wanted]
        for (_, a), (_, b) in zip(leaves, wanted, strict=True):
            if isinstance(b, Tensor):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
            else:
                assert (a is None) is (b is None) and not isinstance(a, Tensor)
    key = lambda told: (told[0], told[1])  # noqa: E731
    assert sorted(map(key, got.gradients)) == sorted(map(key, expected.gradients))
    for a, b in zip(sorted(got.gradients, key=key), sorted(expected.gradients, key=key), strict=True):
        assert a[2].shape == b[2].shape


# ---- the operator


class Keeps:
    """Receives, and keeps what it received."""

    is_read = True

    def __init__(self) -> None:
        self.shown: list[tuple[int, Tensor]] = []
        self.leaves: list[Leaves] = []

    def tell(self, entry: Entry, leaves: Leaves) -> None:
        self.leaves.append(leaves)

    def tell_gradient(self, entry: Entry, slot: str, gradient: Tensor) -> None:
        self.leaves.append([(slot, gradient)])

    def show(self, site: int, tensor: Tensor) -> None:
        self.shown.append((site, tensor))


ENTRY = Entry("layer", "Linear")


def test_place_that_is_traced_again_is_the_same_place() -> None:
    graphs = Graphs(Keeps())
    first = graphs.place(ENTRY, Phase.FORWARD, True, (("output", "", "3"),))
    assert graphs.place(ENTRY, Phase.FORWARD, True, (("output", "", "4"),)) != first
    assert graphs.place(ENTRY, Phase.FORWARD, True, (("output", "", "3"),)) == first
    assert len(graphs.places) == 2


def test_operator_hands_over_leaves_and_what_is_no_tensor() -> None:
    keeps = Keeps()
    graphs = Graphs(keeps)
    slots = (("input[0]", "", ""), ("input[1]", "None", ""), ("input[2]", "not a tensor", ""), ("output", "", "7"))
    x, y = torch.zeros(2), torch.ones(2)
    torch.ops.numscope.tap([x, y], graphs._number, graphs.place(ENTRY, Phase.FORWARD, True, slots), False)
    torch.ops.numscope.tap([x], graphs._number, graphs.place(ENTRY, Phase.BACKWARD, True, (("grad output", "", "8"),)), True)
    assert [[(slot, x.tolist() if isinstance(x, Tensor) else x) for slot, x in leaves] for leaves in keeps.leaves] == [
        [("input[0]", [0, 0]), ("input[1]", None), ("input[2]", "not a tensor"), ("output", [1, 1])],
        [("grad output", [0, 0])],
    ]
    assert [(site, x.tolist()) for site, x in keeps.shown] == [(7, [1, 1]), (8, [0, 0])]


def test_operator_gives_an_object_of_its_own_each_time() -> None:
    """Compiled code writes new values into one tensor object untold by its version; who remembers objects would take them for seen."""
    keeps, x = Keeps(), torch.zeros(2)
    graphs = Graphs(keeps)
    for _ in range(2):
        torch.ops.numscope.tap([x], graphs._number, graphs.place(ENTRY, Phase.FORWARD, False, (("output", "", "0"),)), False)
    assert len({id(o) for o in (x, *(o for _, o in keeps.shown))}) == 3
    assert all(o.data_ptr() == x.data_ptr() for _, o in keeps.shown)


def test_graph_whose_probe_is_gone_runs_on() -> None:
    graphs = Graphs(Keeps())
    number = graphs._number
    del graphs
    gc.collect()
    call = torch.compile(lambda x: torch.ops.numscope.tap([x], number, 0, False) or x + 1, backend="aot_eager", fullgraph=True)
    assert call(torch.zeros(2)).tolist() == [1, 1]
    assert Graphs(Keeps())._number > number


def test_reader_that_raises_is_dropped_and_the_run_goes_on() -> None:
    class Broken(Seen):
        def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
            raise ValueError("planted")

    layer = nn.Linear(4, 4)
    broken = Broken({"layer": layer})
    broken.arm()
    call = whole(nn.Sequential(layer, nn.Tanh()))
    for _ in range(2):
        call(torch.randn(2, 4)).sum().backward()
    assert str(broken.error) == "planted"
    assert not layer._forward_hooks


def test_the_operator_passes_torchs_own_checks() -> None:
    graphs = Graphs(Keeps())
    place = graphs.place(ENTRY, Phase.FORWARD, False, (("output", "", "0"),))
    for gradient in (False, True):
        arguments = ([torch.randn(3, 4)], graphs._number, place, gradient)
        torch.library.opcheck(torch.ops.numscope.tap.default, arguments, test_utils=("test_schema", "test_faketensor"))
