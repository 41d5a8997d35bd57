"""``numscope capsule``: a run's capsules are named, else the command that makes one; nothing of the run's folder is run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from numscope.cli.command import main
from tests.page.test_recorded import FINDING, document


def called(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as end:
        main(["capsule", str(run)])
    assert isinstance(end.value.code, int)
    return end.value.code, capsys.readouterr().out.splitlines()


def run_of(folder: Path, command: list[str], findings: bool = True) -> Path:
    (folder / "findings-rank0.json").write_text(document(*[FINDING] * findings))
    (folder / "run.json").write_text(json.dumps({"attempts": [{"attempt": 1, "command": command}]}))
    return folder


@pytest.mark.parametrize(
    ("command", "again"),
    [
        (["python", "/bin/numscope", "run", "--log-dir", "a b", "train.py", "--lr", "1"],
         "python /bin/numscope run --check capsule --log-dir 'a b' train.py --lr 1"),
        (["python", "-m", "numscope", "run", "--check", "again:every=5", "train.py"],
         "python -m numscope run --check capsule,again:every=5 train.py"),
        (["python", "-u", "train.py", "run"], "numscope run --check capsule train.py run"),
        (["python", "-m", "my.train"], "numscope run --check capsule -m my.train"),
        ([], "numscope run --check capsule"),
    ],
)  # fmt: skip
def test_the_command_is_named_that_leaves_one(command: list[str], again: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = called(run_of(tmp_path, command), capsys)
    assert status == 1 and lines[0].startswith("no capsule: none was asked for. The run's first finding is at step ")
    assert lines[1] == f"  {again}" and shlex.split(lines[1]) == shlex.split(again)


def test_those_of_the_run_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_of(tmp_path, []) / "capsule-step3-rank0"
    folder.mkdir()
    (folder / "repro.py").write_text("raise SystemExit('it is not run')")
    status, lines = called(tmp_path, capsys)
    assert (status, lines) == (0, [f"{folder}: python {shlex.quote(str(folder / 'repro.py'))} shows the failure without numscope"])


def test_of_a_run_without_a_finding_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(run_of(tmp_path, [], findings=False), capsys) == (1, ["no capsule: the run has no finding"])


def test_of_a_run_that_was_asked_for_one_the_output_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, ["numscope", "run", "--check", "capsule", "train.py"])
    assert called(run, capsys) == (1, ["no capsule: one was asked for, and the run's output says why there is none"])
