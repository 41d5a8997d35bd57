"""The one process of a rank that holds torch: started early, told what to do, killed with its process group at the deadline.

Torch, gloo and NCCL can hang where nothing in their process can end them. So they live in a child that announces, a JSON line each, every
step before and after it; what it measured comes as it is measured. Whoever kills it knows what it was doing and keeps what it had.

Our side sends ``{"phase": 4, "arguments": {…}}``; the child's lines are ``doing``, ``done``, ``set``, ``add`` and ``end`` (child/report).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from numscope.doctor.budget import Deadline
from numscope.doctor.phases.context import Context, PhaseFailed
from numscope.doctor.records import PHASES, Identity, Settings

LISTEN_FD = "NUMSCOPE_DOCTOR_LISTEN_FD"  # tells the child the store's socket
OWN_SHARE = 0.85  # of a phase's time, after which the child gives up by itself: one that its agent must kill has hung
KILL_SHARE = 0.94  # after which it is killed, so that its agent's own limit never comes before what is known of the child
_STDERR_LINES = 40
_LINE_BYTES = 1 << 20
_REAP_S = 2.0  # for a killed process to go; one in the kernel's hands (a driver that hangs) stays


class Child:
    """A rank's process with torch in it.

    Starting it does not block, so that torch's import (seconds) runs while the ranks meet. It dies with its agent: by the kernel's
    parent-death signal, and by the end of its standard input.

    Args:
        store: opens the socket that torch's store will listen on, if this is the rank that hosts it.
    """

    def __init__(self, identity: Identity, settings: Settings, store: bool = True) -> None:
        self.identity = identity
        self._listener = _listen() if store else None
        self.store_port = self._listener.getsockname()[1] if self._listener is not None else 0
        self._environ = _environ(settings, self._listener)
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: it has ended
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._whose = f"rank {identity.rank}'s torch process"
        self._how = ""  # it ended
        self._hung = False
        self._phase = 0  # that it was last told
        self._doing = "start"
        self._since = time.monotonic()
        # The parent-death signal comes when the thread dies that started the process: so one that lives as long as it.
        threading.Thread(target=self._live, name="doctor-child", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether it is gone, killed or by itself."""
        return self._ended.is_set() or self._hung

    @property
    def process_group(self) -> int:
        """Number of its process group, 0 before it has one."""
        return self._process.pid if self._process is not None else 0

    def run(self, phase: int, arguments: Mapping[str, Any], deadline: Deadline, say: Callable[[str], None]) -> dict[str, Any]:
        """Has it do a phase; its data.

        Args:
            arguments: JSON values, as the phase's file in child/ says; ``limit_s`` and ``end`` (on the host's monotonic clock, since it may
                still import torch) are added: when it is to give up by itself.
            deadline: of the phase; it is killed before, with its process group.
            say: is told each step before it is done.

        Raises: PhaseFailed with what was measured until then.
        """
        data: dict[str, Any] = {}
        if self.ended:
            raise self._failed(f"{self._whose} was gone before it began: {self._how} in {PHASES[self._phase]}", data)
        self._phase = phase
        limit_s = deadline.left * OWN_SHARE
        deadline = deadline.within(deadline.left * KILL_SHARE)
        request = json.dumps({"phase": phase, "arguments": {**arguments, "limit_s": limit_s, "end": time.monotonic() + limit_s}}) + "\n"
        if not self._started.wait(deadline.left) or not self._send(request.encode()):
            self._ended.wait(min(_REAP_S, deadline.left))  # so that its exit status is known
            raise self._failed(f"{self._whose} could not be told to begin: {self._how or 'it does not start'}", data)
        while True:
            try:
                line = self._lines.get(timeout=max(deadline.left, 1e-3))
            except queue.Empty:
                self._hung = True
                self.kill(f"killed after {deadline.seconds:.1f} s")
                sentence = f"{self._whose} hung in {PHASES[phase]}: {self._doing}, for {time.monotonic() - self._since:.1f} s"
                raise self._failed(sentence, data) from None
            if line is None:
                raise self._failed(f"{self._whose} died in {PHASES[phase]}: {self._how}, while it did: {self._doing}", data)
            kind = line["event"]
            if kind == "doing":
                self._doing, self._since = line["what"], time.monotonic()
                say(self._doing)
            elif kind == "set":
                data.update(line["values"])
            elif kind == "add":
                data.setdefault(line["list"], []).append(line["value"])
            elif kind == "end":
                if line["error"]:
                    raise PhaseFailed(line["error"], data)
                return data

    def kill(self, how: str = "killed") -> None:
        """Kills its process group; returns when it is gone, after two seconds at most."""
        with self._lock:
            self._how = self._how or how
            # Not reaped yet (the other thread takes this lock to do so), so that the number is still its own.
            if self._process is not None and not self._ended.is_set():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self._ended.wait(_REAP_S)

    def close(self) -> None:
        """Ends it, by force where it does not end by itself at once. Safe to call twice."""
        if not self._started.wait(_REAP_S) or self._ended.is_set():
            return
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if not self._ended.wait(0.3):
            self.kill("closed")

    def _send(self, data: bytes) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(data)  # far smaller than a pipe's buffer: it does not block
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _failed(self, sentence: str, data: dict[str, Any]) -> PhaseFailed:
        data["child"] = {
            "hung": self._hung,
            "how": self._how,
            "doing": self._doing,
            "doing_s": round(time.monotonic() - self._since, 3),
            "stderr": list(self._stderr),
        }
        return PhaseFailed(sentence, data)

    # ---- the thread that starts it and lives as long as it ------------------------------------------------------------------

    def _live(self) -> None:
        handed = (self._listener.fileno(),) if self._listener is not None else ()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "numscope.doctor.child", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ,
                pass_fds=handed,
                start_new_session=True,  # a process group of its own
            )
        except OSError as error:
            self._how = f"it could not be started: {error.strerror or error}"
            self._ended.set()
            self._started.set()
            self._lines.put(None)
            return
        finally:
            if self._listener is not None:
                self._listener.close()  # the child's alone now: when it dies, others are refused instead of left waiting
        self._process = process
        self._started.set()
        assert process.stdout is not None and process.stderr is not None
        complaints = threading.Thread(target=self._keep, args=(process.stderr,), name="doctor-child-stderr", daemon=True)
        complaints.start()
        for line in iter(lambda: process.stdout.readline(_LINE_BYTES), b""):  # type: ignore[union-attr]
            self._hear(line)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # leaves it unreaped, so that its group's number is not given away
        with self._lock:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it started itself
            code = process.wait()
            complaints.join(0.5)
            self._how = self._how or (f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}")
            self._ended.set()
        self._lines.put(None)

    def _hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if message["event"] in ("doing", "done", "set", "add", "end"):
                self._lines.put(message)
        except (ValueError, TypeError, KeyError):
            self._stderr.append(line.decode(errors="replace").rstrip()[:500])

    def _keep(self, stream: IO[bytes]) -> None:
        for line in iter(lambda: stream.readline(4096), b""):
            if line.strip() and not line.startswith(b"frame #"):  # of a trace through C++, which says nothing to a user
                self._stderr.append(line.decode(errors="replace").rstrip()[:500])


def of(context: Context, fresh: bool = False) -> Child:
    """The rank's child.

    Args:
        fresh: another one, if it is gone.
    """
    child = context.kept.get("child")
    if child is None or (fresh and child.ended):
        if child is not None:
            child.close()
        child = context.kept["child"] = Child(context.identity, context.settings, store=child is None)
    return child


def members(context: Context) -> list[int]:
    """Ranks that take part, ascending."""
    return sorted(context.alive or context.roster or (context.identity.rank,))


def surroundings(context: Context) -> dict[str, Any]:
    """The arguments that every phase has."""
    settings, identity = context.settings, context.identity
    sizes = sorted(settings.sizes)
    return {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "local_world_size": identity.local_world_size,
        "members": members(context),
        "sizes": sizes[:2] if settings.quick else sizes,
        "quick": settings.quick,
        "backend": settings.backend,
    }


def _listen() -> socket.socket | None:
    """A socket on a port of the system's choice; None where there is none, and the store's host says so."""
    try:
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
        except (OSError, ValueError):  # a kernel without IPv6
            return socket.create_server(("", 0), backlog=1024)
    except OSError:
        return None


def _environ(settings: Settings, listener: socket.socket | None) -> dict[str, str]:
    environ = dict(os.environ)
    here = str(Path(__file__).resolve().parents[3])  # where numscope is, however this process found it
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, environ.get("PYTHONPATH", ""))))
    environ["PYTHONSAFEPATH"] = "1"  # no torch.py of the current folder
    if settings.ifname:
        environ["GLOO_SOCKET_IFNAME"] = environ["NCCL_SOCKET_IFNAME"] = settings.ifname
    if listener is not None:
        environ[LISTEN_FD] = str(listener.fileno())
    else:
        environ.pop(LISTEN_FD, None)
    return environ
