"""A module's own part in its input's gradient, against autograd on the module's call alone; and that watching it changes nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from numscope.probe import walk
from numscope.probe.dgrad import InputEdge, input_edge, watch_dgrad


class Call:
    """One watched call: what is needed to do it again alone, and what was seen of it."""

    def __init__(self, module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.name = module, name
        self.args, self.kwargs = copied((args, kwargs))
        self.seen: list[Tensor] = []
        self.gradients: dict[int, Tensor] = {}
        self.random = torch.get_rng_state()
        self.watched = False

    def alone(self) -> Tensor | None:
        """The gradient of the input that autograd gives for this call by itself, from the gradients that its outputs received."""
        torch.set_rng_state(self.random)
        args, kwargs = copied((self.args, self.kwargs))
        x = first(args, kwargs).requires_grad_()
        kept = x.clone() if any(getattr(m, "inplace", False) for m in self.module.modules()) else x
        if kept is not x:
            args = (kept, *args[1:])
        with torch.enable_grad():
            output = type(self.module).forward(self.module, *args, **kwargs)
        pairs = [(t, self.gradients[i]) for i, (_, t) in enumerate(walk.tensors(output, "")) if i in self.gradients]
        return torch.autograd.grad([t for t, _ in pairs], x, [g for _, g in pairs], allow_unused=True)[0]


def copied(value: Any, memo: dict[int, Tensor] | None = None) -> Any:
    """The same nest of new leaves; what was one tensor stays one."""
    memo = {} if memo is None else memo
    if isinstance(value, Tensor):
        return memo.setdefault(id(value), value.detach().clone())
    if isinstance(value, tuple | list):
        return type(value)(copied(v, memo) for v in value)
    return {k: copied(v, memo) for k, v in value.items()} if isinstance(value, dict) else value


def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return next(t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t.is_floating_point())


@contextmanager
def watched(model: nn.Module, chosen: Callable[[nn.Module], bool]) -> Iterator[list[Call]]:
    """Watch the dgrad of each call of some modules."""
    calls: list[Call] = []
    begun: list[Any] = []
    handles = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            begun.append((Call(module, names[module], args, kwargs), input_edge(first(args, kwargs))))

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        call, edge = begun.pop()
        calls.append(call)
        for i, (_, tensor) in enumerate(walk.tensors(output, "")):
            if tensor.requires_grad:
                tensor.register_hook(lambda g, i=i: call.gradients.__setitem__(i, g.clone()))
        call.watched = edge is not None and watch_dgrad(edge, output, lambda g: call.seen.append(g.clone()))

    names = {m: n for n, m in model.named_modules()}
    for module in names:
        if chosen(module):
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
    yield calls
    for handle in handles:
        handle.remove()


def assert_as_alone(calls: list[Call], exact: bool = True) -> None:
    assert calls
    for call in calls:
        if call.watched and call.seen:
            expected = call.alone()
            assert expected is not None and len(call.seen) == 1, call.name
            if exact:
                assert torch.equal(call.seen[0], expected), call.name
            else:
                torch.testing.assert_close(call.seen[0], expected, rtol=1e-12, atol=1e-15, msg=call.name)


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


class Attention(nn.Module):
    """Three projections of one input, and a residual: the input's gradient has four parts."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.o(functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


def test_dgrad_of_each_projection_is_its_own_part() -> None:
    model = nn.Sequential(Attention(), Attention())
    with watched(model, is_linear) as calls:
        model(torch.randn(2, 5, 8, requires_grad=True)).square().sum().backward()
    assert [c.name for c in calls if len(c.seen) == 1] == [f"{i}.{p}" for i in (0, 1) for p in "qkvo"]
    assert_as_alone(calls)
    q, k = calls[4].seen[0], calls[5].seen[0]
    assert not torch.equal(q, k)


def test_parts_of_all_consumers_add_up_to_the_inputs_gradient() -> None:
    model = Attention()
    x = torch.randn(2, 5, 8, requires_grad=True)
    with watched(model, is_linear) as calls:
        y = model(x)
        y.square().sum().backward()
    parts = [c.seen[0] for c in calls if c.name in "qkv"]
    torch.testing.assert_close(sum(parts) + 2 * y.detach(), x.grad, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Flatten(0, 1), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Flatten(0, 0), nn.Dropout(0.5), nn.LayerNorm(8)),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.GLU(), nn.Linear(4, 8)),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.RNN(8, 8, batch_first=True), First(), nn.Linear(8, 2)),
        lambda: nn.Sequential(nn.Unflatten(-1, (2, 4)), nn.Conv2d(5, 3, 1), nn.BatchNorm2d(3), nn.Hardswish(inplace=True)),
    ],
    ids=["in place", "view and dropout", "glu", "encoder layer", "rnn", "convolution"],
)
def test_dgrad_is_that_of_the_call_alone(build: Callable[[], nn.Module]) -> None:
    model = build()
    with watched(model, lambda m: not isinstance(m, nn.Sequential | First)) as calls:
        model(torch.randn(2, 5, 8, requires_grad=True)).square().sum().backward()
    assert any(c.seen for c in calls)
    assert all(c.seen for c in calls if c.gradients and c.watched)
    assert_as_alone(calls, exact=not isinstance(model, nn.TransformerEncoderLayer))


class First(nn.Module):
    def forward(self, x: tuple[Tensor, ...]) -> Tensor:
        return x[0]


def test_unused_output_does_not_hold_back_the_dgrad_of_the_others() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x.sin(), x.cos(), x.exp()

    model = Two()
    with watched(model, lambda m: True) as calls:
        a, _, c = model(torch.randn(3, requires_grad=True) * 1)
        (a + c).sum().backward()
    assert_as_alone(calls)
    assert len(calls[0].seen) == 1


def test_identity_has_its_outputs_gradient_as_dgrad() -> None:
    for x in (torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True) * 2):
        seen: list[Tensor] = []
        assert watch_dgrad(InputEdge(x, 0), x, seen.append)
        (x * 3).sum().backward()
        assert [s.tolist() for s in seen] == [[3.0] * 3]
        assert not (x.is_leaf and x._backward_hooks), "the hook stays with a leaf"


def test_input_that_needs_no_gradient_is_not_watched() -> None:
    layer = nn.Linear(2, 2)
    x = torch.randn(2)
    assert input_edge(x) is None
    y = torch.randn(2, requires_grad=True)
    with torch.no_grad():
        assert input_edge(y) is None
    assert not watch_dgrad(InputEdge(y, 0), layer(y.detach()), lambda g: None)


def test_second_input_that_depends_on_the_first_is_not_followed() -> None:
    """The part that comes through the other argument is the work of modules before."""
    bilinear = nn.Bilinear(3, 3, 3)
    x = torch.randn(4, 3, requires_grad=True) * 1
    other = x.sin()
    with watched(bilinear, lambda m: True) as calls:
        bilinear(x, other).sum().backward()
    assert_as_alone(calls)
    assert len(calls[0].seen) == 1


def test_input_changed_in_place_is_found_by_the_edge_from_before() -> None:
    x = torch.randn(5, requires_grad=True) * 1
    edge = input_edge(x)
    assert edge is not None
    seen: list[Tensor] = []
    y = x.relu_()
    assert watch_dgrad(edge, y, seen.append)
    positive = (y > 0).double()
    (y * 3).sum().backward()
    assert torch.equal(seen[0], 3 * positive)


def test_view_changed_in_place_has_no_edge_of_its_own_any_more() -> None:
    """Autograd then routes the gradient through the base; what is the view's part can't be told."""
    base = torch.randn(2, 4, requires_grad=True) * 1
    x = base[0]
    edge = input_edge(x)
    assert edge is not None
    seen: list[Tensor] = []
    y = x.mul_(2).sin()
    assert not watch_dgrad(edge, y, seen.append)
    y.sum().backward()
    assert seen == []


@pytest.mark.parametrize("reentrant", [False, True])
def test_dgrad_inside_a_checkpoint_is_seen_once(reentrant: bool) -> None:
    block = Attention()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block
            self.head = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))

    model = Model()
    x = torch.randn(2, 5, 8, requires_grad=True)
    with watched(model, is_linear) as calls:
        model(x).square().sum().backward()
    seen = [c for c in calls if c.seen]
    assert sorted(c.name for c in seen) == ["block.k", "block.o", "block.q", "block.v", "head"]
    assert_as_alone(calls)


def test_module_around_a_reentrant_checkpoint_is_seen() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Attention()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.block, x, use_reentrant=True)

    model = Around()
    x = torch.randn(2, 5, 8, requires_grad=True)
    with watched(model, lambda m: m is model) as calls:
        (model(x * 1) + x).square().sum().backward()
    assert len(calls[0].seen) == 1
    total = x.grad.clone()
    residual = 2 * (model(x) + x).detach()
    torch.testing.assert_close(calls[0].seen[0] + residual, total, rtol=1e-12, atol=1e-12)


def test_autocast_gives_each_consumer_of_a_leaf_its_own_part() -> None:
    """Autocast casts a leaf once for all its consumers; a post-norm block in a reentrant checkpoint gets such leaves."""
    torch.set_default_dtype(torch.float32)
    q, k = nn.Linear(8, 8), nn.Linear(8, 8)
    for leaf in (True, False):
        x = torch.randn(4, 8, requires_grad=True)
        h = x if leaf else x * 1
        seen: dict[str, Tensor] = {}
        with torch.autocast("cpu", torch.bfloat16):
            outputs = {}
            for name, layer in (("q", q), ("k", k)):
                edge = input_edge(h)
                assert edge is not None
                outputs[name] = layer(h)
                assert watch_dgrad(edge, outputs[name], partial(seen.__setitem__, name))
        (outputs["q"].float().sum() + 3 * outputs["k"].float().sum()).backward()
        for name, layer, scale in (("q", q, 1.0), ("k", k, 3.0)):
            gradient = torch.full((4, 8), scale, dtype=torch.bfloat16)
            assert torch.equal(seen[name].float(), (gradient @ layer.weight.detach().bfloat16()).float()), (name, leaf)


def test_two_backwards_through_one_graph_tell_twice() -> None:
    model = Attention()
    x = torch.randn(2, 5, 8, requires_grad=True)
    seen: list[Tensor] = []
    y = model(x)
    assert watch_dgrad(InputEdge(x, 0), y, seen.append)
    y.sum().backward(retain_graph=True)
    (2 * y).sum().backward()
    assert len(seen) == 2
    torch.testing.assert_close(2 * seen[0], seen[1])


def test_backward_that_fails_midway_leaves_nothing_for_the_next() -> None:
    x = torch.randn(3, requires_grad=True)
    fail = True

    def maybe(_: Any) -> None:
        if fail:
            raise RuntimeError("planted")

    a, b = x.sin(), x.cos()
    a.grad_fn.register_prehook(maybe)  # type: ignore[union-attr]
    seen: list[Tensor] = []
    assert watch_dgrad(InputEdge(x, 0), (a, b), seen.append)
    with pytest.raises(RuntimeError, match="planted"):
        (a + b).sum().backward(retain_graph=True)
    fail = False
    (a + b).sum().backward()
    expected = x.detach().cos() - x.detach().sin()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], expected)


def test_gradients_of_gradients_are_seen_detached() -> None:
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    seen: list[Tensor] = []
    y = layer(x).tanh()
    assert watch_dgrad(InputEdge(x, 0), y, seen.append)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert seen and not any(s.requires_grad for s in seen)
    assert torch.equal(seen[0], gradient.detach())


def test_undefined_gradient_tells_nothing() -> None:
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> None:
            return None

    x = torch.randn(3, requires_grad=True)
    seen: list[Tensor] = []
    y = Cut.apply(x)
    assert watch_dgrad(InputEdge(x, 0), y, seen.append)
    y.sum().backward()
    assert seen == []


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


def test_graph_and_tensors_die_when_they_would_have() -> None:
    layer = nn.Linear(4, 4)
    gc.collect()
    gc.disable()
    try:
        x = torch.randn(2, 4, requires_grad=True) * 1
        edge = input_edge(x)
        assert edge is not None
        ours = Twice.apply(x)  # its node is a Python object, so that its death can be seen
        y = layer(ours)
        numbers: list[float] = []
        assert watch_dgrad(edge, (y, y.sin()), lambda g: numbers.append(g.abs().max().item()))
        dead = [weakref.ref(x), weakref.ref(y), weakref.ref(ours.grad_fn)]
        loss = y.sum()
        del x, ours, y, edge
        loss.backward()
        del loss
        assert numbers
        assert [r() for r in dead] == [None] * 3
    finally:
        gc.enable()


def test_dgrad_under_ddp_is_that_of_the_call_alone(one_rank: None) -> None:
    model = Attention()
    wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    with watched(model, is_linear) as calls:
        for _ in range(2):
            wrapped(torch.randn(2, 5, 8, requires_grad=True)).square().sum().backward()
    assert [len(c.seen) for c in calls] == [1] * 8
    assert_as_alone(calls)


def llama() -> tuple[nn.Module, dict[str, Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    ids = torch.randint(1, 50, (2, 6))
    return transformers.LlamaForCausalLM(config).double(), {"input_ids": ids, "labels": ids}


def t5() -> tuple[nn.Module, dict[str, Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0, dropout_rate=0.1
    )
    ids = torch.randint(1, 50, (2, 6))
    return transformers.T5ForConditionalGeneration(config).double(), {"input_ids": ids, "labels": ids}


@pytest.mark.parametrize("build", [llama, t5])
def test_dgrad_of_every_linear_of_a_real_model_is_that_of_the_call_alone(build: Callable[[], tuple[nn.Module, dict[str, Tensor]]]) -> None:
    model, inputs = build()
    model.train()
    torch.manual_seed(1)
    model(**inputs).loss.backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    torch.manual_seed(1)
    with watched(model, is_linear) as calls:
        model(**inputs).loss.backward()
    assert all(torch.equal(p.grad, expected[n]) for n, p in model.named_parameters()), "watching changed the run"
    assert len(calls) > 10 and all(c.seen for c in calls)
    assert_as_alone(calls)
