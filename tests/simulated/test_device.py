"""The device path on an accelerator that is simulated: memory the host can't read, copies that come late, every wait counted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HAS_COMPILER = shutil.which(os.environ.get("CXX", "g++")) is not None
SCENARIOS = [
    line.partition("(")[0].removeprefix("def ")
    for line in Path(__file__).with_name("scenarios.py").read_text().splitlines()
    if line.startswith("def ") and line.endswith("() -> None:")
]


@pytest.mark.skipif(not HAS_COMPILER, reason="the simulated accelerator needs a C++ compiler (g++, or the one that CXX names)")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_a_simulated_accelerator(scenario: str) -> None:
    code = f"from tests.simulated import scenarios\nscenarios.{scenario}()\nprint('done')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert run.stdout.endswith("done\n"), run.stderr
