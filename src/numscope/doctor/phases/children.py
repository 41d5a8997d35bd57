"""A rank's child process, which holds torch: started early, given its tasks, killed with its process group at the deadline.

Torch, gloo and NCCL can hang where nothing in their process can end them. So they run in a child that announces every step before and
after it, and sends measurements as they are made, as JSON lines. Whoever kills it knows its current step and keeps the measurements.

This side sends ``{"phase": 4, "arguments": {…}}``; the child's lines are ``doing``, ``done``, ``set``, ``add`` and ``end`` (reporting.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.sockets import listen
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.records import ExamPhase, Identity, Settings

LISTEN_FD = "NUMSCOPE_DOCTOR_LISTEN_FD"  # the store's socket, for the child
OWN_SHARE = 0.85  # of a phase's time, after which the child gives up by itself; so a child that must be killed has hung
KILL_SHARE = 0.94  # after which it is killed, before the agent itself gives up the phase and loses what is known about the child
_STDERR_LINES = 40
_REAP_S = 2.0  # for a killed process to end; one that hangs in the kernel (in a driver) stays


class Child:
    """The child, with a socket at ``host`` ("" for all addresses, None for no socket) for torch's store if this rank hosts it.

    Starting it does not wait for torch's import (seconds), so that runs while the ranks meet. It dies with its agent, by the end of its
    standard input and by the kernel's parent-death signal, which comes when the thread that made this object ends.
    """

    def __init__(self, identity: Identity, settings: Settings, host: str | None = "") -> None:
        self.store_port = 0
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: the child has ended
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._whose = f"rank {identity.rank}'s torch process"
        self._how = ""  # how it ended
        self._hung = False
        self._phase = ExamPhase.FACTS  # the last one requested
        self._doing = "start"
        self._since = time.monotonic()
        self._process = self._start(settings, host)

    @property
    def ended(self) -> bool:
        """Whether it has ended or was given up."""
        return self._ended.is_set() or self._hung

    @property
    def process_group(self) -> int:
        """The id of its process group; 0 if it could not be started."""
        return self._process.pid if self._process is not None else 0

    def run(self, phase: ExamPhase, arguments: Mapping[str, Any], deadline: Deadline, announce: Callable[[str], None]) -> dict[str, Any]:
        """Has the child run a phase; returns the phase's data. Before the deadline the child is killed, with its process group.

        To the arguments (JSON values, see the phase's file in child/) it adds ``limit_s`` and ``end`` (on the host's monotonic clock, since
        the child may still be importing torch): when it must give up by itself. Raises: PhaseFailed with what was measured until then.
        """
        data: dict[str, Any] = {}
        if self.ended:
            raise self._failed(f"{self._whose} was gone before {phase.label} began: {self._how} in {self._phase.label}", data)
        self._phase = phase
        limit_s = deadline.left * OWN_SHARE
        deadline = deadline.within(deadline.left * KILL_SHARE)
        request = json.dumps({"phase": phase, "arguments": {**arguments, "limit_s": limit_s, "end": time.monotonic() + limit_s}}) + "\n"
        with contextlib.suppress(OSError, ValueError):  # it has died, as will be seen below
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(request.encode())  # far smaller than a pipe's buffer, so it does not block
            self._process.stdin.flush()
        while True:
            try:
                line = self._lines.get(timeout=max(deadline.left, 1e-3))
            except queue.Empty:
                self._hung = True
                self.kill(f"killed after {deadline.seconds:.1f} s")
                sentence = f"{self._whose} hung in {phase.label}: {self._doing}, for {time.monotonic() - self._since:.1f} s"
                raise self._failed(sentence, data) from None
            if line is None:
                raise self._failed(f"{self._whose} died in {phase.label}: {self._how}, during: {self._doing}", data)
            kind = line["event"]
            if kind == "doing":
                self._doing, self._since = line["what"], time.monotonic()
                announce(self._doing)
            elif kind == "set":
                data.update(line["values"])
            elif kind == "add":
                data.setdefault(line["list"], []).append(line["value"])
            elif kind == "end":
                if line["error"]:
                    raise PhaseFailed(line["error"], data)
                return data

    def kill(self, how: str = "killed") -> None:
        """Kills its process group; waits until it has ended, for two seconds at most."""
        with self._lock:
            self._how = self._how or how
            # It is not reaped yet (the other thread takes this lock to do so), so the id still belongs to it.
            if self._process is not None and not self._ended.is_set():
                _kill(self._process)
        self._ended.wait(_REAP_S)

    def close(self) -> None:
        """Ends it, by force if it does not end at once. May be called twice."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if not self._ended.wait(0.3):
            self.kill("closed")

    def _failed(self, sentence: str, data: dict[str, Any]) -> PhaseFailed:
        data["child"] = {
            "hung": self._hung,
            "how": self._how,
            "doing": self._doing,
            "doing_s": round(time.monotonic() - self._since, 3),
            "stderr": list(self._stderr),
        }
        return PhaseFailed(sentence, data)

    def _start(self, settings: Settings, host: str | None) -> subprocess.Popen[bytes] | None:
        environ, sockets = python_environ(), []
        environ.pop(LISTEN_FD, None)
        if settings.ifname:
            environ["GLOO_SOCKET_IFNAME"] = environ["NCCL_SOCKET_IFNAME"] = settings.ifname
        with contextlib.suppress(OSError):  # without a port: the store's host reports it
            if host is not None:
                sockets = [listen(host=host)]
                self.store_port, environ[LISTEN_FD] = sockets[0].getsockname()[1], str(sockets[0].fileno())
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "numscope.doctor.child", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                pass_fds=[each.fileno() for each in sockets],
                start_new_session=True,  # its own process group
            )
        except OSError as error:
            self._how = f"it could not be started: {error.strerror or error}"
            self._ended.set()
            return None
        finally:
            for each in sockets:
                each.close()  # now only the child has it: when it dies, other ranks are refused instead of left waiting
        threading.Thread(target=self._read, args=(process,), name="doctor-child", daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Reads what it says, in a thread, until it has ended."""
        assert process.stdout is not None and process.stderr is not None
        complaints = threading.Thread(target=self._keep, args=(process.stderr,), name="doctor-child-stderr", daemon=True)
        complaints.start()
        for line in process.stdout:
            try:
                self._lines.put(json.loads(line))
            except ValueError:  # it died while it wrote
                self._stderr.append(line.decode(errors="replace").rstrip()[:500])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # leaves it unreaped, so that the id of its group is not reused
        with self._lock:
            _kill(process)  # its own children
            code = process.wait()
            complaints.join(0.5)
            self._how = self._how or (f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}")
            self._ended.set()
        self._lines.put(None)

    def _keep(self, stream: IO[bytes]) -> None:
        for line in iter(lambda: stream.readline(4096), b""):
            if line.strip() and not line.startswith(b"frame #"):  # a C++ stack trace does not help a user
                self._stderr.append(line.decode(errors="replace").rstrip()[:500])


def run_in_child(phase: ExamPhase, context: Context) -> dict[str, Any]:
    """Has the child run one of phases 4 to 7. Phase 7 needs no other rank, so a fresh child runs it if the first one is gone.

    Raises: PhaseFailed.
    """
    settings, identity = context.settings, context.identity
    members = context.alive or (identity.rank,)
    host = context.roster.get(members[0], {})
    listen = host.get("listen", {})  # its address is that of --ifname, if given
    sizes = sorted(settings.sizes)
    arguments = {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "local_world_size": identity.local_world_size,
        "members": members,
        "sizes": sizes[:2] if settings.quick else sizes,
        "quick": settings.quick,
        "backend": settings.backend,
        "store": {"rank": members[0], "address": listen.get("address") or host.get("address", ""), "port": listen.get("store_port", 0)},
    }
    child: Child = context.kept["child"]
    if phase is ExamPhase.COMPUTE and child.ended:
        child.close()
        child = context.kept["child"] = Child(identity, settings, host=None)
    return child.run(phase, arguments, context.deadline, context.announce)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def python_environ() -> dict[str, str]:
    """This process's environment, for a Python process that finds this package, and no signal.py or torch.py in the current folder."""
    here = str(Path(__file__).resolve().parents[3])  # the folder of the package, however this process found it
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", "")))), "PYTHONSAFEPATH": "1"}
