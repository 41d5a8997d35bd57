"""Real children of several ranks on this host, told what to do as their agents would, each in a thread of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from numscope.doctor.budget import Deadline
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.phases.children import Child, run_in_child
from numscope.doctor.records import ExamPhase, Identity, Settings
from tests.doctor.planted import sitecustomize
from tests.doctor.planted.sitecustomize import FAULT

_ENVIRON = threading.Lock()  # several crews may come at once


def planted(fault: str, path: str) -> dict[str, str]:
    """The environment that plants a fault in the ranks' children, from the PYTHONPATH without it."""
    return {FAULT: fault, "PYTHONPATH": os.pathsep.join((str(Path(sitecustomize.__file__).parent), path))} if fault else {}


class Told:
    """A rank's phase: its data, and the sentence it failed with, or ""."""

    def __init__(self) -> None:
        self.error = ""
        self.data: Mapping[str, Any] = {}
        self.said: list[str] = []

    def pair(self, peer: int) -> Mapping[str, Any]:
        (found,) = [pair for pair in self.data["pairs"] if pair["peer"] == peer]
        return found  # type: ignore[no-any-return]


class Crew:
    """The children of ``num`` ranks.

    Args:
        fault: as in planted/sitecustomize.py.
        absent: ranks without a child.
        python: that runs the children; ``COLD`` where a test looks at their process groups themselves.
    """

    def __init__(self, num: int, fault: str = "", absent: tuple[int, ...] = (), python: str = "", **settings: Any) -> None:
        self.num = num
        self.settings = Settings(**settings)
        self.identities = [Identity(rank=rank, world_size=num, local_rank=rank, local_world_size=num) for rank in range(num)]
        with (
            _ENVIRON,
            mock.patch.dict(os.environ, planted(fault, os.environ.get("PYTHONPATH", ""))),
            mock.patch.object(sys, "executable", python or sys.executable),
        ):
            children = {rank: Child(self.identities[rank], self.settings) for rank in range(num) if rank not in absent}
        self.kept: dict[int, dict[str, Any]] = {rank: {"child": child} for rank, child in children.items()}
        self.roster: dict[int, Any] = {
            rank: {
                "address": "127.0.0.1",
                "listen": {"address": "", "port": 0, "store_port": children[rank].store_port if rank in children else 0},
            }
            for rank in range(num)
        }
        self.groups: set[int] = set()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def child(self, rank: int) -> Child:
        return self.kept[rank]["child"]  # type: ignore[no-any-return]

    def warm_up(self) -> None:
        """Waits until torch is imported, so that a busy host's time for it is not the test's."""
        for rank, kept in self.kept.items():
            with contextlib.suppress(PhaseFailed):
                kept["child"].run(0, {"rank": rank}, Deadline(100.0), lambda what: None)  # it knows no such phase

    def run(self, phase: int, seconds: float, ranks: tuple[int, ...] = (), alive: tuple[int, ...] = ()) -> list[Told]:
        """What the ranks (all) tell of a phase."""
        told = [Told() for _ in range(self.num)]

        def one(rank: int) -> None:
            context = Context(
                identity=self.identities[rank],
                settings=self.settings,
                roster=self.roster,
                deadline=Deadline(seconds),
                announce=told[rank].said.append,
                alive=alive or tuple(range(self.num)),
                kept=self.kept[rank],
            )
            try:
                told[rank].data = run_in_child(ExamPhase(phase), context)
            except PhaseFailed as failed:
                told[rank].error, told[rank].data = failed.sentence, failed.data

        threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks or self.kept]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.groups |= {self.child(rank).process_group for rank in self.kept}
        return told

    def close(self) -> None:
        self.groups |= {self.child(rank).process_group for rank in self.kept}
        for kept in self.kept.values():
            kept["child"].close()


def is_gone(group: int, seconds: float = 10.0) -> bool:
    """Whether no process of a group is left, waiting for it a little."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    return False
