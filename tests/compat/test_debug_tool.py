"""``debug_tool``'s interface: the document's own calls on any model, and what its users expect."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_hooks
from torch.optim.optimizer import _global_optimizer_pre_hooks

import numscope.compat.debug_tool as debug_api
from numscope.compat import debug_session
from numscope.records.errors import UsageError
from tests.compat.debugging import FC1, batch, collect, debug_log, model, read_log, section, sgd, statistics, steps_of, train_step

EXAMPLE = """
stat_collection:
  enabled: True
  layers:
    layer_name_regex_pattern: .*(fc1|fc2)
  collect_tensor_stats:
    enabled: True
    type: [l1_norm, l2_norm]
    tensors: [activation]
    freq: 2
  transformer_engine:
    collect_tensor_stats:
      enabled: True
      type: [cur_amax, dynamic_range]
      tensors: [activation, gradient]
      freq: 2
    collect_fp8_tensor_stats:
      enabled: True
      type: [overflows, underflows]
      tensors: [activation, gradient]
      freq: 2
"""
pytestmark = pytest.mark.usefixtures("debug_tool_ends")

# ---- the document's own use


@pytest.mark.parametrize("built", ["before", "after"])
def test_documents_example_logs_where_it_says_for_a_model_built_before_or_after(tmp_path: Path, built: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(EXAMPLE)
    net = model() if built == "before" else None
    debug_api.initialize_debug(config=str(config), extensions=["transformer_engine"], log_dir=str(tmp_path))
    net = net or model()
    optimizer = sgd(net)
    for step in range(3):
        train_step(net, optimizer, step)
        debug_api.step()
    debug_api.end_debug()
    lines = read_log(statistics(tmp_path))
    layers = [f"layers.{i}.{name}" for i in range(2) for name in ("fc1", "fc2")]
    expected = {
        f"{layer}_{tensor}_{stat}"
        for layer in layers
        for tensor, stats in (("activation", "l1_norm l2_norm cur_amax dynamic_range"), ("gradient", "cur_amax dynamic_range"))
        for stat in stats.split()
    }
    for step in (0, 2):
        assert {line.name for line in lines if line.step == step} == expected
    assert {line.step for line in lines} == {0, 2}
    first = next(line.value for line in lines if line.name == "layers.0.fc1_activation_l2_norm")
    assert first == pytest.approx(batch(0).double().norm().item(), rel=1e-8)
    assert "layers.1.fc2 (Linear)" in debug_log(tmp_path)


def test_modules_given_a_name_keep_it_others_go_by_their_qualified_name_the_root_by_a_generic_one(tmp_path: Path) -> None:
    class Named(nn.Linear):
        def __init__(self, *args: int, name: str) -> None:
            super().__init__(*args)
            self.name = name

    net = nn.Sequential(Named(8, 4, name="model.decoder.layers.4.self_attention.linear_proj"), nn.Linear(4, 2))
    alone = nn.Linear(8, 2)
    config = section(layers={"layer_types": "all"}, collect_tensor_stats=collect(["max"], ["output"]))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    for built in (net, alone):
        built(torch.ones(1, 8)).sum().backward()
    debug_api.step()
    debug_api.end_debug()
    names = {line.name.removesuffix("_output_max") for line in read_log(statistics(tmp_path))}
    assert names == {"model.decoder.layers.4.self_attention.linear_proj", "1", "Layer_1"}


def test_training_computes_bitwise_the_same(tmp_path: Path) -> None:
    def train(watched: bool) -> list[Any]:
        net = model()
        if watched:
            debug_api.initialize_debug(section(layers={"layer_types": "all"}, collect_tensor_stats=collect(
                ["max", "kurtosis"], ["activation", "weight", "gradient", "wgrad", "dgrad"])), log_dir=str(tmp_path))  # fmt: skip
        optimizer = sgd(net)
        losses = [train_step(net, optimizer, step) for step in range(4)]
        return [losses, [p.detach().clone() for p in net.parameters()]]

    bare, watched = train(False), train(True)
    assert bare[0] == watched[0]
    assert all(torch.equal(a, b) for a, b in zip(bare[1], watched[1], strict=True))


# ---- the default run


@pytest.mark.parametrize("config", [None, ""])
def test_default_run_installs_nothing_and_writes_nothing(tmp_path: Path, config: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hooks = (torch_hooks._global_forward_pre_hooks, torch_hooks._global_forward_hooks)
    before = [len(each) for each in hooks]
    debug_api.initialize_debug(config, extensions=["transformer_engine"])
    net = model()
    train_step(net, sgd(net), 0)
    assert [len(each) for each in hooks] == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert not _global_optimizer_pre_hooks
    debug_api.step()
    assert debug_api.log_tensor_stats("fc1", "activation", torch.ones(2)) == {}
    debug_api.end_debug()
    assert os.listdir(tmp_path) == []


def test_steps_off_the_schedule_run_the_bare_model(tmp_path: Path) -> None:
    config = section(layers={"layer_types": ["fc1"]}, collect_tensor_stats=collect(["max"], ["activation"], freq=3))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    net = model()
    optimizer = sgd(net)
    hooked = []
    for step in range(6):
        train_step(net, optimizer, step)
        debug_api.step()
        hooked.append([name for name, m in net.named_modules() if m._forward_hooks or m._forward_pre_hooks])
    armed = ["layers.0.fc1", "layers.1.fc1"]
    assert hooked == [[], [], armed, [], [], armed]  # as the next step finds it


def test_models_are_looked_for_until_optimizers_know_theirs_and_again_when_others_come(tmp_path: Path) -> None:
    def num_hooks() -> int:
        return len(torch_hooks._global_forward_pre_hooks) - before

    before = len(torch_hooks._global_forward_pre_hooks)
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    first, second = model(0), model(1)
    optimizer, other = sgd(first), sgd(second)
    looking = []
    for step in range(7):
        train_step(first, optimizer, step)
        if step >= 3:
            train_step(second, other, step)
        debug_api.step()
        looking.append(num_hooks())
    debug_api.end_debug()
    assert looking == [1, 0, 0, 1, 1, 0, 0]
    assert num_hooks() == 0
    assert steps_of(tmp_path) == list(range(7))
    assert steps_of(tmp_path, "Model.layers.0.fc1_activation_max") == [4, 5, 6]  # from the step after its optimizer's first


def test_config_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stats.yaml").write_text(EXAMPLE)
    with pytest.raises(UsageError, match=r"statss\.yaml: no such file, expected a YAML file\. Did you mean \"stats\.yaml\"\?$"):
        debug_api.initialize_debug(str(tmp_path / "statss.yaml"), log_dir=str(tmp_path))
    debug_api.initialize_debug(str(tmp_path / "stats.yaml"), log_dir=str(tmp_path))  # the failed call has begun nothing


def test_all_errors_of_a_config_come_at_once(tmp_path: Path) -> None:
    wrong = section(layers={"layer_name_regex_pattern": "fc1"}, collect_tensor_stats=collect(["l2norm"], ["weigth"]))
    with pytest.raises(UsageError) as caught:
        debug_api.initialize_debug(wrong, log_dir=str(tmp_path))
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert any('"l2norm"' in line and 'Did you mean "l2_norm"?' in line for line in lines)
    assert any('"weigth"' in line for line in lines)


def test_unknown_extension_is_refused() -> None:
    text = "extensions[0]: got 'transformer_engin', expected one of transformer_engine. Did you mean 'transformer_engine'?"
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        debug_api.initialize_debug(None, extensions=["transformer_engin"])


# ---- once per rank


def test_second_initialization_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    with pytest.raises(UsageError, match=r"^initialize_debug: called a second time, expected once on each rank\. Call end_debug\(\) first"):
        debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    debug_api.end_debug()
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))


def test_what_needs_an_initialization_says_so_and_what_ends_a_step_does_nothing() -> None:
    debug_api.step()
    debug_api.end_debug()
    debug_api.initialize_training_step(3)
    calls: list[tuple[str, Any]] = [
        ("log_message", lambda: debug_api.log_message("x")),
        ("log_tensor_stats", lambda: debug_api.log_tensor_stats("a", "weight", torch.ones(1))),
        ("set_tensor_reduction_group", lambda: debug_api.set_tensor_reduction_group(None)),
        ("get_tensor_reduction_group", debug_api.get_tensor_reduction_group),
        ("infer_and_assign_layer_names", lambda: debug_api.infer_and_assign_layer_names(nn.Linear(1, 1))),
    ]
    for name, call in calls:
        text = f"{name}: nothing is initialized, expected initialize_debug(…) or initialize(…) first, once on each rank."
        with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
            call()


# ---- where statistics go


@pytest.mark.parametrize(("said", "tag"), [({}, "layers.0.fc1_activation_max"), ({"names": "grouped"}, "activation.max/layers.0.fc1")])
def test_default_logging_can_be_off_and_tensorboard_gets_them(said: dict[str, str], tag: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "tb"))
    debug_api.initialize_debug({**FC1, **said}, log_dir=str(tmp_path / "logs"), tb_writer=writer, disable_default_logging=True)
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.step()
    debug_api.end_debug()
    writer.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert tag in events.Tags()["scalars"]
    assert not statistics(tmp_path / "logs").exists()


def test_what_is_no_tensorboard_writer_is_refused_by_its_arguments_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^tb_writer: got 'runs', expected a writer with add_scalar"):
        debug_api.initialize_debug(FC1, log_dir=str(tmp_path), tb_writer="runs")


def test_logger_of_ones_own_gets_each_statistic(tmp_path: Path) -> None:
    got: list[tuple[str, float, int]] = []

    class Mine:
        def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
            got.append((name, value, iteration))

    debug_api.initialize_debug(FC1, log_dir=str(tmp_path), loggers=[Mine()])
    net = model()
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    assert ("layers.0.fc1_activation_max", batch(0).max().item(), 0) in got


def test_statistics_of_the_step_at_work_are_written_where_a_script_forgets_to_end(tmp_path: Path) -> None:
    script = f"""
        import torch, numscope.compat.debug_tool as debug_api
        debug_api.initialize_debug({FC1!r}, log_dir={str(tmp_path)!r})
        net = torch.nn.Sequential(); net.add_module("fc1", torch.nn.Linear(8, 8))
        net(torch.ones(1, 8)).sum().backward()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.name for line in read_log(statistics(tmp_path))] == ["fc1_activation_max", "fc1_activation_std"]


def test_message_is_written_once_a_layer_and_warnings_reach_stderr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    debug_api.initialize_debug(FC1, log_dir=str(tmp_path))
    for _ in range(3):
        debug_api.log_message("scale set to 2", layer_name="fc1")
        debug_api.log_message("scale set to 4", layer_name="fc1")
        debug_api.log_message("scale set to 2")
        debug_api.log_message("too large", level=logging.WARNING)
    debug_api.end_debug()
    lines = [line.split(" - ", 1)[1] for line in debug_log(tmp_path).splitlines() if "scale" in line or "too large" in line]
    assert lines == ["INFO - LAYER=fc1: scale set to 2", "INFO - LAYER=fc1: scale set to 4", "INFO - scale set to 2", "WARNING - too large"]
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING and "large" in r.message] == ["too large"]


def test_message_in_a_default_run_goes_to_the_debug_log(tmp_path: Path) -> None:
    debug_api.initialize_debug(None, log_dir=str(tmp_path))
    debug_api.log_message("hello")
    debug_api.end_debug()
    assert debug_log(tmp_path).endswith(" - INFO - hello\n")


# ---- names


def test_names_are_inferred_with_layer_numbers_and_given_ones_stay(tmp_path: Path) -> None:
    net = model()
    net.layers[0].layer_number = 7  # type: ignore[assignment]
    net.head.name = "lm_head"  # type: ignore[assignment]
    config = section(layers={"layer_types": "all"}, collect_tensor_stats=collect(["max"], ["activation"]))
    debug_api.initialize_debug(config, log_dir=str(tmp_path))
    debug_api.infer_and_assign_layer_names([net])
    train_step(net, sgd(net), 0)
    debug_api.end_debug()
    names = {line.name.removesuffix("_activation_max") for line in read_log(statistics(tmp_path))}
    assert names == {"model.layers.7.fc1", "model.layers.7.fc2", "model.layers.1.fc1", "model.layers.1.fc2", "lm_head"}
    assert "assigned layer name: model.layers.7.fc1" in debug_log(tmp_path)


def test_names_are_inferred_through_wrappers_that_are_no_modules(tmp_path: Path) -> None:
    class Wrapper:
        module = model()

    debug_api.initialize_debug(None, log_dir=str(tmp_path))
    debug_api.infer_and_assign_layer_names(Wrapper())  # type: ignore[arg-type]
    assert Wrapper.module.head.name == "model.head"
    with pytest.raises(UsageError, match=r"^infer_and_assign_layer_names: got int, expected a model or a list of models"):
        debug_api.infer_and_assign_layer_names([3])


# ---- features


PLUGINS = """
import numscope

@numscope.statistic("spread")
def spread(summary):
    return summary.max - summary.min

@numscope.statistic("median", of="tensor", merge="mean")
def median(tensor):
    return tensor.median()

@numscope.feature("CountLarge", tensors=["activation", "weight"], settings={"above": 1.0})
def count_large(layer, tensor_name, tensor, step, settings):
    '''How many elements are large.'''
    return {"num_large": (tensor > settings["above"]).sum()}

@numscope.rule("large")
def large(observation):
    return f"{observation.fields['max']:.3g} is large" if observation.fields["max"] > 1e3 else None

@numscope.statistic("broken")
def broken(summary):
    return summary.no_such_field
"""


def test_features_of_a_file_collect_log_and_alert_and_a_broken_one_is_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / f"mine_{tmp_path.name}.py"
    file.write_text(PLUGINS)
    config = section(
        layers={"layer_types": ["fc1"]},
        collect_tensor_stats=collect(["spread", "median", "broken"], ["activation"]),
        CountLarge={"enabled": True, "tensors": ["activation"], "above": 0.5},
    )
    debug_api.initialize_debug(config, log_dir=str(tmp_path), features=str(file))
    assert "CountLarge" in debug_api.list_features()
    assert "above: float (may be left out: 1.0)" in debug_api.explain_features("CountLarge")
    net = model()
    optimizer = sgd(net)
    train_step(net, optimizer, 0)
    debug_api.step()
    net(1e4 * batch(1)).mean().backward()
    debug_api.step()
    session = debug_session.at_work()
    assert session is not None and session.recorder is not None
    (scope,) = session._scopes()
    assert [(alert.layer, "is large" in alert.text) for alert in scope.alerts] == [("layers.0.fc1", True), ("layers.1.fc1", True)]
    debug_api.end_debug()
    found = {(line.name, line.step): line.value for line in read_log(statistics(tmp_path))}
    x = batch(0)
    assert found["layers.0.fc1_activation_spread", 0] == pytest.approx((x.max() - x.min()).item(), rel=1e-7)
    assert found["layers.0.fc1_activation_median", 0] == pytest.approx(x.median().item(), rel=1e-7)
    assert found["layers.0.fc1_activation_num_large", 0] == (x > 0.5).sum().item()
    assert not any("broken" in name for name, _ in found)
    said = debug_log(tmp_path)
    line = 1 + PLUGINS.splitlines().index("    return summary.no_such_field")
    assert said.count(f"statistic 'broken' is off from here on: AttributeError at {file}:{line}:") == 1
    assert "takes its own pass over each tensor" in said


def test_feature_list_names_all_dialects_and_their_words_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    names = debug_api.list_features()
    assert {"statistics", "collect_tensor_stats", "LogTensorStats", "collect_fp8_tensor_stats", "disable_fp8_gemm"} <= set(names)
    assert capsys.readouterr().out == f"{names}\n"
    assert "type: a list of statistics" in debug_api.explain_features("collect_tensor_stats")
    assert "stats: a list of statistics" in debug_api.explain_features(["LogTensorStats"])
    assert all(f"{name}: " in debug_api.explain_features("all") for name in names)
    assert debug_api.explain_features().startswith('Name a feature, several, or "all": ')
    with pytest.raises(UsageError, match=r"^explain_features: got 'LogTensorStat', expected one of .* Did you mean 'LogTensorStats'"):
        debug_api.explain_features("LogTensorStat")
