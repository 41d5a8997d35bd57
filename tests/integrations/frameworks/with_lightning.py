"""Lightning's real Trainer on CPU, under both of the package's names."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import pytorch_lightning
import torch
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import numscope
from numscope.alerts.checks import resuming
from numscope.integrations.lightning import NumscopeCallback
from numscope.records.errors import NonFiniteError, UsageError
from tests.integrations.generators import moves_none
from tests.integrations.page import lines_of, run_lines

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's, of loaders without workers and of torch's new names
FOLDER = Path(__file__).parents[3]


class Steps:
    """What a LightningModule of either package does."""

    bad_step = -1  # an input that log has no result for

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        if self.trainer.global_step == self.bad_step and self.training:
            x = x - 1
        x = torch.log(x + 1)  # HERE
        return self.head(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = ((self(x) - y) ** 2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", ((self(batch[0]) - batch[1]) ** 2).mean())

    test_step = validation_step

    def predict_step(self, batch: Any, index: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Net(Steps, lightning.LightningModule):
    pass


class OldNet(Steps, pytorch_lightning.LightningModule):
    pass


class Manual(Net):
    """Two optimizers, one step of each a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        loss = ((self(batch[0]) - batch[1]) ** 2).mean()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.body, self.head)]


class Large(Net):
    """Its input leaves float16 at the head."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x) * 60000
        return self.head(x + x)  # HERE, large


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(mark))


def data() -> DataLoader[Any]:
    x = torch.rand(32, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)


def trainer(package: Any = lightning, **settings: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return package.Trainer(**{"max_epochs": 1, "accelerator": "cpu", **quiet, **settings})


def made(kind: type[Any] = Net, **attributes: Any) -> Any:
    torch.manual_seed(0)
    model = kind()
    vars(model).update(attributes)
    return model


def hooks(model: nn.Module) -> int:
    return sum(len(v) for m in model.modules() for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


@pytest.mark.parametrize("package, kind", [(lightning, Net), (pytorch_lightning, OldNet)])
def test_healthy_run_is_bitwise_the_same_and_saves_the_same_bytes(tmp_path, package, kind):
    states, files = [], []
    for name, callbacks in (("bare", []), ("watched", [NumscopeCallback(alerts="raise")])):
        model = made(kind)
        before = hooks(model)
        run = trainer(package, max_epochs=2, callbacks=callbacks)
        run.fit(model, data(), data())
        run.save_checkpoint(tmp_path / name)
        states.append(model.state_dict())
        files.append((tmp_path / name).read_bytes())
        assert hooks(model) == before
    (callback,) = callbacks
    assert isinstance(callback, package.Callback)
    assert (callback.scope.closed, callback.scope.num_steps) == (True, 8)
    assert callback.findings == callback.contained == callback.alerts == []
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    saved = [torch.load(tmp_path / name, weights_only=False) for name in ("bare", "watched")]
    assert saved[0].keys() == saved[1].keys() and "umscope" not in repr(saved[1]) and len(files[0]) == len(files[1])


@pytest.mark.parametrize("package, kind", [(lightning, Net), (pytorch_lightning, OldNet)])
def test_nan_stops_fit_at_its_line_before_a_weight_is_touched(package, kind):
    callback, model = NumscopeCallback(), made(kind, bad_step=2)
    run = trainer(package, callbacks=[callback])
    with pytest.raises(NonFiniteError) as error:
        run.fit(model, data())
    finding = error.value.finding
    assert (finding.step, finding.culprit.op, finding.culprit.line) == (2, "aten.log", line_of("# HERE"))
    assert callback.findings == [finding] and callback.scope.closed and hooks(model) == 0
    assert run.global_step == 2 and all(p.isfinite().all() for p in model.parameters())


def test_run_that_fails_by_itself_leaves_no_hook():
    callback, model = NumscopeCallback(), made(Net)
    model.on_train_batch_end = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer(callbacks=[callback]).fit(model, data())
    assert callback.scope.closed and hooks(model) == 0 and not callback.findings


@pytest.mark.parametrize("name", ["validate", "test", "predict"])
def test_evaluation_alone_is_watched(name):
    callback, model = NumscopeCallback(on_nonfinite="warn"), made()
    model.head.weight.data.fill_(float("nan"))
    getattr(trainer(callbacks=[callback]), name)(model, data())
    assert callback.scope.closed and hooks(model) == 0 and not callback.findings  # nothing trains
    (note,) = callback.scope._watch.without_gradients
    assert "head" in str(note) and note.culprit.line


def test_numbers_of_steps_go_on_after_a_checkpoint(tmp_path):
    trainer().fit(made(), data())
    first = trainer()
    first.fit(made(), data())
    first.save_checkpoint(tmp_path / "last.ckpt")
    callback = NumscopeCallback()
    with pytest.raises(NonFiniteError) as error:
        trainer(max_epochs=2, callbacks=[callback]).fit(made(bad_step=6), data(), data(), ckpt_path=tmp_path / "last.ckpt")
    assert error.value.finding.step == 6


def test_what_a_run_has_lost_that_goes_on_from_a_checkpoint(tmp_path, monkeypatch):
    def run(name: str, dropout: float = 0.0, change: Any = None) -> list[str]:
        monkeypatch.setitem(resuming._processes, os.getpid(), name)
        model, checkpoint = made(), tmp_path / f"{dropout}.ckpt"
        model.body[2].p = dropout
        if change is not None:
            saved = torch.load(checkpoint, weights_only=False)
            change(saved)
            torch.save(saved, checkpoint := tmp_path / "changed.ckpt")
        saves = lightning.callbacks.ModelCheckpoint(tmp_path, str(dropout), every_n_train_steps=6 if dropout else 8, save_top_k=-1)
        is_first = name.startswith("first")
        settings = {"enable_checkpointing": True, "callbacks": [saves]} if is_first else {}
        rules = {} if is_first else {"state not loaded": {"run": str(tmp_path / "run")}}
        with numscope.watch(model, on_nonfinite="warn", log_dir=tmp_path / "run" if is_first else None, alerts=rules) as scope:
            trainer(max_epochs=2 if dropout else 3, **settings).fit(model, data(), ckpt_path=None if is_first else checkpoint)
        assert not scope.fault
        return [alert.text for alert in scope.alerts if alert.rule == "state not loaded"]

    assert run("first") == run("exact") == []
    moments = lambda saved: [state["exp_avg"].zero_() for state in saved["optimizer_states"][0]["state"].values()]  # noqa: E731
    assert run("moments", change=moments) == ["Resumed at step 8: AdamW's exp_avg is zero in 4 parameters."]
    counts = lambda saved: [state["step"].zero_() for state in saved["optimizer_states"][0]["state"].values()]  # noqa: E731
    assert run("counts", change=counts) == ["Resumed at step 8: AdamW's step is 0 in 4 parameters, and was 8."]
    weights = lambda saved: saved["state_dict"]["body.0.weight"].add_(1)  # noqa: E731
    assert run("weights", change=weights) == ["Resumed at step 8: 1 weight of 4 is not what was saved, the first is body.0.weight."]
    rate = lambda saved: saved["optimizer_states"][0]["param_groups"][0].update(lr=0.3)  # noqa: E731
    assert run("rate", change=rate) == ["Resumed at step 8: lr is 0.3, and was 0.01."]
    assert run("first of a kind", 0.1) == []
    assert run("within an epoch", 0.1) == [  # Lightning keeps neither of these
        "Resumed at step 6: the random state of torch is not what was saved; the batch of step 4 comes again."
    ]


def test_accumulated_and_manual_steps_are_optimizer_steps():
    callback = NumscopeCallback(alerts="raise")
    trainer(callbacks=[callback], accumulate_grad_batches=2).fit(made(), data())
    assert (callback.scope.num_steps, callback.scope.batch) == (2, 4)
    trainer(callbacks=[callback]).fit(made(Manual), data())
    assert (callback.scope.num_steps, callback.findings, callback.alerts) == (4, [], [])
    with pytest.raises(NonFiniteError) as error:
        trainer(callbacks=[callback]).fit(made(Manual, bad_step=2), data())  # global_step counts each optimizer's
    assert (error.value.finding.step, error.value.finding.culprit.line) == (1, line_of("# HERE"))


def half(scale: float) -> MixedPrecision:
    """On CPU the Trainer by itself would make bfloat16 of "16-mixed"."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))


def test_mixed_precision_runs_are_silent_until_the_forward_overflows():
    callback = NumscopeCallback(alerts="raise")
    trainer(callbacks=[callback], precision="bf16-mixed").fit(made(), data())
    assert (callback.scope.num_steps, callback.findings) == (4, [])
    trainer(callbacks=[callback], plugins=[half(2.0**10)]).fit(made(), data())
    assert (callback.scope.num_steps, callback.findings) == (4, [])
    with pytest.raises(NonFiniteError) as error:
        trainer(callbacks=[NumscopeCallback(alerts={"scale falls": {"finding": 2}})], plugins=[half(1.0)]).fit(made(Large), data())
    culprit = error.value.finding.culprit
    assert (culprit.op, culprit.line) == ("aten.add", line_of("# HERE, large")) and "float16" in culprit.detail


def test_statistics_go_to_the_trainers_log_dir(tmp_path):
    feature = {"enabled": True, "stats": ["max"], "tensors": ["activation"]}
    config = {"section": {"enabled": True, "layers": {"layer_names": ["head"]}, "statistics": feature}}
    logger = lightning.loggers.CSVLogger(tmp_path, name="runs")
    trainer(callbacks=[NumscopeCallback(config=config)], logger=logger).fit(made(), data())
    (log,) = (tmp_path / "runs" / "version_0").glob("*statistics_logs/*.log")
    assert "head" in log.read_text()


def test_lines_of_the_page_are_all_it_takes(tmp_path):
    made_by_page = run_lines("Lightning", Trainer=functools.partial(trainer, lightning))
    run, model = made_by_page["trainer"], made(bad_step=2)
    with pytest.raises(NonFiniteError):
        run.fit(model, data())
    (tmp_path / "train.yaml").write_text(lines_of("Lightning", "yaml"))
    quiet = ["--trainer.logger=false", "--trainer.enable_checkpointing=false", "--trainer.enable_progress_bar=false"]
    words = ["fit", "-c", str(tmp_path / "train.yaml"), "--trainer.max_epochs=1", "--trainer.accelerator=cpu", *quiet]
    cli = LightningCLI(Bad, BadData, args=words, save_config_callback=None)
    (callback,) = (each for each in cli.trainer.callbacks if isinstance(each, NumscopeCallback))
    assert callback.options == {"on_nonfinite": "warn"} and callback.findings[0].step == 1


def test_wrong_option_is_refused_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'frames'"):
        NumscopeCallback(frame=3)


class BadData(lightning.LightningDataModule):
    def train_dataloader(self) -> DataLoader[Any]:
        return data()


class Bad(Net):
    bad_step = 1


YAML = """
trainer:
  {{max_epochs: 1, logger: false, enable_checkpointing: false, enable_progress_bar: false, accelerator: cpu,
    devices: {devices}, strategy: {strategy}, default_root_dir: {folder},
    callbacks: [{{class_path: numscope.integrations.lightning.NumscopeCallback, init_args: {{frames: 3, json: {folder}/found.json}}}}]}}
"""


def test_lightning_cli_takes_it_from_yaml(tmp_path):
    (tmp_path / "train.yaml").write_text(YAML.format(folder=tmp_path, devices=1, strategy="auto"))
    with pytest.raises(NonFiniteError) as error:
        LightningCLI(Bad, BadData, args=["fit", "-c", str(tmp_path / "train.yaml")], save_config_callback=None)
    assert error.value.finding.culprit.line == line_of("# HERE") and (tmp_path / "found.json").exists()


SCRIPT = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from tests.integrations.frameworks.with_lightning import Bad, NumscopeCallback, data, trainer

trainer(strategy="ddp", devices=2, callbacks=[NumscopeCallback(json="found.json")]).fit(Bad(), data())
"""


def test_ddp_stops_both_ranks_with_one_finding(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, timeout=200, check=False, env=environment, cwd=tmp_path
    )
    found = [json.loads(path.read_text())["findings"] for path in sorted(tmp_path.glob("found*.json"))]
    assert len(found) == 2 and found[0] == found[1], done.stderr[-3000:]
    assert (found[0][0]["step"], found[0][0]["culprit"]["line"], done.returncode) == (1, line_of("# HERE"), 1)


def test_to_import_it_moves_no_generator() -> None:
    assert moves_none("numscope.integrations.lightning")
