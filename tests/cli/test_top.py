"""``numscope top``: printed once, and live in a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_top_screen import growing
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import write

MOST_WAIT_S = 60.0
ALTERNATE, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def top(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "numscope", "top", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


def test_in_a_pipe_it_prints_once_without_colors(tmp_path: Path) -> None:
    write(tmp_path, growing(), part_rows=1000)
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    done = top(tmp_path, COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    assert "✖ step 2, rank 0: nan in decoder.layers.1.mlp.fc1 (Linear) output" in done.stdout
    assert "\x1b" not in done.stdout
    assert "decoder.layers.0.mlp.fc1 output  " in done.stdout and "…" not in done.stdout  # nothing is cut


def test_ascii_terminal_gets_escapes(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    assert r"\u2716 step 2" in top(tmp_path, PYTHONIOENCODING="ascii").stdout


def test_folder_without_a_run_is_refused() -> None:
    done = top("none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("numscope: RUN: got 'none', expected a run's folder")


class Terminal:
    """A pseudo-terminal with a command in it."""

    def __init__(self, *words: object, rows: int = 24, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(theirs)
        env = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            env.pop(name, None)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "numscope", "top", *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, env=env
        )
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, pattern: str) -> None:
        """Read until the pattern has been drawn after what was waited for before."""
        end = time.monotonic() + MOST_WAIT_S
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"{pattern} was never drawn: {self.text!r}"
            self._read()
        self.text = self.text[found.end() :]

    def _read(self) -> None:
        os.set_blocking(self.ours, False)
        with contextlib.suppress(BlockingIOError, OSError):
            self.text += os.read(self.ours, 1 << 16).decode(errors="replace")
            return
        time.sleep(0.02)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        """The status, once the terminal is as it was."""
        end = time.monotonic() + MOST_WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end
            self._read()
        self._read()
        assert self.text.rfind(BACK) > self.text.rfind(ALTERNATE), "the screen from before is back"
        assert CURSOR in self.text
        assert termios.tcgetattr(self.theirs)[3] == self.before[3], "keys are echoed again, and wait for lines"
        return self.process.returncode


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "findings-rank0.json").write_text(document())
    terminal = Terminal(tmp_path)
    yield terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.ours)
    os.close(terminal.theirs)


def test_new_records_appear_by_themselves_and_q_ends_it(opened: Terminal, tmp_path: Path) -> None:
    opened.until("No finding")
    opened.until("No statistics of tensors yet")
    write(tmp_path, growing(), part_rows=1000)
    opened.until("decoder.layers.0.mlp.fc1 output")
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    opened.until("step 2, rank 0: nan in decoder.layers.1.mlp.fc1")
    opened.press("xq")
    assert opened.end() == 0


def test_ctrl_c_ends_it(opened: Terminal) -> None:
    opened.until("No finding")
    opened.process.send_signal(signal.SIGINT)
    assert opened.end() == 0


def test_sigterm_puts_the_terminal_back(opened: Terminal) -> None:
    opened.until("No finding")
    opened.process.send_signal(signal.SIGTERM)
    assert opened.end() == 128 + signal.SIGTERM


def test_it_follows_the_terminals_size(opened: Terminal) -> None:
    opened.until("◆ step 1, rank 0: GradScaler skipped the step")
    opened.resize(24, 30)
    opened.until("◆ step 1, rank 0: GradScaler …")


def test_folder_that_is_damaged_or_empty_for_a_while_ends_nothing(opened: Terminal, tmp_path: Path) -> None:
    opened.until("No finding")
    (tmp_path / "findings-rank0.json").write_text("{")
    opened.until("findings-rank0.json could not be read")
    (tmp_path / "findings-rank0.json").unlink()
    opened.until("RUN: got ")
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    opened.until("1 finding")
    opened.press("q")
    assert opened.end() == 0
