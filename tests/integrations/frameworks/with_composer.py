"""Composer's real Trainer on CPU, where Composer can be imported beside this torch: its packages pin an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from numscope.records.errors import NonFiniteError, UsageError
from tests.integrations.page import run_lines
from tests.integrations.torchvision import stand_in

stand_in()
composer = pytest.importorskip("composer", reason="mosaicml asks for torch below 2.7.1", exc_type=ImportError)
from numscope.integrations.composer import NumscopeCallback  # noqa: E402


class Net(composer.ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 1)

    def forward(self, batch: Any) -> Tensor:
        x = self.body(batch[0])
        return self.head(torch.log(x + 2 - batch[0].amax(1, keepdim=True)))  # HERE

    def loss(self, outputs: Tensor, batch: Any) -> Tensor:
        return ((outputs - batch[1]) ** 2).mean()

    def eval_forward(self, batch: Any, outputs: Any = None) -> Tensor:
        return self(batch)

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None: ...

    def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
        return {}


LINE = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# HERE"))


def trained(callbacks: list[Any], model: Net, largest: float = 1.0) -> Any:
    x = torch.rand(32, 4, generator=torch.Generator().manual_seed(1))
    x[16] = largest
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = composer.Trainer(
        **{"model": model, "train_dataloader": loader, "eval_dataloader": loader, "optimizers": optimizer, "callbacks": callbacks},
        **{"progress_bar": False, "device": "cpu", "max_duration": "2ep", "seed": 3},
    )
    trainer.fit()
    return trainer


def hooks(model: nn.Module) -> int:
    return sum(len(v) for m in model.modules() for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


def test_healthy_run_is_bitwise_the_same(tmp_path):
    states = []
    for callbacks in ([], [NumscopeCallback(alerts="raise")]):
        model = Net()
        trainer = trained(callbacks, model)
        trainer.save_checkpoint(str(tmp_path / "last.pt"))
        saved = torch.load(tmp_path / "last.pt", weights_only=False)
        states.append(saved["state"]["model"])
        assert hooks(model) == 0
    (callback,) = callbacks
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert (callback.scope.closed, callback.scope.num_steps, callback.findings, callback.alerts) == (True, 8, [], [])


def test_nan_stops_fit_at_its_line():
    callback, model = NumscopeCallback(), Net()
    with callback, pytest.raises(NonFiniteError) as error:
        trained([callback], model, largest=5.0)
    finding = error.value.finding
    assert (finding.step, finding.culprit.op, finding.culprit.line) == (2, "aten.log", LINE)
    assert callback.scope.closed and hooks(model) == 0


def test_lines_of_the_page_are_all_it_takes():
    x = torch.full((8, 4), 5.0)
    x[:, 1] = -5.0
    loader = DataLoader(TensorDataset(x, x), batch_size=4)

    def trainer(**settings: Any) -> Any:
        return composer.Trainer(**settings, device="cpu", progress_bar=False)

    with pytest.raises(NonFiniteError):
        run_lines("MosaicML Composer", Trainer=trainer, model=Net(), loader=loader)["trainer"].fit()


def test_wrong_option_is_refused_at_once():
    with pytest.raises(UsageError, match=r"Did you mean 'frames'"):
        NumscopeCallback(frame=3)
