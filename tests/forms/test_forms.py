"""Forms of training that real scripts have: each is run unmodified under ``numscope run``, and the true line is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import numscope

SCRIPTS = Path(__file__).parent / "scripts"
SOURCES = str(Path(numscope.__file__).parent.parent)

FORMS = [
    ("categorical.py", 1),
    ("assert.py", 1),
    ("exit.py", 1),
    ("skip.py", 0),
    ("methods.py", 3),
    ("two.py", 3),
    ("loose.py", 3),
    ("many.py", 3),
    ("compiled.py", 3),
    ("no_grad_between_calls.py", 3),
    ("forward_called_directly.py", 3),
    ("closure_step.py", 3),
    ("spawned_child.py", 3),
    ("between_two_models.py", 3),
    ("returns_in_place.py", 3),
    ("many_results.py", 3),
    ("filled_buffer.py", 3),
    ("many_acts_root.py", 3),
    ("redirected_forward.py", 3),
    ("guarded_step.py", 0),
    ("cured_gradient.py", 0),
    ("mask_by_item.py", 3),
    ("lbfgs.py", 3),
    ("made_weights.py", 3),
    ("reentrant_checkpoint.py", 3),
    ("jagged.py", 3),
    ("anomaly.py", 1),
    ("anomaly_in_loss.py", 1),
    ("force_matching.py", 3),
    ("converted_data.py", 3),
]


WITHOUT_KERNEL = "import sys; sys.modules['numscope.summary._native'] = None; from numscope.cli.command import main; main()"


@pytest.mark.parametrize(("script", "status"), FORMS)
def test_true_line_is_named_and_the_status_is_the_scripts(script: str, status: int) -> None:
    assert_named(SCRIPTS / script, status, "-m", "numscope")


@pytest.mark.parametrize("script", ["two.py", "returns_in_place.py", "many_results.py", "filled_buffer.py", "converted_data.py"])
def test_true_line_is_named_where_nothing_is_compiled(script: str) -> None:
    assert_named(SCRIPTS / script, 3, "-c", WITHOUT_KERNEL)


def assert_named(path: Path, status: int, *command: str) -> None:
    fault = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if "# FAULT" in line)
    env = {**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", "COLUMNS": "250"}
    done = subprocess.run([sys.executable, *command, "run", str(path)], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith(("Line ", "numscope: contained:"))]
    assert lines and f"{path}:{fault}" in lines[0], done.stderr
    assert ("numscope: works without its native kernel" in done.stderr) is ("-c" in command)
