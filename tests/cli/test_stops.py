"""Exit status and last words hold where a script, or a wrapper around it, catches numscope's error. A script that trains on has its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import sys, threading, traceback
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

def train(bad=True):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        x = torch.full((1, 2), torch.inf if bad and number == 1 else 1.0)
        model(x).sum().backward()
        optimizer.step()  # HERE
        optimizer.zero_grad()

"""
HERE = 1 + SCRIPT[: SCRIPT.index("# HERE")].count("\n")

STOPPED = {
    "exits": "try:\n    train()\nexcept Exception:\n    sys.exit(1)",
    "prints and exits, as hydra does": "try:\n    train()\nexcept Exception:\n    traceback.print_exc()\n    sys.exit(1)",
    "exits later": "status = 0\ntry:\n    train()\nexcept Exception:\n    status = 7\nsys.exit(status)",
    "exits with words": "try:\n    train()\nexcept Exception as error:\n    sys.exit('failed')",
    "raises from it": "try:\n    train()\nexcept Exception as error:\n    raise RuntimeError('failed') from error",
    "raises from None": "try:\n    train()\nexcept Exception as error:\n    raise RuntimeError('failed') from None",
    "raises in a finally": "try:\n    train()\nfinally:\n    {}['cleanup']",
    "a thread": "thread = threading.Thread(target=train)\nthread.start()\nthread.join()",
    "a thread that outlives the script": "threading.Thread(target=lambda: (threading.Event().wait(0.5), train())).start()",
    "a pool's future": "with ThreadPoolExecutor(1) as pool:\n    future = pool.submit(train)\nsys.exit(1 if future.exception() else 0)",
    "evaluates and exits": "try:\n    train()\nexcept Exception:\n    nn.Linear(2, 1)(torch.ones(1, 2))\n    sys.exit(1)",
}
GOES_ON = {
    "trains on": ("try:\n    train()\nexcept ValueError:\n    pass\ntrain(bad=False)", 0),
    "trains on within the handler": ("try:\n    train()\nexcept ValueError:\n    train(bad=False)\n    sys.exit(7)", 7),
    "trains on and fails": ("try:\n    train()\nexcept ValueError:\n    pass\ntrain(bad=False)\nraise KeyError('its own')", 1),
    "is content": ("try:\n    train()\nexcept ValueError:\n    print('caught')", 0),
    "never failed": ("train(bad=False)\nsys.exit(5)", 5),
}


def run(folder: Path, ending: str) -> subprocess.CompletedProcess[str]:
    file = folder / "train.py"
    file.write_text(SCRIPT + ending + "\n")
    return subprocess.run([sys.executable, "-m", "numscope", "run", str(file)], cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("ending", STOPPED.values(), ids=STOPPED)
def test_stopped_run_ends_with_status_3_and_the_line(ending: str, tmp_path: Path) -> None:
    done = run(tmp_path, ending)
    assert done.returncode == 3, done.stderr
    *_, stopped, last, then = done.stderr.splitlines()
    assert then.startswith("numscope: next: with --log-dir DIR ")
    assert f"stopped at {tmp_path / 'train.py'}:{HERE} in train: optimizer.step()" in stopped
    assert last.startswith("numscope: watched ") and "1 finding" in last
    assert ("RuntimeError: failed" in done.stderr) == ("RuntimeError('failed')" in ending)
    assert ("\nfailed\n" in done.stderr) == ("sys.exit('failed')" in ending)
    assert ("Traceback" in done.stderr) == ("traceback" in ending or "raise" in ending or "cleanup" in ending)


@pytest.mark.parametrize(("ending", "status"), GOES_ON.values(), ids=GOES_ON)
def test_script_that_trains_on_has_its_own_end(ending: str, status: int, tmp_path: Path) -> None:
    done = run(tmp_path, ending)
    assert done.returncode == status, done.stderr
    assert "stopped at" not in done.stderr


def test_child_process_that_turns_the_error_into_a_status_is_told_of(tmp_path: Path) -> None:
    ending = textwrap.dedent("""
        import multiprocessing

        def work():
            try:
                train()
            except Exception:
                sys.exit(1)

        if __name__ == "__main__":
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join()
            print("child:", child.exitcode)
    """)
    done = run(tmp_path, ending)
    assert (done.returncode, done.stdout) == (3, "child: 1\n"), done.stderr
    assert f"stopped at {tmp_path / 'train.py'}:{HERE}" in done.stderr


def test_alert_that_is_to_stop_the_run_does_so_through_a_wrapper(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("""
import sys, torch
from torch import nn

def train():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(1, 2))
        torch.zeros((), requires_grad=True).backward()
        optimizer.step()

try:
    train()
except Exception:
    sys.exit(1)
""")
    command = [sys.executable, "-m", "numscope", "run", "--alerts", "raise", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 4, done.stderr
    assert f"stopped at {file}:" in done.stderr.splitlines()[-3]
