"""On or off, training computes bitwise the same: unusual modules, unusual loops."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from tests.harm.training import Notes, Run, Watch, assert_no_hooks, assert_same_under_every_watch

WIDTH = 6


class Shared(nn.Module):
    """One layer twice, its weight a third time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.again = self.layer
        self.head = nn.Linear(WIDTH, WIDTH)
        self.head.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.again(self.layer(x)))


class InPlace(nn.Module):
    """Changes a module's output in place, a view of it too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        h.add_(1).mul_(2)
        h[:, 0] = h[:, 1] + 2
        left, right = self.last(h).chunk(2, -1)
        return torch.cat([left * 2, right], -1)


class Drawing(nn.Module):
    """Draws from every generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x + torch.randn_like(x)) * random.random()
        return F.dropout(x, 0.3) + float(numpy.random.rand())


class Counting(nn.Module):
    """Buffers changed in place, replaced, and too large to be copied each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(WIDTH))
        self.register_buffer("large", torch.zeros(20_000))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.layer(x))
        self.count += 1
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        self.large += x.detach().mean()
        return x * self.average + self.large[:WIDTH] + self.count


class Recurrent(nn.Module):
    def __init__(self, cls: type[nn.Module]) -> None:
        super().__init__()
        self.cells = cls(WIDTH, WIDTH, num_layers=2, dropout=0.2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x.unsqueeze(1).repeat(1, 3, 1), [3] * (len(x) - 1) + [2], batch_first=True)
        out, _ = self.cells(packed)
        return self.head(nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0][:, -1])


class Attention(nn.Module):
    """Trains, and looks at itself in eval mode: the fast path takes nested tensors there."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).repeat(1, 3, 1)
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[0, 2:] = True
        training = self.training
        self.eval()
        with torch.no_grad():
            fast = self.encoder(x, src_key_padding_mask=padding)
        self.train(training)
        x = self.encoder(x, src_key_padding_mask=padding)
        return (x + fast + self.attention(x, x, x, need_weights=False)[0])[:, 0]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Recomputing(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2), nn.Tanh()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = Square.apply(self.first(x))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Generating(nn.Module):
    """Hands its work on through a generator and a dict with odd keys."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.sink = nn.Identity()

    def _outputs(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
            yield x

    def forward(self, x: Tensor) -> dict[Any, Any]:
        several = list(self.sink(self._outputs(x)))
        return {0: several[-1], ("a", 1): several[:-1], None: None}


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = self.layer(x)
        return self(x, depth - 1) if depth else x


def parametrized() -> nn.Module:
    layer = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(
        layer, parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)), parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
    )


def old_norms() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(spectral_norm(nn.Linear(WIDTH, WIDTH)), weight_norm(nn.Linear(WIDTH, WIDTH)))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(
            nn.Linear(WIDTH, WIDTH),
            torch.jit.script(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))),
            nn.Linear(WIDTH, WIDTH),
        )


def data_parallel() -> nn.Module:
    return nn.DataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2)))


def lazily() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(WIDTH), nn.LazyBatchNorm1d())


def frozen_part() -> nn.Module:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH))
    model[0].requires_grad_(False)
    model[1].eval()
    return model


def complex_part() -> nn.Module:
    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.waves = nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.irfft(torch.fft.rfft(x) * self.waves.conj(), n=WIDTH)

    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Waves())


class Compared(nn.Module):
    """Compares to its own kind alone, by value, and has a hash; what is asked of it by names that it does not have would raise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def __eq__(self, other: object) -> bool:
        return torch.equal(self.layer.weight, other.layer.weight)  # type: ignore[attr-defined]

    __hash__ = nn.Module.__hash__

    def __getattr__(self, name: str) -> Any:
        assert name in ("layer", "_forward_pre_hooks_with_kwargs", "_compiled_call_impl"), f"somebody asks for {name}"
        return super().__getattr__(name)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


def compared() -> nn.Module:
    return nn.Sequential(Compared(), nn.Tanh(), Compared())


MODELS: dict[str, Callable[[], nn.Module]] = {
    "compared by value": compared,
    "a model compared by value": Compared,
    "shared modules and weights": Shared,
    "in place": InPlace,
    "random numbers": Drawing,
    "buffers": Counting,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "attention": Attention,
    "checkpoint reentrant": lambda: Recomputing(True),
    "checkpoint": lambda: Recomputing(False),
    "parametrize": parametrized,
    "old norms": old_norms,
    "script": scripted,
    "data parallel": data_parallel,
    "frozen": frozen_part,
    "complex": complex_part,
    "generator": Generating,
    "recursive": Recursive,
}


def loss_of(output: Any) -> Tensor:
    return (output[0] if isinstance(output, dict) else output).pow(2).mean()


def plain_training(build: Callable[[], nn.Module]) -> Run:
    def run(watch: Watch, notes: Notes) -> None:
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with watch(model):
            for _ in range(3):
                optimizer.zero_grad()
                loss = loss_of(model(torch.randn(4, WIDTH)))
                loss.backward()
                notes.add("loss", loss)
                optimizer.step()
                notes.state(model, optimizer)
                with torch.no_grad():
                    notes.add("evaluated", loss_of(model(torch.randn(4, WIDTH))))
        assert_no_hooks(model)

    return run


@pytest.mark.parametrize("name", MODELS)
def test_module_trains_bitwise_the_same(name: str) -> None:
    assert_same_under_every_watch(plain_training(MODELS[name]))


def test_lazy_module_watched_before_its_first_call_trains_bitwise_the_same() -> None:
    def run(watch: Watch, notes: Notes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lazily()
        with watch(model):
            model(torch.randn(4, WIDTH))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            for _ in range(3):
                optimizer.zero_grad()
                loss_of(model(torch.randn(4, WIDTH))).backward()
                optimizer.step()
                notes.state(model, optimizer)

    assert_same_under_every_watch(run)


# ---- loops


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, 1))


def closures(watch: Watch, notes: Notes) -> None:
    model = _small().eval()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    x = torch.randn(4, WIDTH)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    with watch(model):
        for _ in range(3):
            notes.add("loss", optimizer.step(closure))
            notes.state(model, optimizer)


def by_hand(data: bool) -> Run:
    def run(watch: Watch, notes: Notes) -> None:
        model = _small()
        with watch(model):
            for _ in range(4):
                loss = model(torch.randn(4, WIDTH)).pow(2).mean()
                loss.backward()
                if data:
                    for p in model.parameters():
                        p.data -= 0.1 * p.grad.data
                else:
                    with torch.no_grad():
                        for p in model.parameters():
                            p -= 0.1 * p.grad
                model.zero_grad(set_to_none=not data)
                notes.add("loss", loss)
                notes.state(model)

    return run


def inside_backward(watch: Watch, notes: Notes) -> None:
    model = _small()
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def step(p: Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    with watch(model):
        for _ in range(3):
            model(torch.randn(4, WIDTH)).pow(2).mean().backward()
            notes.state(model, *optimizers.values())


def several_optimizers(watch: Watch, notes: Notes) -> None:
    model = _small()
    with watch(model):
        optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]
        for i in range(4):
            loss = model(torch.randn(4, WIDTH)).pow(2).mean()
            loss.backward(retain_graph=True)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=bool(i % 2))
            notes.state(model, *optimizers)
            model[0].requires_grad_(i % 2 == 0)


def functional(watch: Watch, notes: Notes) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    parameters = {k: v.detach().clone() for k, v in model.named_parameters()}

    def loss(given: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, given, (x,)).pow(2).mean()

    with watch(model):
        for _ in range(3):
            x = torch.randn(4, WIDTH)
            gradients = torch.func.grad(loss)(parameters, x)
            each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
            _, tangent = torch.func.jvp(partial(loss, parameters), (x,), (x,))
            hessian = torch.func.hessian(partial(loss, parameters))(x[:1])
            notes.add("gradients", [gradients, each, tangent, hessian])
            inner = {k: (v - 0.1 * gradients[k]).requires_grad_() for k, v in parameters.items()}
            notes.add("second", torch.autograd.grad(loss(inner, x), list(inner.values())))
            parameters = {k: v - 0.1 * gradients[k] for k, v in parameters.items()}
            model(x).sum().backward()
            notes.state(model)


def caught_and_resumed(watch: Watch, notes: Notes) -> None:
    model = _small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def explode(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with watch(model):
        for i in range(6):
            optimizer.zero_grad()
            handle = model[2].register_forward_pre_hook(explode) if i == 1 else None
            try:
                loss = model(torch.randn(4, WIDTH)).pow(2).mean()
                if i == 3:
                    loss.register_hook(explode)
                loss.backward()
                if i == 4:
                    explode()
                optimizer.step()
            except RuntimeError as error:
                notes.add("error", str(error))
            if handle is not None:
                handle.remove()
            notes.state(model, optimizer)


def direct_forward(watch: Watch, notes: Notes) -> None:
    model = _small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model):
        for _ in range(3):
            optimizer.zero_grad()
            model.forward(torch.randn(4, WIDTH)).pow(2).mean().backward()
            optimizer.step()
            notes.state(model, optimizer)


def modes_of_others(watch: Watch, notes: Notes) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = _small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model):
        for i in range(3):
            optimizer.zero_grad()
            with FlopCounterMode(display=False) as flops:
                loss = model(torch.randn(4, WIDTH)).pow(2).mean()
                if i:
                    loss.backward()
            if not i:
                with FlopCounterMode(display=False) as flops:
                    loss.backward()
            notes.add("flops", flops.get_total_flops())
            out = model(torch.randn(4, WIDTH))
            with FlopCounterMode(display=False), torch.device("cpu"), torch.autograd.set_detect_anomaly(True):
                out = out @ torch.ones(1, 3)
                (out.sum() + model(torch.randn(4, WIDTH)).sum()).backward()
            optimizer.step()
            notes.state(model, optimizer)


LOOPS: dict[str, Run] = {
    "lbfgs": closures,
    "by hand": by_hand(False),
    "by hand through data": by_hand(True),
    "optimizers inside backward": inside_backward,
    "several optimizers": several_optimizers,
    "functional": functional,
    "caught and resumed": caught_and_resumed,
    "direct forward": direct_forward,
    "other people's modes": modes_of_others,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loop_trains_bitwise_the_same(name: str) -> None:
    assert_same_under_every_watch(LOOPS[name])
