"""What is said on stderr changes no run, though nobody reads it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from numscope.report import stderr

SCRIPT = """
import torch
import numscope

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
numscope.watch(model)
optimizer = torch.optim.SGD(model.parameters(), 1.0)
for _ in range(3):  # gradients are never cleared: an alert
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print("trained")
"""


@pytest.mark.parametrize("entrance", [(), ("-m", "numscope", "run")], ids=["watch", "run"])
def test_a_healthy_run_ends_well_though_the_reader_of_stderr_is_gone(entrance: tuple[str, ...], tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, *entrance, str(script)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, text=True, check=False, env=environment)
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, "trained\n")


@pytest.mark.parametrize("text", ["half is left out", "numscope: half is left out", "numscope half is left out"])
def test_warnings_have_one_beginning_where_no_logging_is_configured(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, root = logging.getLogger("numscope"), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(log, "handlers", [one for one in log.handlers if isinstance(one, stderr._Bare)])
    log.warning(text)
    log.info("for nobody")
    assert capsys.readouterr().err == "numscope: half is left out\n"
    root.addHandler(logging.NullHandler())  # the program's own
    log.warning(text)
    assert capsys.readouterr().err == ""
