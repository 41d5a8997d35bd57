"""``numscope run --to``: findings, alerts and statistics in TensorBoard, Weights & Biases and MLflow, each read back by its own reader."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_run import cli
from tests.distributed.test_torchrun import SCRIPT as RANKS
from tests.distributed.test_torchrun import torchrun
from tests.sinks.test_wandb import records

ENV = {
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": "mlruns",
}  # fmt: skip
TRAIN = """
import os, signal, sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.log(self.first(x) * 0 + x.sum()))  # here

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    optimizer.zero_grad()
    net(torch.full((2, 4), 0.0 if step == 3 else 1.0)).sum().backward()
    optimizer.step()
"""
LINE = next(n for n, text in enumerate(TRAIN.splitlines(), 1) if text.endswith("# here"))
CONFIG = """
inputs:
  enabled: true
  layers: {layer_names: [last]}
  statistics: {enabled: true, stats: [max], tensors: [output]}
"""
TITLE = "numscope: nan in last (Linear) output"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "stats.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def run(folder: Path, *words: str, status: int = 3) -> subprocess.CompletedProcess[str]:
    done = cli("run", *words, "train.py", cwd=folder, **ENV)
    assert done.returncode == status, done.stderr
    return done


def script(folder: Path, before: str, after: str = "") -> None:
    (folder / "train.py").write_text(f"{before}\n{TRAIN}{after}", encoding="utf-8")


def texts(folder: Path, tag: str) -> list[tuple[int, str]]:
    """A tag's texts, by TensorBoard's own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    name = f"{tag}/text_summary"
    return [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors(name)] if name in events.Tags()["tensors"] else []


def wandb_records(folder: Path) -> list[Any]:
    """The records of the one offline run, once its file has ended: the library's service may outlive the script."""
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.rglob("run-*.wandb")
    found: list[Any] = []
    for _ in range(500):
        found = [Record.FromString(one) for one in records(path)]
        if {"alert", "exit"} & {one.WhichOneof("record_type") for one in found}:
            break
        time.sleep(0.02)
    return found


def wandb_alerts(folder: Path) -> list[Any]:
    return [one.alert for one in wandb_records(folder) if one.WhichOneof("record_type") == "alert"]


def mlflow_runs(folder: Path, experiment: str = "Default") -> list[Any]:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


@pytest.fixture
def files_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def test_finding_and_statistics_reach_all_three_at_once(folder: Path, files_allowed: None) -> None:
    words = ("--to", "tensorboard:tb", "--to", "wandb:chairs", "--to", "mlflow:tables")
    done = run(folder, "--config", "stats.yaml", "--log-dir", "logs", *words)
    assert "is off from here on" not in done.stderr

    ((step, text),) = texts(folder / "tb", "numscope/findings")
    assert step == 3
    assert text.startswith("### nan in `last (Linear) output`\n\nstep 3, batch 3, forward, rank 0\n")
    assert f"- **Line:** `{folder}/train.py:{LINE}`: `return self.last(torch.log(" in text
    page = pytest.importorskip("tensorboard.plugin_util").markdown_to_safe_html(text)
    assert "<pre><code>numscope: nan ───" in page and "\nCulprit  aten.log (forward)\n" in page  # the report, as code
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(str(folder / "tb"))
    accumulator.Reload()
    assert [e.step for e in accumulator.Scalars("output.max/last")] == [0, 1, 2]

    found = wandb_records(folder)
    (alert,) = wandb_alerts(folder)
    assert (alert.title, alert.level) == (TITLE, "ERROR")
    assert f"{folder}/train.py:{LINE}\n" in alert.text
    assert next(one.run.project for one in found if one.WhichOneof("record_type") == "run") == "chairs"
    assert [one.exit.exit_code for one in found if one.WhichOneof("record_type") == "exit"] == [1]
    assert sum(one.WhichOneof("record_type") == "history" for one in found) == 3

    (tables,) = mlflow_runs(folder, "tables")
    assert tables.info.status == "FAILED"
    assert tables.data.tags["numscope/finding"].startswith("nan in last (Linear) output (forward) at step 3, rank 0: aten.log at ")
    assert "output.max/last" in tables.data.metrics
    (report,) = (folder / "mlruns").rglob("numscope/finding-1.txt")
    assert f"{folder}/train.py:{LINE}\n" in report.read_text(encoding="utf-8")


def test_scripts_own_runs_are_used_and_left_open(folder: Path, files_allowed: None) -> None:
    script(
        folder,
        "import atexit, mlflow, wandb\nfrom torch.utils.tensorboard import SummaryWriter\n"
        "writer, run, other = SummaryWriter('own'), wandb.init(project='mine'), mlflow.start_run()\n"
        "atexit.register(lambda: print('open', writer.file_writer is not None, wandb.run is run, mlflow.active_run() is other))\n",
    )
    done = run(folder, "--on-nonfinite", "warn", "--to", "tensorboard", "--to", "wandb:theirs", "--to", "mlflow", status=0)
    assert "open True True True" in done.stdout
    assert [step for step, _ in texts(folder / "own", "numscope/findings")] == [3]
    assert [alert.title for alert in wandb_alerts(folder)] == [TITLE]
    (found,) = mlflow_runs(folder)
    assert found.info.status == "FINISHED" and "numscope/finding" in found.data.tags


def test_script_that_kills_itself_right_after_leaves_the_finding(folder: Path, files_allowed: None) -> None:
    killing = "    try:\n        optimizer.step()\n    except ValueError:\n        os.kill(os.getpid(), signal.SIGKILL)"
    (folder / "train.py").write_text(TRAIN.replace("    optimizer.step()", killing), encoding="utf-8")
    run(folder, "--to", "tensorboard:tb", "--to", "mlflow", status=-9)  # what W&B has offline goes with any killed process
    assert [step for step, _ in texts(folder / "tb", "numscope/findings")] == [3]
    (found,) = mlflow_runs(folder)
    assert "numscope/finding" in found.data.tags


def test_script_that_is_terminated_leaves_the_finding_in_a_run_that_is_ended(folder: Path) -> None:
    waits = "__import__('time').sleep(1)"  # wandb hands on what it was given in a thread, and has no call that waits for it
    text = TRAIN.replace(
        "for step in range(6):", f"for step in range(6):\n    step == 5 and ({waits}, os.kill(os.getpid(), signal.SIGTERM))"
    )
    (folder / "train.py").write_text(text, encoding="utf-8")
    run(folder, "--on-nonfinite", "warn", "--to", "wandb", status=-15)
    assert [alert.title for alert in wandb_alerts(folder)] == [TITLE]


def test_service_that_fails_ends_no_run_and_is_said_once(folder: Path) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    text = TRAIN.replace("0.0 if step == 3 else 1.0", "1.0")
    (folder / "train.py").write_text(f"{text}\nprint('trained')", encoding="utf-8")
    words = ("--config", "stats.yaml", "--log-dir", "logs", "--to", "mlflow:file:///dev/null/store", "--to", "wandb")
    env = {**ENV, "WANDB_MODE": "online", "WANDB_API_KEY": "", "NETRC": "none", "HOME": str(folder), "MLFLOW_TRACKING_URI": ""}
    done = cli("run", *words, "train.py", cwd=folder, **env)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count('The logger "mlflow:file:///dev/null/store" is off from here on') == 1
    assert len(re.findall('The logger "wandb" is off from here on: .*wandb login', done.stderr)) == 1


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("wanbd", "got 'wanbd', expected one of tensorboard[:DIR], wandb[:PROJECT], mlflow[:EXPERIMENT or URI]. Did you mean 'wandb'?"),
        ("mlflow:", "got 'mlflow:', expected a name after the colon. Leave the colon out to use the script's own run."),
        ("tensorboard:train.py", "got 'tensorboard:train.py', expected a folder, or a path where one can be created. It is a file."),
        ("tensorboard:s3://x", "got 'tensorboard:s3://x', expected a local folder. To write elsewhere, pass loggers=SummaryWriter(…)."),
    ],
)
def test_wrong_destination_is_refused_before_the_scripts_first_line(folder: Path, to: str, message: str) -> None:
    done = run(folder, "--to", to, status=2)
    assert (done.stdout, done.stderr) == ("", f"numscope: --to: {message}\n")


def test_missing_package_is_one_sentence_before_the_script_starts(folder: Path) -> None:
    code = "import sys; sys.modules['wandb'] = None; sys.argv = ['numscope', 'run', '--to', 'wandb', 'train.py']\n"
    code += "from numscope.cli.command import main; main()"
    done = cli(cwd=folder, command=("-c", code))
    assert done.returncode == 2
    assert done.stderr == "numscope: --to: got 'wandb', but wandb is not installed. Install it: pip install 'numscope[wandb]'.\n"


def test_folder_that_a_library_writes_to_is_not_its_package(tmp_path: Path) -> None:
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)
    code = "import sys; sys.path[:] = [sys.argv[1], *[p for p in sys.path if 'site-packages' not in p]]\n"
    code += "from numscope.sinks.destinations import is_installed; print(is_installed('wandb'))"
    source = str(Path(__file__).resolve().parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert done.stdout == "False\n"


def test_finding_on_rank_1_reaches_the_run_of_rank_0_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    status, stderr = torchrun(tmp_path, "--to", "tensorboard:tb")
    assert status == 1, stderr
    ((step, text),) = texts(tmp_path / "tb", "numscope/findings")
    assert step == 3 and "rank 1" in text
    assert not list((tmp_path / "tb").glob("rank*"))


def test_finding_that_rank_1_judges_alone_comes_from_rank_1(tmp_path: Path) -> None:
    script = RANKS.replace("model = DDP(Net())", "model = Net()")  # nothing says that these train together
    (tmp_path / "train.py").write_text(script.replace("dist.destroy_process_group()", "dist.barrier(); dist.destroy_process_group()"))
    status, stderr = torchrun(tmp_path, "--to", "tensorboard:tb")
    assert status == 1, stderr
    assert texts(tmp_path / "tb", "numscope/findings") == []
    ((step, text),) = texts(tmp_path / "tb" / "rank1", "numscope/findings")
    assert step == 3 and "rank 1" in text
