"""Frameworks, each with its tests in a process of its own: what importing one does to a process is no other test's business."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BESIDE = Path(sys.prefix) / "beside"  # where ./dev setup puts a framework that doesn't go with the other packages
FILES = sorted((HERE / "frameworks").glob("with_*.py"))
if sys.version_info < (3, 11):  # pyproject.toml leaves out what these need
    FILES = [path for path in FILES if path.stem not in ("with_hugging_face", "with_keras", "with_ray")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_framework(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-rs", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}", str(path)]
    packages = [str(BESIDE / path.stem.removeprefix("with_")), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(packages)}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True)
    text = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
    skipped = re.search(r"^SKIPPED \[\d+\] .*?: (.*)$", text, re.MULTILINE)
    if skipped and not re.search(r"\d+ (passed|failed|error)", text):
        pytest.skip(skipped[1])
    assert done.returncode == 0, done.stdout + done.stderr
