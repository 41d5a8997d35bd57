"""A replay with ``on_nonfinite="warn"`` leaves a run as it was: twelve kinds of state, and what the user's forward prints and writes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import numscope
from numscope.replay.capture import RandomState

pytestmark = pytest.mark.tried

SCRIPT = """
import collections, contextlib, itertools, random, sys, threading, time
import numpy, torch
from torch import nn

KEPT = torch.zeros(3)  # no attribute of any module
watched, alone = sys.argv[1] == "watched", sys.argv[2] == "alone"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.momentum = nn.Linear(4, 4), nn.Linear(4, 4)
        for p in self.momentum.parameters():
            p.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("queue", torch.zeros(8))
        self.alias = self.queue[2:4]
        self.plain = torch.zeros(2)
        self.torch_own, self.python_own = torch.Generator().manual_seed(1), random.Random(1)
        self.numpy_own = numpy.random.default_rng(1)
        self.calls, self.list, self.dict, self.set = 0, [], {}, set()
        self.deque, self.counter = collections.deque(maxlen=3), collections.Counter()
        self.iterator = iter(range(100))

    def forward(self, x):
        self.calls += 1
        self.list.append(self.calls)
        self.dict[self.calls] = len(self.list)
        self.set.add(self.calls)
        self.deque.append(self.calls)
        self.counter["calls"] += 1
        self.plain += 1
        self.alias.add_(1)
        KEPT.mul_(2).add_(1)
        with torch.no_grad():
            for a, b in zip(self.momentum.parameters(), self.fc.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
        noise = torch.rand(4, generator=self.torch_own) * self.python_own.random() * self.numpy_own.random()
        noise = noise * torch.rand(1) * random.random()
        if alone:
            next(self.iterator)
            print("forward", self.calls)
            with open("log.txt", "a") as file:
                file.write(f"{self.calls}\\n")
        return torch.log(self.norm(self.fc(x)).square() + x[:, :1]) + noise + self.momentum(x)

torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
if not alone:
    threading.Thread(target=lambda: time.sleep(999), daemon=True).start()  # not at rest in a known place: nothing can be forked
scope = None
if watched:
    import numscope
    scope = numscope.watch(net, on_nonfinite="warn")
for step in range(5):
    x = torch.rand(3, 4)
    numpy.random.randn()  # draws two numbers, of which it keeps one for the next time
    if step in (1, 3):
        x[0, 0] = -100.0  # log of a negative number
    loss = net(x).mean()
    loss.backward()
    if step != 3:  # at step 1 the optimizer's step is done again, too
        optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for p in net.parameters():
            p.nan_to_num_(0.1)
        for state in optimizer.state.values():
            for t in state.values():
                t.nan_to_num_(0.1)
if watched:
    found = [f for f in (*scope.findings, *scope.contained) if f.culprit]
    assert {f.step for f in found} == {1, 3} and all(f.culprit.op == "aten.log" for f in found), found
print({k: v.tolist() for k, v in net.state_dict().items()}, net.plain, net.alias, KEPT)
print(net.calls, net.list, net.dict, net.set, net.deque, net.counter, next(net.iterator))
print(torch.rand(1, generator=net.torch_own), net.python_own.random(), net.numpy_own.random())
print(torch.rand(1), random.random(), numpy.random.rand(), numpy.random.randn())
print([p.grad for p in net.parameters()], optimizer.state_dict())
"""


@pytest.mark.parametrize("where", ["alone", "beside a thread"])
def test_a_replay_changes_nothing(where: str, tmp_path: Path) -> None:
    """Beside other threads nothing can be forked: iterators, prints and files are used twice there, as docs/promises.md says."""
    (tmp_path / "script.py").write_text(SCRIPT)
    told = {}
    for run in ("bare", "watched"):
        (tmp_path / run).mkdir()
        command = [sys.executable, str(tmp_path / "script.py"), run, where]
        done = subprocess.run(command, cwd=tmp_path / run, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        told[run] = done.stdout, {path.name: path.read_text() for path in (tmp_path / run).iterdir()}
    assert told["watched"] == told["bare"]


DRAWS = ["", "random()", "gauss(0, 1)", "seed(1)", "getrandbits(3)", "shuffle([1, 2, 3])", "setstate(other)"]


@given(st.lists(st.sampled_from(DRAWS), max_size=20))
def test_the_state_of_pythons_generator_is_told_without_asking_where_it_has_not_moved(draws: list[str]) -> None:
    for draw in draws:
        if draw:
            eval(draw, {**vars(random), "other": random.Random(5).getstate()})
        assert RandomState.capture(exact=False).python == random.getstate()


def test_numpys_generator_of_another_kind_is_put_back_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    usual = numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(numpy.random.PCG64(1))
    try:
        state = RandomState.capture()
        drawn = numpy.random.rand()
        state.restore()
        assert numpy.random.rand() == drawn
    finally:
        numpy.random.set_bit_generator(usual)
    assert not recwarn.list


def test_a_buffer_of_which_torch_makes_no_copy_is_left_where_it_is() -> None:
    class Coded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("codes", torch.empty(8, dtype=torch.int4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(self.fc(x).abs() - 100)

    with numscope.watch(Coded(), on_nonfinite="warn") as scope:
        scope._watch.model(torch.ones(2, 4)).mean().backward()
    assert not scope.fault
    assert [finding.culprit and finding.culprit.op for finding in scope.findings] == ["aten.log"]


FAILS = """
import sys, time
import torch
from torch import nn
import numscope
from numscope.replay import fork

fork.IDLE_SECONDS = 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.calls = nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:  # the third call is the second one's replay, unless the run itself gets there
            FAULT
        return torch.log(self.fc(x) * 0 + (self.calls != 2))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scope = numscope.watch(net, on_nonfinite="warn")
for step in range(2):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for p in net.parameters():
            p.nan_to_num_(0.1)
(finding,) = scope.findings
assert net.calls == 2 and finding.step == 1 and finding.culprit is None
print(finding.replay)
"""


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("sys.exit(5)", "it raised SystemExit: 5"),
        ("import threading; threading.Event().wait()", "its process ended without a result, or did nothing for 2 s"),
        ("import os; os._exit(1)", "its process ended without a result, or did nothing for 2 s"),
    ],
)
def test_a_replay_that_fails_leaves_the_run_alone(fault: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAILS.replace("FAULT", fault))
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None and script.stderr is not None
        said = script.stdout.read()  # nothing is ever written to its standard input
        assert script.wait() == 0, script.stderr.read()
    assert said == f"not reproduced: {why}\n"


GARBAGE = """
import gc, os, time
from numscope.replay.fork import in_child

class Joins:  # as a process group does: its end waits for its threads, which a fork does not have
    def __del__(self):
        if os.getpid() != parent:
            time.sleep(600)

parent = os.getpid()
gc.disable()
one = Joins()
one.itself = one
del one
print(in_child(lambda: gc.collect() and "collected", str))
"""


def test_garbage_of_the_run_is_not_collected_in_the_replay() -> None:
    done = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


class Counting(nn.Module):
    """Counts its calls. The ``fault`` of the second one: in the forward, in the backward, or in what the optimizer is given."""

    def __init__(self, fault: str):
        super().__init__()
        self.fc, self.fault, self.calls = nn.Linear(4, 4), fault, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        bad = self.calls == 2
        h = self.fc(x)
        if self.fault == "forward" and bad:
            h = torch.log(h * 0 - 1)
        if self.fault == "backward" and bad:
            h = torch.sqrt(h * 0)
        return h


@pytest.mark.parametrize(("fault", "module"), [("forward", ""), ("backward", "fc"), ("update", "")])
def test_without_replay_nothing_is_called_again(fault: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.replay.fork.can_fork", lambda: False)  # a replay would be seen here
    net = Counting(fault)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, replay=False, on_nonfinite="warn") as scope:
        for step in range(2):
            net(torch.ones(2, 4)).sum().backward()
            if fault == "update" and step:
                optimizer.param_groups[0]["lr"] = float("inf")
            optimizer.step()
            optimizer.zero_grad()
    assert net.calls == 2
    finding = scope.findings[0]
    assert finding.step == 1 and finding.culprit is None and finding.replay == "not replayed: the watch has replay=False"
    assert finding.site.module == module


ONE_RANK = """
import torch
import torch.distributed as dist
from torch import nn
import numscope

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(h.detach(), "sum", GROUP))
        return torch.log(h * 0 - 1)  # FAULT

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
GROUP = dist.group.WORLD.group_name
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
numscope.watch(net)
try:
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
except numscope.NonFiniteError as error:
    print(error.finding.culprit.code)
"""


def test_a_model_that_communicates_with_itself_is_replayed_beside_its_groups_threads(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ONE_RANK)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=100)
    assert done.stdout == "return torch.log(h * 0 - 1)  # FAULT\n", done.stderr
