"""``torchrun … -m numscope run``: one report, from the rank at fault; every rank says which one it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numscope

SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = self.first(x)
        return self.last(torch.sqrt(h - h.detach() + x.sum()))  # here


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):  # a rank that is slow to hear of another's alert has steps left to stop at
    x = torch.full((2, 4), 1 + rank / 4 + step / 100)  # each rank has its own data, new at each step
    if rank == 1 and step == 3:
        x = -x
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    print(f"rank {rank} step {step}", flush=True)
dist.destroy_process_group()
"""


LINE = next(n for n, text in enumerate(SCRIPT.splitlines(), 1) if text.endswith("# here"))


def torchrun(folder: Path, *words: str) -> tuple[int, str]:
    """The status and stderr of ``train.py`` on two ranks."""
    env = {**os.environ, "PYTHONPATH": str(Path(numscope.__file__).parent.parent), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--redirects", "3"]
    command += ["--log-dir", "logs", "-m", "numscope", "run", "--json", "found.json", "--log-dir", "records", *words, "train.py"]
    with subprocess.Popen(command, cwd=folder, env=env, text=True, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            _, stderr = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, stderr


def test_fault_on_rank_1_ends_every_rank_with_one_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    status, stderr = torchrun(tmp_path)
    assert status == 1, stderr  # torchrun's own for a failed rank
    statuses = set(re.findall(r"exitcode\s*: (-?\d+)", stderr))
    assert "3" in statuses and statuses <= {"3", "-15"}, stderr  # -15: torchrun ended it before it could end by itself
    root = stderr[stderr.index("Root Cause") :]
    assert f"NonFiniteError: nan in last (Linear) input[0] (forward) at step 3, rank 1: aten.sqrt at {tmp_path}/train.py:{LINE} " in root
    assert "optimizer.step()" in root and "src/numscope" not in root

    said = {rank: next((tmp_path / "logs").glob(f"**/{rank}/stderr.log")).read_text() for rank in (0, 1)}
    assert said[1].count("Culprit") == 1 and f"train.py:{LINE}" in said[1] and "rank 1" in said[1]
    assert "Culprit" not in said[0]
    told = [text for text in said[0].splitlines() if text.startswith("numscope: rank 0: ")]
    assert len(told) <= 1  # torchrun may have ended it before
    assert all(f"train.py:{LINE}" in text and "rank 1" in text for text in told)
    printed = {rank: next((tmp_path / "logs").glob(f"**/{rank}/stdout.log")).read_text() for rank in (0, 1)}
    assert printed == {rank: "".join(f"rank {rank} step {step}\n" for step in range(3)) for rank in (0, 1)}

    [finding] = json.loads((tmp_path / "found-rank1.json").read_text())["findings"]
    assert (finding["rank"], finding["step"], finding["culprit"]["line"]) == (1, 3, LINE)


def test_error_that_the_script_dies_of_is_told_to_torchrun_with_the_finding_it_comes_from(tmp_path: Path) -> None:
    script = SCRIPT.replace(
        "    optimizer.step()", "    assert all(p.grad.isfinite().all() for p in model.parameters())\n    optimizer.step()"
    )
    (tmp_path / "train.py").write_text(script.replace("rank == 1 and ", ""))
    status, stderr = torchrun(tmp_path)
    assert status == 1, stderr
    assert set(re.findall(r"exitcode\s*: (-?\d+)", stderr)) <= {"1", "-15"}
    root = stderr[stderr.index("Root Cause") :]
    assert root.index(f"aten.sqrt at {tmp_path}/train.py:{LINE} ") < root.index("AssertionError")
    assert "src/numscope" not in root
    said = [next((tmp_path / "logs").glob(f"**/{rank}/stderr.log")).read_text() for rank in (0, 1)]
    assert any("Traceback" in text and "Culprit" in text for text in said)


def test_alert_of_one_rank_stops_all_and_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("x = -x", "x = 100 * x"))
    (tmp_path / "rules.py").write_text(
        "import numscope\n@numscope.rule('high')\ndef high(observation):\n    return 'High.' if observation.values['max'] > 10 else None\n"
    )
    (tmp_path / "stats.yaml").write_text(
        "inputs:\n  enabled: true\n  layers: {layer_names: [first]}\n"
        "  statistics: {enabled: true, stats: [max], tensors: [activation], reduce: false}\n"
    )
    status, stderr = torchrun(tmp_path, "--config", "stats.yaml", "--features", "rules.py", "--alerts", "raise")
    assert status == 1, stderr
    statuses = set(re.findall(r"exitcode\s*: (-?\d+)", stderr))
    assert "4" in statuses and statuses <= {"4", "-15"}, stderr
    assert "AlertError: step 3: high: first activation: High." in stderr[stderr.index("Root Cause") :]
    said = [next((tmp_path / "logs").glob(f"**/{rank}/stderr.log")).read_text() for rank in (0, 1)]
    assert "numscope: alert: step 3, rank 1 of 2: high: first activation: High." in said[0].splitlines()
    assert "numscope: alert" not in said[1]
    alerts = [json.loads((tmp_path / "records" / f"findings-rank{rank}.json").read_text())["alerts"] for rank in (0, 1)]
    assert [[(one["step"], one["rank"]) for one in told] for told in alerts] == [[], [(3, 1)]]
