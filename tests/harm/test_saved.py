"""What is pickled, copied or saved of a watched model is, byte for byte, what is pickled, copied or saved of a bare one."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.hooks import RemovableHandle

import numscope
from numscope.config.options import WatchOptions
from numscope.scope.autowatch import AutoWatch
from tests.harm.training import assert_no_hooks

STATISTIC = {"enabled": True, "tensors": ["activation", "gradient", "dgrad", "weight", "wgrad"], "stats": ["max"]}
STATISTICS = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": STATISTIC}}


def double(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
    return (2 * args[0],)


def nothing(*_: Any) -> None: ...


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Own(Net):
    """Describes its state by itself, as a LightningModule does."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "extra": None}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4))


def with_hooks() -> nn.Module:
    model = mlp()
    model[0].register_forward_pre_hook(double)
    model[3].register_forward_hook(nothing, with_kwargs=True, always_call=True)
    model.register_forward_hook(nothing)
    return model


def spectral() -> nn.Module:
    return nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(4, 4)), nn.Tanh())


def weight_norm() -> nn.Module:
    return nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)


def traced() -> nn.Module:
    return torch.fx.symbolic_trace(mlp())


def compiled() -> nn.Module:
    model = Net()
    model.compile(backend="eager")
    return model


MODELS = [mlp, with_hooks, spectral, weight_norm, transformer, traced, compiled, Own]
WATCHES = {
    "detection": {},
    "statistics": {"config": STATISTICS, "on_nonfinite": None},
    "both": {"config": STATISTICS},
}


def saved(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def pickled(thing: Any, protocol: int) -> bytes:
    """As ``pickle.dumps``, without the addresses of storages."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> str | None:
            return f"storage of {item.nbytes()} bytes" if type(item).__name__ == "TypedStorage" else None

    file = io.BytesIO()
    Pickler(file, protocol).dump(thing)
    return file.getvalue()


def attempt(write: Callable[..., Any], *args: Any) -> Any:
    """What it writes, or the error that it raises: torch refuses to pickle or to copy some models."""
    try:
        return write(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def train(build: Callable[[], nn.Module], watch: Callable[[nn.Module], Any]) -> list[Any]:
    """Everything that is written of a model at each moment of two steps, with hooks of the script that come and go."""
    RemovableHandle.next_id = 0
    torch._dynamo.reset()  # a graph of the run before would be taken, and dynamo mark no parameter of this one's
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.Adam(model.parameters())
    written: list[Any] = []

    def write() -> None:
        written.extend(attempt(pickled, model, protocol) for protocol in (2, 4, 5))
        written.append(attempt(saved, model))
        written.append(attempt(lambda: saved(copy.deepcopy(model))))
        written.append(attempt(lambda: [list(vars(module)) for module in copy.deepcopy(model).modules()]))
        written.extend(saved(thing) for thing in (optimizer, optimizer.state_dict(), model.state_dict()))

    inner = list(model.children())[-1]
    before = inner.register_forward_hook(nothing)
    scope = watch(model)
    write()
    for step in range(2):
        if build is compiled:
            RemovableHandle.next_id = 10 * step + 10  # the hooks on gradients that a graph registers take ids of torch's
        within = inner.register_forward_pre_hook(nothing, prepend=True)
        loss = model(torch.randn(3, 4)).square().mean()
        write()
        loss.backward()
        write()
        optimizer.step()
        optimizer.zero_grad()
        write()
        within.remove()
        before.remove()
        write()
    if build is compiled:
        RemovableHandle.next_id = 30
    late = inner.register_forward_hook(nothing)
    if scope is not None:
        scope.close()
        assert not scope.fault
    write()
    late.remove()
    late = inner.register_forward_hook(nothing)
    write()
    late.remove()
    write()
    assert_no_hooks(model)
    return written


@functools.cache
def bare(build: Callable[[], nn.Module]) -> list[Any]:
    return train(build, lambda _: None)


@pytest.mark.parametrize("options", WATCHES.values(), ids=WATCHES)
@pytest.mark.parametrize("build", MODELS)
def test_every_file_and_copy_is_the_bare_one(
    build: Callable[[], nn.Module], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    assert train(build, lambda model: numscope.watch(model, **options)) == bare(build)


def test_hooks_are_called_in_the_order_of_a_bare_model() -> None:
    def calls(watch: Callable[[nn.Module], Any]) -> list[str]:
        told: list[str] = []

        def note(text: str) -> Callable[..., None]:
            return lambda *_: told.append(text)

        model = nn.Sequential(nn.Linear(4, 4))
        first = model[0].register_forward_hook(note("first"))
        model[0].register_forward_hook(note("second"))
        watch(model)
        last = model[0].register_forward_hook(note("last"))
        model[0].register_forward_hook(note("before all"), prepend=True)
        model(torch.ones(1, 4))
        first.remove()
        model(torch.ones(1, 4))
        last.remove()
        model(torch.ones(1, 4))
        return told

    assert calls(lambda model: numscope.watch(model)) == calls(nothing)


@functools.cache
def captured(watch: Callable[[nn.Module], Any]) -> list[str]:
    """A model's graphs, by each of torch's ways to write one down."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = mlp().eval(), torch.randn(3, 4)
    scope = watch(model)
    model(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, x)
    graphs = [str(traced.inlined_graph), torch.jit.script(model).code]
    graphs += [str(torch.export.export(model, (x,), strict=strict).graph) for strict in (False, True, False)]
    graphs += [str(torch.fx.symbolic_trace(model).graph), str(make_fx(model)(x).graph)]
    if scope is not None:
        scope.close()
        assert not scope.fault
    return [re.sub(r"___torch_mangle_\d+\.", "", graph) for graph in graphs]  # torch counts classes of the same name


@pytest.mark.parametrize("options", WATCHES.values(), ids=WATCHES)
def test_a_watched_model_s_graphs_are_the_bare_ones(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert captured(lambda model: numscope.watch(model, **options)) == captured(nothing)


def test_while_models_are_looked_for_their_graphs_are_the_bare_ones() -> None:
    bare = captured(nothing)
    with AutoWatch(WatchOptions()) as auto:
        assert captured(lambda model: None) == bare
        with pytest.raises(Exception, match="export"):
            torch.export.export(Refuses(), (torch.ones(1),), strict=True)
        (model := nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()  # it is looked for them again
    assert any(scope.model is model for scope in auto.scopes)


class Refuses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("not for export")


SCRIPT = """
import torch

def nothing(*_): ...

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model[1].register_forward_hook(nothing)
    model(torch.randn(2, 4)).mean().backward()
    optimizer.step()
    torch.save(model, f"model{step}.pt")
"""


def test_files_of_a_script_that_is_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for name, command in (("bare", [str(script)]), ("watched", ["-m", "numscope", "run", str(script)])):
        (tmp_path / name).mkdir()
        subprocess.run([sys.executable, *command], cwd=tmp_path / name, check=True, capture_output=True)
    files = sorted(path.name for path in (tmp_path / "bare").iterdir())
    assert files == ["model0.pt", "model1.pt", "model2.pt"]
    assert all((tmp_path / "bare" / name).read_bytes() == (tmp_path / "watched" / name).read_bytes() for name in files)
