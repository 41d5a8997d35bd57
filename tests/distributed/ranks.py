"""Processes that play the ranks of a training run, over gloo on the CPU."""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.warm import use_large_pages

# A scenario takes less than a second, and longer is a hang; but ranks that run at low priority beside other work can be starved for a
# minute, and that decides no test. Below pytest's own limit, so that a hang is told as that of its scenario.
TIMEOUT_S = 240.0
# A rank with more is replaced: gloo's wake a hundred times a second for as long as a mesh in torch's caches keeps them. For the seconds
# that a file takes this costs less than another rank's first use of torch's meshes; ranks that wait for the next file have fewer.
MAX_THREADS, MAX_THREADS_AT_REST = 40, 12
LONG_LIVED = 12  # scenarios after which large pages are worth it: they take as long as thirty forks that they make quicker
PATIENCE_S = 60.0  # for ranks to meet; scenarios in which one never comes set their own


@dataclass
class Told:
    """What one rank's scenario returned, what it printed to stderr, and how many threads it left."""

    value: Any
    stderr: str
    num_threads: int = 0

    @property
    def said(self) -> list[str]:
        """Lines of stderr, less the note that no compiler was there."""
        return [line for line in self.stderr.splitlines() if "native kernel" not in line]


class RankPool:
    """Runs ``scenario(rank, *args)`` on every rank; a rank that hangs fails the test and is replaced."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.folder = Path()
        self._count = self._num_threads = 0
        self._workers: list[tuple[Any, Connection]] = []

    def run(self, scenario: Callable[..., Any], *args: Any) -> list[Told]:
        if not self._workers:
            self._start()
        self._count += 1
        meeting = f"file://{self.folder / f'meeting-{self._count}'}"
        for _, pipe in self._workers:
            pipe.send((scenario, args, meeting))
        end = time.monotonic() + TIMEOUT_S
        answers: list[Any] = []
        for _, pipe in self._workers:
            try:
                answers.append(pickle.loads(pipe.recv_bytes()) if pipe.poll(max(end - time.monotonic(), 0.1)) else "hangs")
            except EOFError:
                answers.append("died")
        faults = [f"rank {rank}: {a}" for rank, a in enumerate(answers) if isinstance(a, str)]
        self._num_threads = max((told.num_threads for told in answers if isinstance(told, Told)), default=0)
        if faults or self._num_threads > MAX_THREADS:
            self.close()
        assert not faults, "\n".join(faults)
        return answers

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for rank in range(self.world):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, self.world, theirs), daemon=True)
            process.start()
            self._workers.append((process, ours))

    def rest(self) -> None:
        """Until another file's tests come."""
        if self._num_threads > MAX_THREADS_AT_REST:
            self.close()

    def close(self) -> None:
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
            process.join()
        self._workers.clear()


def _work(rank: int, world: int, pipe: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    from numscope.distributed import agree
    from numscope.scope.open_scopes import live

    torch.set_num_threads(1)
    agree.PATIENCE_S = PATIENCE_S
    num_modules = num_done = 0
    while True:
        try:
            scenario, args, meeting = pipe.recv()
        except (EOFError, OSError):
            return
        stderr = io.StringIO()
        torch.manual_seed(0)
        agree._watches.clear()  # as in a fresh process
        try:
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=TIMEOUT_S / 2))
            with contextlib.redirect_stderr(stderr):
                value = scenario(rank, *args)
            answer: Any = Told(value, stderr.getvalue())
        except BaseException:
            answer = traceback.format_exc() + stderr.getvalue()
        finally:
            gc.collect()  # what goes after its group tears gloo down by itself, and may wait for a thread that waits for the interpreter
            with contextlib.suppress(Exception):
                if not isinstance(answer, str):
                    dist.barrier()
                dist.destroy_process_group()
        for scope in live():
            scope.close()
        gc.collect()
        gc.freeze()  # what was imported, so that the next collection is quick
        num_done += 1
        if sys.platform == "linux" and num_done >= LONG_LIVED and len(sys.modules) > num_modules + 100:
            num_modules = len(sys.modules)
            use_large_pages()  # and the next fork
        if isinstance(answer, Told) and os.path.isdir("/proc/self/task"):
            answer.num_threads = len(os.listdir("/proc/self/task"))
        pipe.send_bytes(pickle.dumps(answer))  # torch's own way of sending a tensor takes an open file for each, on both sides
