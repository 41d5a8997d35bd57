"""``numscope doctor explain``: exit codes, JSON, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from numscope.doctor.explain import run

SAMPLES = Path(__file__).parent / "samples"


def test_it_ends_with_the_code_of_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(SAMPLES / "torchrun" / "sigkill.log")]) == 1
    assert "fault rank-killed" in capsys.readouterr().out
    assert run([str(SAMPLES / "flight_recorder" / "ok")]) == 0


def test_no_path_that_exists_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nowhere.log"]) == 2
    assert capsys.readouterr().err == "numscope: PATH: got 'nowhere.log', expected files or folders that exist.\n"


def test_json_goes_to_its_file_or_alone_to_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sample = str(SAMPLES / "flight_recorder" / "op")
    assert run([sample], str(tmp_path / "out.json")) == 1
    written = json.loads((tmp_path / "out.json").read_text())
    capfd.readouterr()
    run([sample], "-")
    assert json.loads(capfd.readouterr().out) == written
    assert written["findings"][0]["id"] == "collective-mismatch"
    assert run([sample], str(tmp_path / "no" / "folder.json")) == 2


def test_it_does_not_load_torch() -> None:
    script = "import sys\nfrom numscope.doctor.explain import run\nrun(sys.argv[1:])\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(SAMPLES)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
