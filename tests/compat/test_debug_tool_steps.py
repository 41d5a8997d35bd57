"""``debug_tool``: how steps are counted, and what is said of a configuration that selects nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import numscope.compat.debug_tool as debug_api
from numscope.records.errors import UsageError
from tests.compat.debugging import FC1, batch, collect, model, read_log, section, sgd, statistics, steps_of, train_step

pytestmark = pytest.mark.usefixtures("debug_tool_ends")

# ---- steps


def test_step_alone_counts_once_it_is_called_however_often_optimizers_step(tmp_path: Path) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    net = model()
    optimizer = sgd(net)
    for step in range(3):
        train_step(net, optimizer, step)
        debug_api.step()
        if step:
            continue
    for step in range(2):  # two optimizer steps a training step
        train_step(net, optimizer, step)
        train_step(net, optimizer, step)
        debug_api.step()
    debug_api.end_debug()
    assert steps_of(tmp_path) == [0, 1, 2, 3, 4]


def test_optimizers_count_where_step_is_never_called(tmp_path: Path) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    net = model()
    optimizer = sgd(net)
    for step in range(3):
        train_step(net, optimizer, step)
    debug_api.end_debug()
    assert steps_of(tmp_path) == [0, 1, 2]


def test_step_counts_without_any_optimizer(tmp_path: Path) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    net = model()
    for step in range(3):
        net(batch(step)).sum().backward()
        debug_api.step()
    debug_api.end_debug()
    assert steps_of(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("how", ["argument", "call"])
def test_run_that_goes_on_from_a_checkpoint_numbers_its_steps_from_there(tmp_path: Path, how: str) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path), init_training_step=500 if how == "argument" else 0)
    if how == "call":
        debug_api.initialize_training_step(500)
    first, second = model(0), nn.ModuleDict({"fc1": nn.Linear(8, 8)})
    for step in range(2):
        train_step(first, sgd(first), step)
        debug_api.step()
    second["fc1"](batch(0)).sum().backward()  # its first call is in step 502
    debug_api.step()
    debug_api.end_debug()
    assert steps_of(tmp_path) == [500, 501]
    assert steps_of(tmp_path, "Layer_1_activation_max") == []  # the layer alone is not called fc1
    with pytest.raises(UsageError):
        debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
        debug_api.initialize_training_step(-1)


def test_model_called_later_begins_at_the_step_at_work(tmp_path: Path) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    first, second = model(0), model(1)
    train_step(first, sgd(first), 0)
    debug_api.step()
    train_step(second, sgd(second), 0)
    debug_api.step()
    debug_api.end_debug()
    lines = read_log(statistics(tmp_path))
    assert [line.step for line in lines if line.name == "layers.0.fc1_activation_max"] == [0]
    assert [line.step for line in lines if line.name == "Model.layers.0.fc1_activation_max"] == [1]


# ---- what selects nothing


def test_config_that_selects_nothing_is_an_error_before_the_first_weights_move(tmp_path: Path) -> None:
    config = section(layers={"layer_name_regex_pattern": "linear_fc1"}, collect_tensor_stats=collect(["max"], ["activation"]))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(UsageError, match=r'watched\.layers: layer_name_regex_pattern: "linear_fc1" matches none of the model\'s'):
        train_step(net, sgd(net), 0)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_config_that_selects_nothing_is_an_error_at_the_first_step_without_optimizer(tmp_path: Path) -> None:
    config = section(layers={"layer_name_regex_pattern": "linear_fc1"}, collect_tensor_stats=collect(["max"], ["activation"]))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    model()(batch(0)).sum().backward()
    with pytest.raises(UsageError, match="matches none of the model's"):
        debug_api.step()


def test_section_may_select_layers_of_one_of_several_models(tmp_path: Path) -> None:
    config = {
        **FC1,
        "other": section(layers={"layer_name_regex_pattern": "gate"}, collect_tensor_stats=collect(["max"], ["weight"]))["watched"],
    }
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    net, other = model(), nn.Sequential()
    other.add_module("gate", nn.Linear(3, 3))
    other(net(batch(0))).sum().backward()
    torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1).step()
    debug_api.step()
    debug_api.end_debug()
    names = {line.name for line in read_log(statistics(tmp_path))}
    assert "gate_weight_max" in names
    assert "layers.0.fc1_activation_std" in names
