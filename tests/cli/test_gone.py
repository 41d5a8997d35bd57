"""How a run that trains with others ends: with the status that our finding gives, whatever C++ does at exit, and with nothing lost."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

import numscope
from tests.warm import COLD

SOURCES = str(Path(numscope.__file__).parent.parent)

GROUP = """
    import torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""
ABORTS_AT_EXIT = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.abort, None, None)
"""
STOP = """
    class Stop(Exception):
        exit_status = 3
        finding = None
"""


def run(folder: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    (folder / "s.py").write_text("".join(textwrap.dedent(part) for part in parts))
    whole = {**os.environ, "PYTHONPATH": SOURCES, "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": ""}
    command = [COLD, "-m", "numscope", "run", "s.py"]
    return subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("destroyed", [False, True])
def test_abort_in_the_teardown_of_a_distributed_process_leaves_our_status(tmp_path: Path, destroyed: bool) -> None:
    done = run(
        tmp_path, GROUP, ABORTS_AT_EXIT, STOP, "try:\n    raise Stop\nfinally:\n    " + ("dist.destroy_process_group()" * destroyed or "0")
    )
    assert done.returncode == 3, done.stderr
    assert "stopped at" in done.stderr


def test_only_our_own_finding_in_a_distributed_process_bypasses_the_teardown(tmp_path: Path) -> None:
    assert run(tmp_path, GROUP, ABORTS_AT_EXIT, "raise SystemExit(3)").returncode == -6
    assert run(tmp_path, "import torch.distributed\n", ABORTS_AT_EXIT, STOP, "raise Stop").returncode == -6


def test_nothing_that_python_does_at_exit_is_lost(tmp_path: Path) -> None:
    """Threads, exit handlers in their order, buffered output of Python and of C, files that nobody closed."""
    endings = """
        import atexit, ctypes, threading, time
        def late():
            time.sleep(0.2)
            print("thread")
        threading.Thread(target=late).start()
        threading.Thread(target=time.sleep, args=(999,), daemon=True).start()
        atexit.register(print, "first registered")
        atexit.register(lambda: 1 / 0)
        ctypes.CDLL(None).printf(b"from C\\n")
        text, data = open("text", "w"), open("data", "wb")
        text.write("kept")
        data.write(b"kept")
        reader = open("s.py")
        raise Stop
    """
    done = run(tmp_path, GROUP, STOP, endings)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "from C\nthread\nfirst registered\n"  # what C printed is flushed when the exception is handled
    assert done.stderr.count("ZeroDivisionError") == 1
    assert ((tmp_path / "text").read_text(), (tmp_path / "data").read_bytes()) == ("kept", b"kept")
