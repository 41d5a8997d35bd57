"""Ranks of the doctor as real processes on this machine, each with a fault of its own if a test wants one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from numscope.doctor.records import ExamPhase, Settings, to_json

SRC = Path(__file__).resolve().parents[2] / "src"
# Silence after 2.5 s, 7 s for the rendezvous, 0.8 s for phase 2, and no torch.
BRISK = Settings(phases=tuple(ExamPhase)[:4], quick=True, deadline_s=60.0, timeout_scale=0.5)
OVERHEAD_S = 15.0  # for processes to start and end on a machine that does other things too; a hang is longer than that
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
HANG = "time.sleep(120)"

_MAIN = "import os, signal, sys, time\n{prelude}\nfrom numscope.doctor.rank import main\nmain()\n"
_OF_LAUNCHERS = re.compile(r"RANK$|WORLD_SIZE$|^(SLURM|OMPI|PMI|PMIX|TORCHELASTIC|NUMSCOPE|MASTER)_")
VARIABLES = dict(os.environ)  # read once: pytest takes its own away after each test, while other threads start processes


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """This process's, without what a launcher may have left in it."""
    kept = {name: value for name, value in VARIABLES.items() if not _OF_LAUNCHERS.search(name)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (str(SRC), VARIABLES.get("PYTHONPATH", "")))), **more}


_FILES = tempfile.TemporaryDirectory(prefix="numscope-settings-")


def asked(**settings: object) -> tuple[str, str]:
    """The words that ask for these settings."""
    text = json.dumps(settings)  # which is YAML
    path = Path(_FILES.name) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    if not path.exists():  # a process that was started a moment ago may be reading it
        path.write_text(text)
    return "--settings", str(path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asking:
        return int(asking.getsockname()[1])


def in_phase(phase: str, fault: str) -> str:
    """A prelude that has a fault strike when a phase begins."""
    if phase == "rendezvous":  # once it has joined
        return f"from numscope.doctor.agent import Agent\nAgent._finish_arrival = lambda self: {fault}"
    return f"import numscope.doctor.phases.{phase} as struck\nstruck.run = lambda context: {fault}"


class Fleet:
    """Ranks that meet at a port of this machine.

    Args:
        preludes: Python that a rank runs before all else.
        environs: variables of a rank that differ from what they should be.
        absent: ranks that are never started.
    """

    def __init__(
        self,
        size: int,
        settings: Settings = BRISK,
        preludes: Mapping[int, str] | None = None,
        environs: Mapping[int, Mapping[str, str]] | None = None,
        absent: tuple[int, ...] = (),
        endpoint: str = "",
    ) -> None:
        self.endpoint = endpoint or f"localhost:{free_port()}"
        self.settings = replace(settings, endpoint=self.endpoint)
        self.started = time.monotonic()
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for rank in range(size):
            if rank in absent:
                continue
            numbers = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
            environ = environment(**{**numbers, "NUMSCOPE_DOCTOR_SETTINGS": json.dumps(to_json(self.settings))})
            environ |= dict((environs or {}).get(rank, {}))
            main = _MAIN.format(prelude=(preludes or {}).get(rank, ""))
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-c", main], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

    def end(self, ranks: tuple[int, ...] | None = None) -> dict[int, Ended]:
        """These ranks' ends; all the others are killed then.

        Raises: subprocess.TimeoutExpired for a rank that is there past its deadline.
        """
        ended = {}
        try:
            for rank, process in self.processes.items():
                if ranks is None or rank in ranks:
                    left = self.started + self.settings.deadline_s + OVERHEAD_S - time.monotonic()
                    out, err = process.communicate(timeout=max(left, 0.1))
                    ended[rank] = Ended(process.returncode, out, err)
        finally:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        self.seconds = time.monotonic() - self.started
        return ended

    def end_of(self, rank: int) -> Ended:
        """One rank's end, while the others go on."""
        process = self.processes[rank]
        out, err = process.communicate(timeout=max(self.started + self.settings.deadline_s + OVERHEAD_S - time.monotonic(), 0.1))
        return Ended(process.returncode, out, err)

    def send(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)


@contextmanager
def fleet(size: int, **how: object) -> Iterator[Fleet]:
    """A fleet of which nothing is left afterwards, whatever the test did."""
    ships = Fleet(size, **how)  # type: ignore[arg-type]
    try:
        yield ships
    finally:
        for process in ships.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
