"""A report on a real terminal: lines of code are whole and linked, however narrow it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cli.test_run import SOURCES
from tests.cli.test_run_to import LINE, TRAIN

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed: reports are looked at on a terminal")


def printed(folder: Path, **env: str) -> str:
    script = folder / "a folder" / ("deep" * 20) / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(TRAIN, encoding="utf-8")
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM", "PYCHARM_HOSTED")}
    whole = {**known, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", **env}
    words = ["-m", "numscope", "run", "--alerts", "off", str(script)]
    child = pexpect.spawn(sys.executable, words, env=whole, encoding="utf-8", timeout=120, dimensions=(40, 60))
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 3
    return str(child.before)


def test_place_is_whole_and_a_link_to_its_line(tmp_path: Path) -> None:
    said = printed(tmp_path, TERM="xterm-256color")
    path = f"{tmp_path}/a folder/{'deep' * 20}/train.py"
    assert f"{path}:{LINE}" in said
    assert f"{path.replace(' ', '%20')}#{LINE}\x1b\\" in said


def test_terminal_without_links_gets_the_plain_place(tmp_path: Path) -> None:
    said = printed(tmp_path, TERM="dumb")
    assert f"Line     {tmp_path}/a folder/{'deep' * 20}/train.py:{LINE}\r\n" in said
    assert "\x1b" not in said


def test_pycharms_console_gets_its_own_form(tmp_path: Path) -> None:
    said = printed(tmp_path, TERM="dumb", PYCHARM_HOSTED="1")
    assert f'Line     File "{tmp_path}/a folder/{"deep" * 20}/train.py", line {LINE}\r\n' in said
