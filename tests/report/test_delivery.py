from __future__ import annotations

import io
import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import numscope


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def train_on_inf(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.full((2, 2), float("inf"))).sum().backward()
    optimizer.step()


def test_models_watched_together_do_not_write_over_each_others_findings(tmp_path):
    class Generator(nn.Linear):
        pass

    class Critic(nn.Linear):
        pass

    file = tmp_path / "findings.json"
    options = {"json": str(file), "log_dir": str(tmp_path / "log"), "on_nonfinite": "warn"}
    first, second = Generator(2, 2), Critic(2, 2)
    with numscope.watch(first, **options), numscope.watch(second, **options):
        train_on_inf(second)
    for written in (read(file), read(tmp_path / "log" / "findings-rank0.json")):
        assert written["meta"]["model"] == "Generator, Critic"
        assert [f["model"] for f in written["findings"]] == ["Critic"]
    assert "bad input data" in (tmp_path / "log" / "report-rank0.txt").read_text()


def test_a_watch_after_another_begins_its_file_anew(tmp_path):
    file = tmp_path / "findings.json"
    with numscope.watch(model := nn.Linear(2, 2), json=str(file), on_nonfinite="warn"):
        train_on_inf(model)
    assert read(file)["findings"]
    with numscope.watch(nn.Linear(2, 2), json=str(file), on_nonfinite="warn"):
        pass
    assert not read(file)["findings"]


def test_a_restart_into_the_same_folder_keeps_what_was_found_before(tmp_path):
    for number in (1, 2, 3):
        with numscope.watch(model := nn.Linear(2, 2), log_dir=str(tmp_path), on_nonfinite="warn"):
            if number != 2:
                train_on_inf(model)
    first, second, third = (read(tmp_path / f"findings-rank0{n}.json") for n in ("", "-2", "-3"))
    assert [len(one["findings"]) for one in (first, second, third)] == [1, 0, 1]
    assert [one["meta"]["attempt"] for one in (first, second, third)] == [1, 2, 3] and first["meta"]["ended"]
    assert sorted(path.name for path in tmp_path.glob("report*")) == ["report-rank0-3.txt", "report-rank0.txt"]


def test_what_a_killed_run_had_found_is_there(tmp_path):
    asked, sarif = tmp_path / "asked.json", tmp_path / "asked.sarif"
    script = f"""
import os, torch, numscope
from torch import nn
model = nn.Linear(2, 2)
numscope.watch(model, log_dir={str(tmp_path)!r}, json={str(asked)!r}, sarif={str(sarif)!r}, on_nonfinite="warn")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.full((2, 2), float("inf"))).sum().backward()
optimizer.step()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == -9
    for found in (read(tmp_path / "findings-rank0.json"), read(asked)):
        assert len(found["findings"]) == 1 and found["meta"]["ended"] is False
    assert [one["level"] for one in read(sarif)["runs"][0]["results"]] == ["error"]
    assert (tmp_path / "report-rank0.txt").read_text()


def test_two_runs_at_once_in_one_folder_are_kept_apart_and_it_is_said(tmp_path, caplog):
    script = (
        f"import numscope; from torch import nn; numscope.watch(nn.Linear(2, 2), log_dir={str(tmp_path)!r}); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        with caplog.at_level(logging.WARNING), numscope.watch(nn.Linear(2, 2), log_dir=str(tmp_path)):
            pass
        assert len(caplog.messages) == 1
        assert f"process {json.loads((tmp_path / 'ranks' / 'rank0-1.json').read_text())['pid']} writes there too" in caplog.text
        other.communicate("\n")
    assert {path.name for path in tmp_path.glob("findings*")} == {"findings-rank0.json", "findings-rank0-2.json"}


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with numscope.watch(nn.Linear(2, 2), log_dir=str(tmp_path / "file" / "logs")):
        pass
    assert len(caplog.messages) == 1 and "expected a folder that can be written to" in caplog.text


@pytest.mark.parametrize("kind", ["link", "mode"])
def test_json_goes_into_what_stands_there(kind, tmp_path):
    target = tmp_path / "target.json"
    target.write_text("old")
    target.chmod(0o600)
    path = target
    if kind == "link":
        path = tmp_path / "link.json"
        path.symlink_to(target)
    with numscope.watch(nn.Linear(2, 2), json=str(path)):
        pass
    assert read(target)["findings"] == [] and os.path.islink(path) is (kind == "link") and target.stat().st_mode & 0o777 == 0o600


def test_an_attempt_is_later_than_all_others_though_some_were_removed(tmp_path):
    for _ in range(3):
        with numscope.watch(nn.Linear(2, 2), log_dir=str(tmp_path)):
            pass
    (tmp_path / "ranks" / "rank0-1.json").unlink()
    with numscope.watch(nn.Linear(2, 2), log_dir=str(tmp_path)):
        pass
    assert (tmp_path / "findings-rank0-4.json").exists()


class Broken(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def closed() -> io.StringIO:
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("stderr", [None, Broken(), closed()], ids=["none", "broken pipe", "closed"])
def test_a_finding_stops_the_run_and_is_kept_though_stderr_cannot_be_written_to(stderr, tmp_path, monkeypatch, capsys):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(numscope.NonFiniteError), numscope.watch(model, log_dir=tmp_path):
        model(torch.full((1, 2), math.nan)).sum().backward()
        optimizer.step()
    assert len(json.loads((tmp_path / "findings-rank0.json").read_text())["findings"]) == 1
    assert (tmp_path / "report-rank0.txt").exists()
    assert capsys.readouterr().out == ""
