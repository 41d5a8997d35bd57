"""``numscope run --config``: statistics of an unchanged script, and what is refused before its first line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import numscope

SOURCES = str(Path(numscope.__file__).parent.parent)
CONFIG = """
watched:
  enabled: True
  layers: {layer_types: [fc1]}
  statistics:
    enabled: True
    stats: [max, rms]
    tensors: [activation, weight]
"""
SCRIPT = """
    print("first line")
    import sys, torch
    from torch import nn
    torch.manual_seed(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 1)
        def forward(self, x):
            return self.fc2(torch.relu(self.fc1(x)))
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        out = net(torch.full((2, 4), step + 1.0))
        loss = out.mean() / (0.0 if "bad" in sys.argv and step == 1 else 1.0)
        loss.backward()
        optimizer.step()
    print(net.fc1.weight.sum().item())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "stats.yaml").write_text(CONFIG)
    return tmp_path


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=clean, capture_output=True, text=True, encoding="utf-8", timeout=120)


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "numscope", "run", *words, cwd=cwd)


def lines(folder: Path) -> list[str]:
    text = (folder / "logs" / "debug_statistics_logs" / "globalrank-0.log").read_text(encoding="utf-8")
    return [re.sub(r"\s+", " ", line) for line in text.splitlines()]


def test_statistics_of_an_unchanged_script_are_written_and_it_computes_the_same(folder: Path) -> None:
    done = run("--config", "stats.yaml", "--log-dir", "logs", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == python("train.py", cwd=folder).stdout
    assert [line for line in lines(folder) if "activation_max" in line] == [
        f"INFO - fc1_activation_max iteration={step:06d} value={step + 1}" for step in range(3)
    ]
    assert len(lines(folder)) == 3 * 4


@pytest.mark.parametrize(("words", "status"), [([], 3), (["--on-nonfinite", "warn"], 0), (["--on-nonfinite", "off"], 0)])
def test_detection_stands_beside_statistics_or_is_off(folder: Path, words: list[str], status: int) -> None:
    done = run("--config", "stats.yaml", "--log-dir", "logs", *words, "train.py", "bad", cwd=folder)
    assert done.returncode == status, done.stderr
    assert ("train.py" in done.stderr) is ("off" not in words)
    assert any("iteration=000000" in line for line in lines(folder))


def test_features_of_ones_own_are_files_and_folders(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "a.py").write_text("import numscope\n@numscope.statistic('spread')\ndef f(s): return s.max - s.min\n")
    (folder / "b.py").write_text("import numscope\n@numscope.rule('ever')\ndef f(o): return 'seen' if o.step == 2 else None\n")
    (folder / "stats.yaml").write_text(CONFIG.replace("[max, rms]", "[spread]"))
    done = run("--config", "stats.yaml", "--features", "own", "--features", "b.py", "--log-dir", "logs", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "INFO - fc1_activation_spread iteration=000002 value=0" in lines(folder)
    assert done.stderr.count("numscope: alert: step 2: ever: fc1 activation: seen\n") == 1


def test_all_that_is_wrong_with_a_config_is_told_before_the_first_line(folder: Path) -> None:
    (folder / "stats.yaml").write_text(
        CONFIG.replace("rms", "rmss").replace("enabled: True\n    stats", "enabled: yess\n    stats").replace("weight", "weigth")
    )
    done = run("--config", "stats.yaml", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    told = done.stderr.splitlines()
    assert told[0] == "numscope: 3 errors:"
    assert len(told) == 4
    assert all(line.startswith("  stats.yaml: watched.statistics.") for line in told[1:])
    assert 'Did you mean "rms"?' in done.stderr
    assert not (folder / "numscope_logs").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--config", "stat.yaml"], 'numscope: stat.yaml: no such file, expected a YAML file. Did you mean "stats.yaml"?'),
        (
            ["--features", "own.py"],
            "numscope: --features: given without a configuration, expected statistics to write. Add --config FILE (config=).",
        ),
        (
            ["--config", "stats.yaml", "--features", "own.py"],
            "numscope: features: got 'own.py', expected a Python file or a folder of such. It is not there.",
        ),
        (
            ["--on-nonfinite", "off"],
            "numscope: --on-nonfinite: got 'off' without --config or --recipe, expected something to do. Add one of them, or leave it out.",
        ),
    ],
)
def test_wrong_usage_is_refused(folder: Path, words: list[str], text: str) -> None:
    done = run(*words, "train.py", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{text}\n")


def test_reason_why_a_features_file_was_left_out_stands_beside_the_names_it_leaves_unknown(folder: Path) -> None:
    (folder / "own.py").write_text("import numscope\nx = 1 / 0\n@numscope.statistic('spread')\ndef f(s): return 0\n")
    (folder / "stats.yaml").write_text(CONFIG.replace("[max, rms]", "[spread]"))
    done = run("--config", "stats.yaml", "--features", "own.py", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder / 'own.py'} is left out: ZeroDivisionError at {folder / 'own.py'}:2: division by zero" in done.stderr
    assert 'got "spread", expected one of' in done.stderr


def test_config_that_selects_nothing_stops_the_script_before_its_weights_move(folder: Path) -> None:
    (folder / "stats.yaml").write_text(CONFIG.replace("fc1", "qkv"))
    done = run("--config", "stats.yaml", "--log-dir", "logs", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "first line\n")
    assert "Traceback" not in done.stderr
    assert 'stats.yaml: watched.layers.layer_types: "qkv" is neither part of a layer\'s name nor a class' in done.stderr
    assert f"\nnumscope: stopped at {folder / 'train.py'}:" in done.stderr


def test_folder_that_can_not_be_written_is_why_nothing_was_watched(folder: Path) -> None:
    (folder / "numscope_logs").write_text("a file")
    done = run("--config", "stats.yaml", "train.py", cwd=folder)
    assert done.returncode == 2
    assert "log_dir: got 'numscope_logs', expected a folder" in done.stderr
    assert done.stderr.endswith("numscope: nothing was watched: the error above stopped it\n")


def test_config_is_checked_without_torch(folder: Path) -> None:
    (folder / "bare.py").write_text("import sys\nprint('torch' in sys.modules)\n")
    done = run("--config", "stats.yaml", "bare.py", cwd=folder)
    assert done.stdout == "False\n", done.stderr


def test_relative_paths_are_those_of_the_command_line_though_the_script_changes_its_folder(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    script = (folder / "train.py").read_text()
    (folder / "train.py").write_text(f"import os\nos.chdir('elsewhere')\n{script}")
    words = ("--config", "stats.yaml", "--log-dir", "logs", "--json", "found.json")
    done = python("-m", "numscope", "run", *words, "train.py", "bad", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert not any((folder / "elsewhere").iterdir())
    assert (folder / "found.json").is_file() and (folder / "logs" / "debug_statistics_logs").is_dir()
