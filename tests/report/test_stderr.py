"""What is said on stderr changes no run, though nobody reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
