"""What torch or a script finds around it is what it finds without a watch: hooks, wrappers, children, other ranks."""

from __future__ import annotations

import contextlib
import math
import platform
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data._utils import signal_handling

import numscope
from numscope.config.options import WatchOptions
from numscope.replay import fork
from numscope.scope.autowatch import AutoWatch


@pytest.mark.parametrize("how", ["layer", "encoder", "compiled layer"])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_inference_stays_fused(how: str, padded: bool) -> None:
    """Torch leaves its fused encoder layers where modules have hooks, and other bits come out."""

    def run(watched: bool) -> Tensor:
        torch.manual_seed(0)
        torch._dynamo.reset()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        model = (nn.TransformerEncoder(layer, 2) if how == "encoder" else layer).eval()
        call = torch.compile(model, backend="eager") if how == "compiled layer" else model
        x, pad = torch.randn(4, 7, 16), torch.zeros(4, 7, dtype=torch.bool)
        pad[:, 5:] = padded
        with contextlib.nullcontext() if not watched else numscope.watch(model) as scope, torch.inference_mode():
            found: Tensor = call(x, src_key_padding_mask=pad)
            assert scope is None or not scope.closed
        return found

    bare, watched = run(False), run(True)
    assert torch.equal(bare, watched)
    assert not hasattr(torch.nn.modules.transformer, "len")


def test_modules_that_the_script_hooks_leave_the_fused_inference_as_they_do_bare() -> None:
    layer, calls = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), list[int]()
    with numscope.watch(layer), torch.inference_mode():
        layer(torch.randn(1, 3, 16))
        handle = layer.linear1.register_forward_hook(lambda *_: calls.append(1))
        layer(torch.randn(1, 3, 16))
        handle.remove()
        layer(torch.randn(1, 3, 16))
    assert calls == [1]


def test_gradients_that_are_checked_in_batches_are_the_same_and_the_watch_goes_on() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).double()
    x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    with numscope.watch(model) as scope:
        for _ in range(4):  # more stretches than are noted by operation
            assert torch.autograd.gradcheck(model, (x,), check_batched_grad=True)
        assert not scope.closed


CHILDREN = """
import os, signal, torch, numscope
from torch import Tensor, nn
reaped = []
def reap(*_):
    try:
        while (got := os.waitpid(-1, os.WNOHANG))[0]:
            reaped.append(got)
    except ChildProcessError:
        pass
signal.signal(signal.SIGCHLD, reap)
class Log(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x).log()
model = Log()
numscope.watch(model)
with torch.no_grad():
    torch.nan_to_num(model(torch.randn(4, 4)))
print("reaped", reaped)
"""


@pytest.mark.parametrize("of_script", [False, True])
def test_handler_of_loaders_with_workers_is_not_the_scripts(of_script: bool) -> None:
    before = signal.signal(signal.SIGCHLD, (lambda *_: None) if of_script else signal.SIG_DFL)
    flag = signal_handling._SIGCHLD_handler_set
    try:
        signal_handling._SIGCHLD_handler_set = False
        signal_handling._set_SIGCHLD_handler()
        assert callable(signal.getsignal(signal.SIGCHLD))
        assert fork._hears_of_children() is of_script
    finally:
        signal.signal(signal.SIGCHLD, before)
        signal_handling._SIGCHLD_handler_set = flag


FAKE_RANKS = """
import torch, numscope
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
model = nn.Linear(16, 16)
fully_shard(model, mesh=init_device_mesh("cpu", (8,)))
scope = numscope.watch(model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    model(torch.ones(2, 16)).mul(0).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("closed", scope.closed)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("script", "printed"), [(CHILDREN, "reaped []\n"), (FAKE_RANKS, "closed False\n")])
def test_script_finds_neither_children_nor_ranks_that_are_none_of_its_own(script: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


TRAPS = """
import ctypes, torch, numscope
from torch import nn
libm = ctypes.CDLL("libm.so.6")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
with numscope.watch(model):
    for step in range(40):
        if step == 2:
            libm.feclearexcept(61)
            libm.fesetround({rounding})
            libm.feenableexcept(13)  # invalid, division by zero, overflow
        loss = model(torch.randn(3, 4) * (step % 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(libm.fegetexcept(), libm.fegetround() == {rounding}, libm.fetestexcept(13))
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="needs glibc and a processor with traps")
@pytest.mark.parametrize("rounding", [0, 0x800])
def test_floating_point_traps_of_the_script_stay_and_strike_nothing_of_ours(rounding: int) -> None:
    """Alerts compare levels that are nan where nothing is known yet, which would end the process."""
    run = subprocess.run([sys.executable, "-c", TRAPS.format(rounding=rounding)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "13 True 0\n"), run.stderr


class Scales(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1) * x.shape[0]


@pytest.mark.parametrize("calls", [1, 12])
@pytest.mark.parametrize("traced", [Scales(), lambda x: x.reshape(-1) + 1], ids=["module", "function"])
def test_tracing_between_the_models_calls_is_as_bare(traced: object, calls: int) -> None:
    def run(watched: bool) -> list[object]:
        model, x = nn.Linear(4, 4), torch.ones(2, 4)
        with numscope.watch(model) if watched else contextlib.nullcontext() as scope:
            model(x).sum().backward()
            for _ in range(calls):
                model(x).sum()
            script = torch.jit.trace(traced, (x,), check_trace=False)
            model(x).sum().backward()
            assert scope is None or not scope.closed
        return [[node.kind() for node in script.graph.nodes()], script(x).tolist()]

    assert run(False) == run(True)


def test_what_a_step_was_given_goes_when_its_graph_does() -> None:
    """A loader with one staging buffer waits until the batch in it dies."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for keeps_loss in (True, False, True):
            x = torch.randn(5, 3)
            given = weakref.ref(x)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            if not keeps_loss:
                del loss
            optimizer.step()
            del x
            assert (given() is not None) == keeps_loss
            loss = None
            assert given() is None
        assert not scope.closed


SHARED = """
import sys
import weakref
from pathlib import Path
from multiprocessing import shared_memory
import numpy as np
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(number, fault=1.0):
    memory = shared_memory.SharedMemory(create=True, size=1 << 21)
    batch = np.ndarray((6, 8), np.float32, memory.buf)
    batch[:] = fault
    x = torch.from_numpy(batch)
    if number % 2:
        with torch.no_grad():
            (x - x) / (x - x)
            model({"x": x}["x"] / 0)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if not loss.isnan():
        loss.backward()
        optimizer.step()
    del x, batch
    memory.close()
    memory.unlink()

for number in range(4):
    step(number)
    step(number, float("nan"))
print("fine")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is unmapped")
def test_memory_that_the_script_takes_away_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHARED)
    run = subprocess.run([sys.executable, "-m", "numscope", "run", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (run.returncode, run.stdout) == (0, "fine\n"), run.stderr


@pytest.mark.parametrize("when", [0, 2])
@pytest.mark.parametrize("bad", [-math.inf, math.nan])
def test_weights_that_the_script_sets_to_infinity_are_as_it_wants_them(bad: float, when: int) -> None:
    """Forbidden transitions of a random field, a class that can't come."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.bias = nn.Linear(4, 3), nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(torch.arange(3) < 2, self.first(x) + self.bias, 0.0)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for step in range(5):
            if step == when:
                with torch.no_grad():
                    model.bias[2] = bad
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
    assert scope.findings == []


def test_a_weight_that_was_chosen_bad_and_is_good_again_is_watched_again() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(torch.arange(3) < 2, x + self.bias, 0.0)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step in range(5):
            with torch.no_grad():
                model.bias[2] = -math.inf if step == 1 else 0.0
            optimizer.zero_grad()
            model(torch.ones(3)).sum().backward()
            assert model.bias.grad is not None
            model.bias.grad.fill_(3e38 if step == 3 else 0.0)  # the update overflows
            optimizer.step()
            if step == 2:
                assert scope.findings == []
    assert [finding.step for finding in scope.findings][:1] == [3]


class Tagged(Tensor):
    """Made by its class, with a constructor of its own."""

    tag: int

    def __new__(cls, source: object, tag: int = 0) -> Tagged:
        made = super().__new__(cls, source)
        made.tag = tag
        return made


@pytest.mark.parametrize("at", ["before the model", "between steps", "in the model"])
def test_subclasses_of_tensors_are_made_as_they_are_bare(at: str) -> None:
    """Within a dispatch mode of anybody's torch refuses to."""

    class Making(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(make(x).as_subclass(Tensor) if at == "in the model" else x)

    def make(x: Tensor) -> Tensor:
        found = Tagged(x, 3)
        assert (type(found), found.tag, found.data_ptr() == x.data_ptr()) == (Tagged, 3, True)
        assert type(Tagged([1.0, 2.0])) is Tagged and type(Tagged(torch.ones(2)) + 1) is Tagged
        assert torch.equal(torch.compile(lambda x: Tagged(x) * 2, backend="eager")(x), x * 2)
        with pytest.raises(TypeError, match="invalid data type"):
            Tagged("no")
        return found

    with AutoWatch(WatchOptions()):
        if at == "before the model":
            make(torch.ones(3))
        model = Making()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            if at == "between steps":
                make(torch.ones(3))
            optimizer.zero_grad()
            model(torch.ones(3)).sum().backward()
            optimizer.step()
    assert "__new__" not in vars(Tensor)
