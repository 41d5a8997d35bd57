"""A call that is done again, in a process of its own, leaves no trace in what that process shares with this one."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.replay import confine
from numscope.replay.fork import can_fork, in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork")


class World:
    """What a forward may hold: files, pipes, sockets, memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "records").write_bytes(bytes(range(200)))
        (folder / "moved").write_text("here")
        (folder / "kept").write_text("whole")
        self.records = open(folder / "records", "rb", buffering=0)
        self.both = open(folder / "both", "w+b", buffering=0)
        self.both.write(bytes(100))
        self.both.seek(0)
        self.log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.near, self.far = socket.socketpair()
        self.out, self.into = os.pipe()
        os.set_blocking(self.out, False)
        os.write(self.into, b"0123456789" * 20)
        self.tensor = torch.zeros(3).share_memory_()
        self.map = mmap.mmap(self.both.fileno(), 100)
        self.anonymous = mmap.mmap(-1, 4096)
        self.memory = shared_memory.SharedMemory(create=True, size=64)
        self.lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def state(self) -> Any:
        """As anybody else would see it."""
        self.far.setblocking(False)
        try:
            sent = len(self.far.recv(1 << 16, socket.MSG_PEEK))
        except BlockingIOError:
            sent = 0
        there = os.open(self.folder / "lock", os.O_RDWR)
        try:
            fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = False
        except OSError as error:
            is_locked = error.errno == errno.EWOULDBLOCK
        os.close(there)
        waiting = int.from_bytes(fcntl.ioctl(self.out, 0x541B, bytes(4)), sys.byteorder)  # FIONREAD
        files = {path.name: path.read_bytes() for path in sorted(self.folder.iterdir()) if path.is_file()}
        memory = self.tensor.tolist(), self.map[:8], self.anonymous[:8], bytes(self.memory.buf[:8])
        return files, self.records.tell(), self.both.tell(), sent, waiting, is_locked, *memory

    def close(self) -> None:
        self.memory.close()
        self.memory.unlink()
        for fd in (self.log, self.out, self.into, self.lock):
            os.close(fd)
        for one in (self.near, self.far, self.records, self.both):
            one.close()


def _create(world: World) -> None:
    os.close(os.open(world.folder / "created", os.O_CREAT | os.O_WRONLY))


ACTS: dict[str, Callable[[World], Any]] = {
    "reads a file on": lambda w: w.records.read(10),
    "reads on in a file that it may write": lambda w: w.both.read(10),
    "writes in a file": lambda w: w.both.write(b"x"),
    "writes to a descriptor": lambda w: os.write(w.log, b"line"),
    "sends": lambda w: w.near.send(b"hello"),
    "takes from a pipe": lambda w: os.read(w.out, 10),
    "writes to a pipe": lambda w: os.write(w.into, b"hello"),
    "writes to a shared tensor": lambda w: w.tensor.add_(1),
    "writes to a mapped file": lambda w: w.map.__setitem__(slice(0, 4), b"abcd"),
    "writes to anonymous memory": lambda w: w.anonymous.__setitem__(slice(0, 4), b"abcd"),
    "writes to shared memory": lambda w: w.memory.buf.__setitem__(slice(0, 4), b"abcd"),
    "creates a file": _create,
    "writes a new file": lambda w: (w.folder / "new").write_text("x"),
    "truncates a file": lambda w: os.truncate(w.folder / "kept", 1),
    "opens a file to write": lambda w: os.open(w.folder / "kept", os.O_RDWR | os.O_TRUNC),
    "moves a file": lambda w: os.replace(w.folder / "moved", w.folder / "elsewhere"),
    "removes a file": lambda w: os.remove(w.folder / "moved"),
    "makes a link": lambda w: os.symlink("moved", w.folder / "link"),
    "makes a folder": lambda w: tempfile.mkdtemp(dir=w.folder),
    "changes who may": lambda w: os.chmod(w.folder / "kept", 0o777),
    "lets go of a lock": lambda w: fcntl.flock(w.lock, fcntl.LOCK_UN),
    "signals": lambda w: os.kill(os.getppid(), signal.SIGUSR2),
    "starts a process": lambda w: subprocess.run([sys.executable, "-c", "pass"], check=True),
    "connects": lambda w: socket.socket(),
}


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("act", ACTS)
def test_nothing_that_a_child_does_is_seen_outside(world: World, act: str) -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: signals.append(number))
    try:
        state = world.state()
        if not can_fork():
            pytest.skip("another thread is at work")
        in_child(lambda: ACTS[act](world) and None, lambda why: None)
        assert world.state() == state and not signals
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_child_reads_what_was_there_from_where_it_was(world: World) -> None:
    world.records.seek(5)
    world.map[:2] = b"ab"
    world.tensor.fill_(7)

    def look() -> Any:
        return world.records.read(3), world.map[:2], world.tensor.tolist(), (world.folder / "kept").read_text()

    assert in_child(look, lambda why: why) == (bytes([5, 6, 7]), b"ab", [7.0] * 3, "whole")
    assert world.records.tell() == 5


def test_child_may_start_threads_and_print(world: World) -> None:
    def work() -> Any:
        from concurrent.futures import ThreadPoolExecutor

        print("nobody sees it")
        with open(world.folder / "new", "w") as file:
            file.write("nor it")
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda x: x + 1, range(3)))

    assert in_child(work, lambda why: why) == [1, 2, 3]
    assert not (world.folder / "new").exists()


class Reaching(nn.Module):
    """Its forward reaches outside in one way, and its logarithm is bad in evaluation."""

    def __init__(self, world: World, act: str) -> None:
        super().__init__()
        self.linear, self.world, self.act, self.failed = nn.Linear(4, 4), world, act, 0

    def forward(self, x: Tensor) -> Tensor:
        try:
            ACTS[self.act](self.world)
        except OSError:
            self.failed += 1
        y: Tensor = self.linear(x)
        return y.sum() if self.training else (-y.abs() - 1).log()


@pytest.mark.parametrize(
    "act", ["reads a file on", "takes from a pipe", "writes to a shared tensor", "moves a file", "sends", "writes a new file"]
)
def test_evaluation_with_a_harmless_nan_reaches_outside_once(tmp_path: Path, act: str) -> None:
    states = []
    for watched in (False, True):
        folder = tmp_path / str(watched)
        folder.mkdir()
        world = World(folder)
        torch.manual_seed(0)
        model = Reaching(world, act)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scope = numscope.watch(model) if watched else None
        for _ in range(3):
            model(torch.randn(2, 4)).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                model.eval()
                model(torch.randn(2, 4))
                model.train()
        if scope is not None:
            scope.close()
            assert len(scope.contained) == 1
        states.append((world.state(), model.failed, torch.get_rng_state().sum().item()))
        world.close()
    assert states[0] == states[1]


def test_folder_that_a_child_reads_is_read_to_its_end_here(world: World) -> None:
    for i in range(3000):  # more than one reading of the folder gives
        (world.folder / "many" / str(i)).mkdir(parents=True)
    with os.scandir(world.folder / "many") as entries:
        next(entries)
        in_child(lambda: [*entries] and None, lambda why: None)
        assert len([*entries]) == 2999


ORPHAN = """
import os, sys, time
from numscope.replay import fork
def work():
    os.write(1, b"")
    time.sleep(60)
real = os.fork
def forked():
    child = real()
    if child:
        print(child, flush=True)
        os.kill(os.getpid(), 9)
    return child
os.fork = forked
fork.in_child(work, str)
"""


def test_child_ends_with_the_process_that_made_it() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=60)
    child = int(done.stdout)
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}") and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert time.monotonic() < end


def test_reason_why_a_process_can_not_be_confined_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "_MOST_COPIED", 10)
    assert "MemoryError: it shares more than" in in_child(lambda: "", str)  # type: ignore[operator]
