"""``debug_tool``: tensors that a script hands in by itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import numscope.compat.debug_tool as debug_api
from numscope.records.errors import UsageError
from tests.compat.debugging import FC1, Model, batch, collect, debug_log, model, read_log, section, sgd, statistics, train_step

pytestmark = pytest.mark.usefixtures("debug_tool_ends")

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
HANDED = section(layers={"layer_types": ["mine"]}, collect_tensor_stats=collect(SIX, ["activation", "weight"], freq=2))


def test_handed_in_tensor_gives_and_logs_what_its_configuration_asks(tmp_path: Path) -> None:
    debug_api.initialize_debug(HANDED, log_dir=str(tmp_path))
    tensor = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    for _ in range(3):
        found = debug_api.log_tensor_stats("mine.q", tensor_name="activation", tensor=tensor)
        assert debug_api.log_tensor_stats("mine.q", tensor_name="gradient", tensor=tensor) == {}
        assert debug_api.log_tensor_stats("other", tensor_name="activation", tensor=tensor) == {}
        debug_api.step()
    exact = tensor.double()
    expected = [exact.min(), exact.max(), exact.mean(), exact.std(), exact.norm(1), exact.norm(2)]
    assert list(found) == SIX
    assert list(found.values()) == pytest.approx([e.item() for e in expected], rel=1e-12)
    assert debug_api.log_tensor_stats("mine.q", "activation", tensor, iteration=10) == found
    assert debug_api.log_tensor_stats("mine.q", "activation", tensor, iteration=11) == {}
    debug_api.end_debug()
    lines = read_log(statistics(tmp_path))
    assert [(line.name, line.step) for line in lines] == [(f"mine.q_activation_{s}", step) for step in (0, 2, 10) for s in SIX]


def test_handed_in_tensor_belongs_to_the_step_just_done_until_the_next_forward(tmp_path: Path) -> None:
    config = section(layers={"layer_name_regex_pattern": "fc1|mine"}, collect_tensor_stats=collect(["max"], ["activation"]))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    net = model()
    optimizer = sgd(net)
    for step in range(3):
        train_step(net, optimizer, step)
        debug_api.log_tensor_stats("mine", "activation", torch.full((1,), float(step)))
        debug_api.step()
    debug_api.end_debug()
    assert [(line.step, line.value) for line in read_log(statistics(tmp_path)) if line.name == "mine_activation_max"] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_handed_in_statistics_serve_as_floats_and_as_tensors(tmp_path: Path) -> None:
    debug_api.initialize_debug(HANDED, log_dir=str(tmp_path))
    tensor = torch.tensor([1.0, -3.0, 0.5])
    found = debug_api.log_tensor_stats("mine", "weight", tensor)
    assert isinstance(found["max"], float)
    assert json.dumps(found["max"]) == "1.0"
    assert found["min"].item() == -3.0
    assert f"{found['l1_norm'].cpu().float():.2f}" == "4.50"
    assert torch.allclose(found["l2_norm"], tensor.norm())
    assert torch.equal(torch.maximum(found["max"], tensor), torch.tensor([1.0, 1.0, 1.0]))
    assert math.isnan(debug_api.log_tensor_stats("mine", "weight", torch.tensor([math.nan]))["mean"])


def test_handed_in_tensor_of_a_site_that_is_collected_by_itself_is_written_once(tmp_path: Path) -> None:
    class Calls(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given.append(debug_api.log_tensor_stats("layers.0.fc1", "activation", x))
            return super().forward(x)

    given: list[dict[str, Any]] = []
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    torch.manual_seed(0)
    net = Calls()
    for step in range(2):
        train_step(net, sgd(net), step)
        debug_api.step()
    debug_api.end_debug()
    lines = [line for line in read_log(statistics(tmp_path)) if line.name == "layers.0.fc1_activation_max"]
    assert [line.step for line in lines] == [0, 1]
    assert [line.value for line in lines] == pytest.approx([g["max"] for g in given])
    assert debug_log(tmp_path).count("log_tensor_stats writes nothing for its activation") == 1


def test_handed_in_names_count_as_selected(tmp_path: Path) -> None:
    debug_api.initialize_debug(HANDED, log_dir=str(tmp_path))
    net = model()  # no layer of it is called mine
    optimizer = sgd(net)
    optimizer.zero_grad()
    net(batch(0)).sum().backward()
    debug_api.log_tensor_stats("mine", "weight", torch.ones(2))
    optimizer.step()
    debug_api.step()


@pytest.mark.parametrize(
    ("name", "tensor", "text"),
    [
        (
            "weigth",
            torch.ones(1),
            "tensor_name: got 'weigth', expected one of activation, weight, gradient, output, wgrad, dgrad. Did you mean 'weight'?",
        ),
        ("weight", [1.0], "tensor: got list, expected a torch.Tensor."),
    ],
)
def test_handed_in_nonsense_is_refused(tmp_path: Path, name: str, tensor: Any, text: str) -> None:
    debug_api.initialize_debug(HANDED, log_dir=str(tmp_path))
    with pytest.raises(UsageError) as caught:
        debug_api.log_tensor_stats("mine", name, tensor)
    assert str(caught.value) == text
