"""Ranks that train one model with other settings than each other, or with the same random numbers."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

import numscope
from tests.distributed.ranks import RankPool, Told

RULES = ("settings differ on ranks", "same random numbers on ranks")


class Net(nn.Sequential):
    def __init__(self, dropout: float = 0.0, width: int = 4) -> None:
        super().__init__(nn.Linear(4, width), nn.Dropout(dropout), nn.Linear(width, 2))


def own_module(path: Path, body: str) -> nn.Module:
    """One of a class ``Shift`` that this rank's own file defines."""
    path.write_text(f"from torch import nn\n\n\nclass Shift(nn.Module):\n    def forward(self, x):\n        {body}\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    sys.modules[path.stem] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found.Shift()


def train(rank: int, odd: str, wraps: bool, folder: str = "") -> list[Any]:
    is_odd = rank == 1
    model = Net(0.1 if odd in ("draws", "own draws") else 0.0, width=5 if odd == "width" and is_odd else 4)
    if folder:
        model[1] = own_module(Path(folder) / f"module_of_rank_{rank}.py", f"return x + {0 if is_odd else '0.0'}")
    called: nn.Module = DistributedDataParallel(model, find_unused_parameters=True) if wraps else model
    if odd not in ("draws", "noise", "no draws"):
        torch.manual_seed(rank)
    optimizer = AdamW(model.parameters(), lr=1e-2 if odd in ("rate", "width") and is_odd else 1e-3)
    optimizer.param_groups[0]["chosen_by"] = lambda p: p.dim() > 1  # as LARS has it: its address is another one on each rank
    generator = torch.Generator().manual_seed(rank)
    with numscope.watch(called) as scope:
        for step in range(6):
            if odd == "mode" and is_odd:
                model[1].eval()
            if odd == "frozen" and is_odd:
                model[2].bias.requires_grad_(False)
            if odd == "later" and is_odd and step > 1:
                optimizer.param_groups[0]["betas"] = (0.9, 0.95)
            optimizer.zero_grad()
            noise = torch.randn(6, 4) if odd in ("noise", "own noise") else 0.0
            called(torch.randn(6, 4, generator=generator) + noise).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0 if odd == "clip" and is_odd else 1.0)
            optimizer.step()
            torch.distributed.barrier()
    assert not scope.fault
    return [(a.rule, a.text, a.asks) for a in scope.alerts if a.rule in RULES]


def said(answers: list[Told]) -> list[Any]:
    first, *others = [answer.value for answer in answers]
    assert not any(others)
    return first


@pytest.mark.parametrize(
    ("odd", "difference"),
    [
        ("rate", "lr of AdamW is 0.001 on ranks 0, 2, 3 and 0.01 on rank 1."),
        ("later", "betas of AdamW is (0.9, 0.999) on ranks 0, 2, 3 and (0.9, 0.95) on rank 1."),
        ("clip", "the limit of clipping is 1 on ranks 0, 2, 3 and 2 on rank 1."),
        ("mode", "what is in train mode is 4 of 4 modules on ranks 0, 2, 3 and 3 of 4 modules on rank 1."),
        ("frozen", "what is frozen is nothing on ranks 0, 2, 3 and 2.bias on rank 1."),
    ],
)
def test_the_setting_of_one_rank_is_named_with_both_values(odd: str, difference: str, four_ranks: RankPool) -> None:
    assert said(four_ranks.run(train, odd, True)) == [
        ("settings differ on ranks", f"Ranks train one model with different settings: {difference}", False)
    ]


def test_a_file_that_one_rank_has_in_another_version_is_named(four_ranks: RankPool, tmp_path: Path) -> None:
    ((rule, text, asks),) = said(four_ranks.run(train, "source", True, str(tmp_path)))
    assert (rule, asks) == ("settings differ on ranks", False)
    assert re.search(r"settings: the source of Shift is [0-9a-f]{8} on ranks 0, 2, 3 and [0-9a-f]{8} on rank 1\.$", text)


def test_ranks_that_nothing_binds_are_asked_about_if_their_models_are_alike(ranks: RankPool) -> None:
    ((rule, text, asks),) = said(ranks.run(train, "rate", False))
    assert (rule, asks) == ("settings differ on ranks", True) and "lr of AdamW is 0.001 on rank 0 and 0.01 on rank 1" in text
    assert said(ranks.run(train, "width", False)) == []


@pytest.mark.parametrize("draws", ["draws", "noise"])
def test_draws_from_one_random_state_are_asked_about(draws: str, ranks: RankPool) -> None:
    ((rule, text, asks),) = said(ranks.run(train, draws, True))
    assert (rule, asks) == ("same random numbers on ranks", True)
    assert text.startswith("Ranks 0, 1 have the same random state as step 3 begins, and draw from it in each step")
    assert said(ranks.run(train, f"own {draws}", True)) == []


def test_one_random_state_that_nothing_draws_from_is_left_alone(ranks: RankPool) -> None:
    assert said(ranks.run(train, "no draws", True)) == []


def train_with_frozen(rank: int, how: str) -> list[Any]:
    torch.manual_seed(rank if how == "own quantizer" else 0)
    quantizer = Net().requires_grad_(False)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)))
    if how == "own part":
        nn.init.constant_(model.module[0].weight, rank)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    with numscope.watch(quantizer) as of_quantizer, numscope.watch(model) as scope:
        for _ in range(8):
            x = torch.randn(6, 4, generator=generator)
            optimizer.zero_grad()
            (model(x) - quantizer(x)).square().mean().backward()
            optimizer.step()
            torch.distributed.barrier()
    return [(a.text, a.asks) for each in (of_quantizer, scope) for a in each.alerts if a.rule == "settings differ on ranks"]


@pytest.mark.parametrize("how", ["own quantizer", "own part"])
def test_frozen_weights_that_differ_are_named(how: str, ranks: RankPool) -> None:
    """speechbrain #2814: a random quantizer that each rank makes by its own seed."""
    ((text, asks),) = said(ranks.run(train_with_frozen, how))
    assert re.search(r"the checksum of the frozen weights is \w{8} on rank 0 and \w{8} on rank 1\.$", text), text
    assert asks is (how == "own quantizer")


def test_frozen_weights_that_agree_are_left_alone(ranks: RankPool) -> None:
    assert said(ranks.run(train_with_frozen, "the same")) == []
