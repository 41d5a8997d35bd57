"""Ray Train's real TorchTrainer: a driver, a controller and two workers, processes of their own."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.train.torch")

from ray import cloudpickle  # noqa: E402
from ray.train import RunConfig, ScalingConfig, get_context  # noqa: E402
from ray.train.torch import TorchTrainer, prepare_model  # noqa: E402

from numscope.integrations.ray import WatchedLoop, watched  # noqa: E402
from numscope.records.alert import Alert  # noqa: E402
from numscope.records.errors import NonFiniteError, UsageError  # noqa: E402
from tests.integrations.generators import moves_none  # noqa: E402
from tests.integrations.page import run_lines  # noqa: E402
from tests.warm import COLD  # noqa: E402

CONFIG = {
    "section": {
        "enabled": True,
        "layers": {"layer_names": ["0"]},
        "statistics": {"enabled": True, "stats": ["max"], "tensors": ["output"]},
    }
}


def loop(bad_step: int = -1, unlike: bool = False) -> list[Any]:
    torch.manual_seed(0)
    model = prepare_model(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1)))
    rank = get_context().get_world_rank()
    optimizer = torch.optim.SGD(model.parameters(), 0.0 if unlike and rank == 1 else 0.1)
    data = torch.Generator().manual_seed(rank)
    for step in range(8 if unlike else 4):
        result = model(torch.rand(8, 4, generator=data))
        if (step, rank) == (bad_step, 1):
            result = torch.log(result - 100)  # HERE
        loss = (result**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.tolist() for p in model.parameters()]


LINE = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# HERE"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers can't import this file
    warm, sys.executable = sys.executable, COLD
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # an actor that waits for a cloud to take its machine back
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")  # how often the controller asks the workers
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield tmp_path_factory.mktemp("ray")
        ray.shutdown()
    sys.executable = warm


def test_driver_gets_one_finding_of_the_rank_at_fault_and_nothing_of_a_healthy_run(cluster):
    """All in one fit, since each starts processes that import torch."""
    healthy: Any = run_lines("Ray Train", train_loop_per_worker=loop)["loop"]
    bad = watched(loop, config=CONFIG)
    unlike = watched(functools.partial(loop, unlike=True))

    def train() -> None:
        assert healthy() == loop()  # bitwise
        unlike()
        bad(2)

    run = RunConfig(storage_path=str(cluster), name="run")
    with pytest.raises(Exception, match=r"aten\.log") as error:
        TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
    (finding,) = bad.findings
    assert bad.finding == finding and (finding.step, finding.rank, finding.culprit.line) == (2, 1, LINE)
    assert "aten.log (loss)" in bad.report() and f":{LINE}" in bad.report()
    assert {type(each) for each in error.value.worker_failures.values()} == {NonFiniteError}
    assert list((cluster / "run" / "numscope").glob("*statistics_logs/*.log"))
    assert (healthy.finding, healthy.report(), healthy.alerts) == (None, "", [])
    (idle,) = (alert for alert in unlike.alerts if alert.rule == "learning rate is 0")  # not a second time as another rank tells it
    assert (idle.rank, unlike.findings) == (1, [])


def test_driver_knows_what_a_killed_worker_had_found(cluster):
    def killed() -> None:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.full((2, 2), float("inf"))).sum().backward()
        optimizer.step()
        os.kill(os.getpid(), signal.SIGKILL)

    loop = watched(killed, on_nonfinite="warn")
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(ray.remote(max_retries=0)(lambda: loop()).remote())
    assert [(finding.step, finding.phase.value) for finding in loop.findings] == [(0, "forward")]


def test_to_import_it_moves_no_generator():
    assert moves_none("numscope.integrations.ray")


def test_process_of_the_board_loads_no_torch():
    code = "import sys, numscope.integrations.reports; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_loop_looks_to_ray_as_it_did():
    assert isinstance(watched(loop), WatchedLoop) and watched(loop).__name__ == "loop"
    assert watched(loop).findings == []


def test_wrong_option_is_refused_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'frames'"):
        watched(loop, frame=3)


def test_loop_ends_as_it_would_where_the_driver_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        @property
        def add(self) -> Any:
            raise ray.exceptions.RayActorError

    loop = watched(lambda: 7)
    loop._board = Gone()
    assert loop() == 7
    assert "The driver could not be told what this worker has found: RayActorError" in caplog.text


def test_what_was_found_is_known_after_the_cluster_has_ended(cluster) -> None:
    """The last test: it ends the cluster, and begins another one."""
    loop = watched(lambda: 7)
    for step in range(2):
        cloudpickle.dumps(loop)  # as the trainer sends it to workers
        ray.get(loop._board.add.remote([], [Alert(step, "rule", "", "", 0.0, None, "text", "advice")]))
        ray.shutdown()
        assert ([alert.step for alert in loop.alerts], loop.findings) == ([step], [])
        if step == 0:
            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    loop._told = None
    with pytest.raises(UsageError, match=r"what the workers have found has gone with Ray's cluster\. Read it before the cluster ends"):
        _ = loop.finding
