"""``numscope diff``: its status, its output, its refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import numscope
from numscope.cli.diff import diff
from tests.cli.calling import called
from tests.runs.test_comparison import rounded_runs, write
from tests.warm import COLD

SOURCES = str(Path(numscope.__file__).parent.parent)


def cli(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8", "COLUMNS": "110"}
    return subprocess.run([sys.executable, "-m", "numscope", "diff", *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rounded_runs(folder)
    return folder


def test_a_divergence_ends_with_1_and_the_report(runs: Path) -> None:
    done = cli("a", "b", cwd=runs)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (Path(__file__).parents[1] / "runs" / "golden" / "diff.txt").read_text(encoding="utf-8")


def test_equal_runs_end_with_0(runs: Path) -> None:
    done = cli("a", "a", cwd=runs)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Equal: every stored number" in done.stdout


def test_wrong_usage_ends_with_2_and_one_line(runs: Path) -> None:
    done = cli("a", "nowhere", cwd=runs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("numscope: B: got 'nowhere', expected a run's folder")
    assert done.stderr.count("\n") == 1
    assert cli("a", cwd=runs).stderr == "numscope: got no B, expected numscope diff [options] A B.\n"


def test_only_a_run_is_suggested_in_place_of_what_is_none(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mime").write_text("")
    assert called("diff", str(tmp_path / "nine"), str(runs)).stderr.endswith("There is nothing of that name.\n")
    (tmp_path / "mine" / "run.json").write_text("{}")
    assert called("diff", str(tmp_path / "nine"), str(runs)).stderr.endswith(f"Did you mean {str(tmp_path / 'mine')!r}?\n")


def test_json_is_the_document(runs: Path) -> None:
    done = cli("a", "b", "--json", "--stats", "rms,amax", "--tolerance", "1e-3", "--noise", "a", cwd=runs)
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema_version"], document["diverged"], document["calibration"]) == (1, 1, True, "noise")
    assert document["stats"] == ["rms", "amax"]
    assert [m["layer_b"] for m in document["modules"]] == ["module.layers.0.fc2", "module.layers.1.fc1"]


def test_it_begins_with_the_settings_that_differ(runs: Path, tmp_path: Path) -> None:
    facts = {"threads": "2", "seed": "1", "version of torch": "2.13.0"}
    for name, command, environment in (
        ("a", ["python", "t.py", "--lr", "1"], facts),
        ("b", ["python", "t.py", "--lr", "2"], {**facts, "threads": "1"}),
    ):
        shutil.copytree(runs / name, tmp_path / name)
        file = tmp_path / name / "run.json"
        told = json.loads(file.read_text())
        told["attempts"][-1] |= {"command": command, "environment": environment, "config": "x: \x1b[31m\n" * 400 if name == "b" else ""}
        file.write_text(json.dumps(told))
    done = cli("a", "b", cwd=tmp_path)
    head, rest = done.stdout.split("\n\n", 1)
    lines = [line.rstrip() for line in head.splitlines()]
    assert lines[:4] == [
        "Settings that differ, A above B",
        "  command        python t.py --lr 1",
        "                 python t.py --lr 2",
        "  configuration  none",
    ]
    assert (
        lines[4].lstrip().startswith("x: \\x1b[31m x:") and " … " in lines[4] and lines[5:] == ["  threads        2", "                 1"]
    )
    assert rest.startswith("A ")
    settings = json.loads(cli("a", "b", "--json", cwd=tmp_path).stdout)["settings"]
    assert [one["name"] for one in settings] == ["command", "configuration", "threads"] and settings[2] == {
        "name": "threads",
        "a": "2",
        "b": "1",
    }
    assert json.loads(cli("b:0", "b:1", "--json", cwd=tmp_path).stdout)["settings"] == []


def test_what_an_older_run_did_not_record_is_no_difference(runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / name, tmp_path / name)
    file = tmp_path / "b" / "run.json"
    told = json.loads(file.read_text())
    del told["attempts"][-1]["environment"]
    file.write_text(json.dumps(told))
    assert json.loads(cli("a", "b", "--json", cwd=tmp_path).stdout)["settings"] == []


def test_two_steps_of_one_run(runs: Path) -> None:
    done = cli("b:0", "b:1", cwd=runs)
    assert done.returncode == 0
    assert "step 0 with step 1" in done.stdout
    assert cli("b:1", "b:2", "--tolerance", "0.001", cwd=runs).returncode == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stats", "amx"], "--stats[0]: got 'amx', expected one of rms, mean,"),
        (["--tolerance", "0"], "--tolerance: got 0.0, expected a number between 0 and 1"),
        (["--tolerance", "x"], "got 'x', expected a number between 0 and 1"),
        (["--noise", "gone"], "--noise: got 'gone', expected a run's folder"),
    ],
)
def test_wrong_option_is_refused_under_its_own_name(words: list[str], message: str, tmp_path: Path) -> None:
    run = write(tmp_path / "a", ("fc", "output", torch.ones(2)))
    done = CliRunner().invoke(diff, [run, run, *words])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_torch_is_not_loaded(runs: Path) -> None:
    code = (
        "import sys\nfrom numscope.cli.diff import diff\n"
        "try:\n    diff.main(['a', 'b'])\nexcept SystemExit:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run([COLD, "-c", code], cwd=runs, env=env, capture_output=True, text=True, timeout=120)
    assert done.stderr == "False\n"
