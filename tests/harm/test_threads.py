"""Threads that train models of their own, generators, coroutines, and data loaders' workers."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader, Dataset, IterableDataset

import numscope
from numscope.replay import outside
from tests.harm.training import assert_no_hooks, assert_nothing_left
from tests.warm import COLD


def small(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))


def losses(watched: bool) -> list[list[float]]:
    """Two threads in step with each other, so that each's calls fall into the other's losses."""
    found: list[list[float]] = [[], []]
    left: list[Any] = []
    barrier = threading.Barrier(2, timeout=30)
    models = [small(4), small(5)]
    batches = [[torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * i + j)) for j in range(6)] for i in range(2)]
    tracked = [numscope.watch(m, on_nonfinite="warn") for m in models] if watched else []

    def train(i: int) -> None:
        optimizer = torch.optim.SGD(models[i].parameters(), lr=0.1)
        for x in batches[i]:
            out = models[i](x)
            barrier.wait()
            loss = out.pow(2).mean()
            barrier.wait()
            loss.backward()
            barrier.wait()
            optimizer.step()
            optimizer.zero_grad()
            found[i].append(loss.item())
        own = outside.current()._mode  # records what this thread runs between two steps
        left.extend(mode for mode in _get_current_dispatch_mode_stack() if mode is not own)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not left
    for scope in tracked:
        assert not scope.closed and not scope.findings and scope.batch == 6
        assert scope.step_number == 6, "steps of one model must not end another's"
        scope.close()
    for model in models:
        assert_no_hooks(model)
    assert_nothing_left()
    return found


def test_two_threads_train_two_models_as_without_a_watch() -> None:
    assert losses(True) == losses(False)


TRAININGS = """
import sys, threading
import torch, numscope
from torch import nn

sys.setswitchinterval(1e-5)  # threads take turns within each of the tool's lines
failed, found = [], {}
barrier = threading.Barrier(4)

def train(i):
    try:
        barrier.wait()
        seeded = torch.Generator().manual_seed(i)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with numscope.watch(model, on_nonfinite="warn") as scope:
            for step in range(8):
                x = torch.randn(3, 4, generator=seeded)
                loss = model(x).square().mean()
                if step == 2 * i:
                    loss = loss / (loss.detach() - loss.detach())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 2 * i:
                    with torch.no_grad():
                        for p in model.parameters():
                            p.nan_to_num_(0.1, 0.1, 0.1)
        found[i] = scope.fault, scope.batch, scope.num_steps, [(f.step, f.culprit and f.culprit.code) for f in scope.findings]
    except BaseException as error:
        failed.append(error)

torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch wraps the class's step with its first object, and under no lock
threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
for i in range(4):
    assert found[i] == ("", 8, 8, [(2 * i, "loss = loss / (loss.detach() - loss.detach())")]), found
"""


def test_threads_that_begin_to_watch_at_once_have_each_their_own_findings(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAININGS)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HALF_IMPORTED = """
import sys, torch, numpy
from numscope.replay.capture import RandomState

assert RandomState.capture().numpy is None and "numpy.random" not in sys.modules, "imported for the script"
import numpy.random

expected = numpy.random.get_state()[1]
del numpy.random  # what another thread sees that comes between the end of the import and the attribute
assert (RandomState.capture().numpy["state"]["key"] == expected).all()
"""


def test_numpys_generator_is_not_imported_and_may_be_half_imported_by_another_thread() -> None:
    done = subprocess.run([COLD, "-c", HALF_IMPORTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_models_are_run_inside_generators_and_coroutines() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def outputs() -> Iterator[Tensor]:
        while True:
            yield model(torch.ones(2, 4))

    async def later() -> Tensor:
        out = model(torch.ones(2, 4))
        await asyncio.sleep(0)
        return out

    async def both() -> Tensor:
        first, second = await asyncio.gather(later(), later())
        return first + second

    with numscope.watch(model) as scope:
        stream = outputs()
        for _ in range(3):
            (next(stream) + asyncio.run(both())).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        stream.close()
        assert not scope.closed and scope.batch == 9 and scope.step_number == 3
    assert_nothing_left()


class Rows(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((4,), float(index))


class Stream(IterableDataset[Tensor]):
    """Uses a model in the worker, as for preprocessing."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __iter__(self) -> Iterator[Tensor]:
        for i in range(4):
            yield self.model[0](torch.full((4,), float(i))).detach()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_run_untouched(method: str) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        model(torch.ones(2, 4)).sum()  # a loss being computed when the workers start
        context = multiprocessing.get_context(method)
        for data in [Rows(), *([Stream(model)] if method == "fork" else [])]:
            for x in DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=context, timeout=60):
                model(x).sum().backward()
                optimizer.step()
        assert not scope.closed and scope.batch >= 3
    assert_nothing_left()
