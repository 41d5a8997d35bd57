"""``numscope run`` switched by the debug tool's environment variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import numscope

SOURCES = str(Path(numscope.__file__).parent.parent)
CONFIG = "s:\n  enabled: True\n  layers: {layer_types: [fc1]}\n  statistics: {enabled: True, stats: [max], tensors: [activation]}\n"
SCRIPT = """
print("first line")
import torch
from torch import nn
net = nn.Sequential()
net.add_module("fc1", nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 4)).mean().backward()
optimizer.step()
"""


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "stats.yaml").write_text(CONFIG)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NV_DEBUG_TOOL")} | {"PYTHONPATH": SOURCES}
    command = [sys.executable, "-m", "numscope", "run", *options, "train.py"]
    given = {f"NV_DEBUG_TOOL_{name}": value for name, value in variables.items()}
    return subprocess.run(command, cwd=folder, env=clean | given, capture_output=True, text=True, timeout=120)


def test_switched_on_it_collects_what_its_configuration_asks_for(tmp_path: Path) -> None:
    done = run(tmp_path, ENABLED="1", CONFIG="stats.yaml", LOG_DIR="logs")
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "logs" / "debug_statistics_logs").iterdir()
    assert "fc1_activation_max" in log.read_text()


def test_options_go_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(CONFIG.replace("[max]", "[min]"))
    done = run(tmp_path, "--config", "other.yaml", ENABLED="1", CONFIG="stats.yaml", LOG_DIR="logs")
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "logs" / "debug_statistics_logs").iterdir()
    assert "fc1_activation_min" in log.read_text() and "fc1_activation_max" not in log.read_text()


@pytest.mark.parametrize("variables", [{"ENABLED": "0", "CONFIG": "no.yaml"}, {"CONFIG": "no.yaml"}, {"ENABLED": "1"}])
def test_switched_off_or_without_a_configuration_nothing_is_collected(tmp_path: Path, variables: dict[str, str]) -> None:
    done = run(tmp_path, **variables)
    assert (done.returncode, done.stdout) == (0, "first line\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats.yaml", "train.py"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ENABLED": "true"}, "NV_DEBUG_TOOL_ENABLED: got 'true', expected 1 (on), 0 or nothing (off). Write 1."),
        ({"ENABLED": "1", "CONFIG": "no.yaml"}, "NV_DEBUG_TOOL_CONFIG: got 'no.yaml', no such file, expected a YAML file's path."),
        ({"ENABLED": "1", "CONFIG": "."}, "NV_DEBUG_TOOL_CONFIG: got '.', a folder, expected a YAML file's path."),
        ({"ENABLED": "1", "CONFIG": "train.py"}, "train.py"),
        ({"ENABLED": "1", "LOG_DIR": "train.py"}, "NV_DEBUG_TOOL_LOG_DIR: got 'train.py', a file, expected a folder's path."),
    ],
)
def test_wrong_variable_stops_before_the_scripts_first_line(tmp_path: Path, variables: dict[str, str], message: str) -> None:
    done = run(tmp_path, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
