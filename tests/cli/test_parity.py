"""``numscope parity``: commands are run under a recorder and compared, and what it can't run is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import called

SCRIPT = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn

def train(rank, world):
    if world > 1 and "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    called = nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(2)
    for step in range(100):
        x, y = torch.randn(8, 8, generator=draw), torch.randint(0, 3, (8,), generator=draw)
        loss = nn.functional.cross_entropy(called(x.chunk(world)[rank]), y.chunk(world)[rank])
        (loss * world if "--sum" in sys.argv else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    print("went on")

if __name__ == "__main__":
    if "--spawn" in sys.argv:
        mp.spawn(train, (1,))
    else:
        train(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "train.py").write_text(SCRIPT)
    return "train.py"


def test_a_layout_under_torchrun_is_compared_with_one_process(script: str, tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = ("parity", "1", "kept", "--", sys.executable, script, "--", *launcher, script, "--sum")
    told = subprocess.run([sys.executable, "-m", "numscope", *words], capture_output=True, text=True, timeout=120)
    assert told.returncode == 1, told
    assert told.stdout.startswith("factor: step 1: the gradient of 2."), told
    assert "is 2 times that of the first run (2 is the world size, the data-parallel size" in told.stdout
    assert [line.split()[1] for line in told.stderr.splitlines()] == ["a:", "b:", "noise:"]
    assert "went on" not in (tmp_path / "kept" / "a.log").read_text() + (tmp_path / "kept" / "b.log").read_text()
    assert json.loads((tmp_path / "kept" / "verdict.json").read_text())["kind"] == "factor"
    again = called("parity", "kept/a", "kept/b")
    assert (again.exit_code, again.stdout) == (1, told.stdout)
    same = called("parity", "kept/a", "kept/a")
    assert (same.exit_code, same.stdout) == (0, "the layouts agree: 4 gradients over 1 step, within what rounding does.\n")


def test_processes_that_a_script_starts_are_recorded(script: str, tmp_path: Path) -> None:
    words = ("parity", "record", "there", script, "--spawn")
    told = subprocess.run([sys.executable, "-m", "numscope", *words], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told
    assert [file.name for file in (tmp_path / "there").iterdir()] == ["rank00000.json"]


def test_a_run_that_dies_early_is_said_to(script: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(SCRIPT.replace("optimizer.step()", "optimizer.step() if step == 0 else exit(7)"))
    told = called("parity", "--", sys.executable, script, "--", sys.executable, "dies.py")
    assert told.exit_code == 0 and told.stdout.startswith("the layouts agree: 4 gradients over 1 step,")
    assert "numscope: b ended with status 7 before its 2 steps were over. Its output:" in told.stderr


def test_a_command_that_records_nothing_is_refused_with_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("print('nothing to see')")
    told = called("parity", "--", sys.executable, "empty.py", "--", sys.executable, "empty.py")
    assert told.exit_code == 2
    assert "a: holds no recording" in told.stderr and "It ended with status 0. Its output:\n" in told.stderr
    assert "nothing to see" in told.stderr
    told = called("parity", "--resume", "2", "--", sys.executable, "empty.py")
    assert told.exit_code == 2 and "nothing was recorded: no torch optimizer stepped" in told.stderr and "nothing to see" in told.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "got 0 commands, expected numscope parity [STEPS] [DIR] -- COMMAND_A -- COMMAND_B"),
        (("--", "python", "a.py"), "got 1 commands, expected"),
        (("--", "python", "a.py", "--"), "got 2 commands, expected"),
        (("0", "--", "python", "a.py", "--", "python", "b.py"), "got '0' before the first --, expected"),
        (("2", "3", "--", "python", "a.py", "--", "python", "b.py"), "got '2 3' before the first --, expected"),
        (("--", "make", "train", "--", "python", "b.py"), "parity: got 'make train', expected a command with a script's name in it"),
        (("--", "no-such-python", "a.py", "--", "python", "b.py"), "parity: got 'no-such-python', expected a command that can be run"),
        (("--resume", "4", "--", "python", "a.py", "--", "python", "b.py"), "got '--resume 4' and 2 commands, expected"),
        (("--resume", "--", "python", "a.py"), "got '--resume' and 1 commands, expected"),
        (("--resume", "4", "--", "make", "train"), "parity: got 'make train', expected a command with a script's name in it"),
        (("record", "there"), "got no script, expected numscope parity record DIR train.py ARGS…"),
        (("nowhere", "else"), "nowhere: holds no recording, expected one of numscope parity"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = called("parity", *words)
    assert told.exit_code == 2 and problem in told.stderr.replace("\n  ", " "), told.stderr
