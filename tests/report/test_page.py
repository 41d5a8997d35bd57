"""The page that a run with a finding writes by itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from numscope.page import unasked
from numscope.report import page
from numscope.report.page import Due
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import two_layers, write

SCRIPT = """\
import os, signal, sys
import torch
import numscope

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(log_dir):
    scope = numscope.watch(model, log_dir=log_dir)
    for step in range(4):
        x = torch.ones(3, 2) if step < 3 else torch.full((3, 2), float("inf"))
        model(x).mean().backward()
        optimizer.step()
"""
LINK = "numscope: to look at it: {}"
COMMAND = "numscope: to look at it:\n  {}"  # alone on its line, so that it can be pasted


def script(folder: Path, *lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT + "\n".join(lines))
    return subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, env={**os.environ, **env}, check=False)


def links(text: str) -> list[str]:
    return re.findall(r"^numscope: to look at it:(?: .+|\n  .+)", text, re.MULTILINE)


def test_own_watch_that_raises_ends_with_its_page(tmp_path: Path) -> None:
    done = script(tmp_path, "train('logs')")
    made = tmp_path / "logs" / "report.html"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == LINK.format(made.as_uri())
    text = made.read_text(encoding="utf-8")
    assert '"killed":[]' in text, "the findings' file was whole before the page was made"
    assert '"numFindings":1' in text


def test_run_that_stops_ends_with_its_page(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("scope = ", "# ") + "train('none')")
    command = [sys.executable, "-m", "numscope", "run", "--log-dir", "logs", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == LINK.format((tmp_path / "logs" / "report.html").as_uri())
    assert re.search(r'"numSteps":[34],', (tmp_path / "logs" / "report.html").read_text(encoding="utf-8")), "its history is in it"


def test_run_without_a_folder_or_without_a_finding_writes_none(tmp_path: Path) -> None:
    assert links(script(tmp_path, "train(None)").stderr) == []
    fine = script(
        tmp_path, "scope = numscope.watch(model, log_dir='logs')", "model(torch.ones(1, 2)).mean().backward()", "optimizer.step()"
    )
    assert (fine.returncode, links(fine.stderr), list(tmp_path.rglob("report.html"))) == (0, [], [])


def test_script_that_goes_on_after_a_finding_has_its_page_at_its_end(tmp_path: Path) -> None:
    done = script(tmp_path, "try:", "    train('logs')", "except numscope.NonFiniteError:", "    print('caught', file=sys.stderr)")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-2:] == ["caught", LINK.format((tmp_path / "logs" / "report.html").as_uri())]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGTERM)", "os._exit(7)"])
def test_process_that_must_end_at_once_writes_none(tmp_path: Path, end: str) -> None:
    done = script(tmp_path, "try:", "    train('logs')", "except numscope.NonFiniteError:", f"    {end}")
    assert done.returncode in (-15, 7)
    assert (links(done.stderr), (tmp_path / "logs" / "report.html").exists()) == ([], False)


@pytest.mark.parametrize("executable", ["''", "'none'", "'false'"])
def test_page_that_can_not_be_made_leaves_the_status_and_its_command(tmp_path: Path, executable: str) -> None:
    lines = ("try:", "    train('logs')", "except numscope.NonFiniteError:", f"    sys.executable = {executable}", "    sys.exit(5)")
    done = script(tmp_path, *lines)
    assert done.returncode == 5
    assert links(done.stderr) == [COMMAND.format(f"numscope report {tmp_path / 'logs'}")]


def test_interrupted_script_is_told_the_command_and_waits_for_nothing(tmp_path: Path) -> None:
    done = script(tmp_path, "try:", "    train('logs')", "except numscope.NonFiniteError:", "    raise KeyboardInterrupt from None")
    assert links(done.stderr) == [COMMAND.format(f"numscope report {tmp_path / 'logs'}")]
    assert not (tmp_path / "logs" / "report.html").exists()


def test_interactive_session_is_told_the_command_at_once(tmp_path: Path) -> None:
    lines = ("sys.ps1 = '>>> '", "try:", "    train('logs')", "finally:", "    print('end', file=sys.stderr)")
    said = script(tmp_path, *lines).stderr
    assert said.index(COMMAND.format("numscope report logs\n")) < said.index("\nend")


def test_files_of_the_scripts_folder_stand_in_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit(9)")
    assert script(tmp_path, "train('logs')").stderr.splitlines()[-1].endswith("/logs/report.html")


def test_first_of_several_ranks_writes_it(tmp_path: Path) -> None:
    done = Due(str(tmp_path), 1)
    assert [page._is_first(done), page._is_first(done), page._is_first(Due(str(tmp_path), 2))] == [True, False, True]


def test_forked_process_owes_no_page(tmp_path: Path) -> None:
    page.due(Due(str(tmp_path), 1))
    child = os.fork()
    if not child:
        os._exit(page.take() is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert page.take() == Due(str(tmp_path), 1)
    assert page.take() is None


# ---- the process that makes it


def test_large_run_is_told_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, two_layers())
    monkeypatch.setattr(unasked, "MAX_BYTES", 100)
    unasked.main(str(tmp_path))
    assert capsys.readouterr().err == COMMAND.format(f"numscope report {tmp_path}\n")
    assert not (tmp_path / "report.html").exists()


def test_damaged_folder_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unasked.main(str(tmp_path / "none"))
    assert capsys.readouterr().err.startswith(f"numscope: no page was made of {tmp_path / 'none'}: RUN: got ")


def test_run_without_duckdb_has_a_page_of_its_findings(tmp_path: Path) -> None:
    write(tmp_path, two_layers())
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    code = f"import sys; sys.modules['duckdb'] = None\nfrom numscope.page.unasked import main; main({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == LINK.format(f"{(tmp_path / 'report.html').as_uri()}\n")
    assert "duckdb is not installed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_page_of_somebody_else_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    page = tmp_path / "report.html"
    for held, is_kept in (("<html>mine", True), ("", True), (None, False), ("old", False)):
        if held == "old":
            page.write_text(page.read_text() + "<!-- old -->")
        elif held is None:
            page.unlink()
        else:
            page.write_text(held)
        unasked.main(str(tmp_path))
        assert signal.alarm(0) == 0, "the alarm would end whoever has called it"
        told = capsys.readouterr().err
        assert (page.read_text() == held, "report.html there is not numscope's" in told) == (is_kept, is_kept)
        assert "<!-- old -->" not in page.read_text()
