"""The real Megatron Core on CPU and gloo: statistics over its ranks, names, wrappers, faults, the environment's switch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from numscope.precision import DelayedScaling
from numscope.records.errors import NonFiniteError, UsageError
from numscope.records.observation import Observation
from numscope.scope.open_scopes import live
from tests.distributed.ranks import RankPool
from tests.integrations.gpt import LENGTH, SequenceParallel, batch, config, gpt, loss_of, megatron, reduce_gradients, sequence
from tests.late import late

late("megatron.core")
of_megatron = late("numscope.integrations.megatron")

TENSORS = ("activation", "output", "gradient", "dgrad", "weight", "wgrad")
STATS = ("mean", "std", "min", "max", "abs_min", "l1_norm", "l2_norm", "zero_pct")


def statistics(pattern: str = ".*", tensors: tuple[str, ...] = TENSORS) -> dict[str, Any]:
    feature = {"enabled": True, "stats": list(STATS), "tensors": list(tensors)}
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "statistics": feature}}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """This process as the only rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1)
    try:
        with megatron():
            yield
    finally:
        for scope in live():
            scope.close()
        dist.destroy_process_group()


Told = dict[str, tuple[Observation, bool]]


def observed(tensor: int, folder: str, steps: int = 2) -> Told:
    """What the last step of a training shows, of sites by name."""
    with megatron(tensor) as state:
        model = gpt(config(tensor))
        ids = batch().chunk(state.get_data_parallel_world_size())[state.get_data_parallel_rank()]
        with of_megatron.attach(model, config=statistics(), log_dir=folder) as watch:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(steps):
                optimizer.zero_grad()
                loss_of(model, ids).backward()
                reduce_gradients(model, state.get_data_parallel_group())
                optimizer.step()
            (scope,) = watch.scopes
            assert scope._watch.inspector is not None
            scope._watch.inspector.settle()
            return {one.name: one for one in scope._watch.inspector.last}


def on_ranks(rank: int, tensor: int, folder: str) -> Told:
    return observed(tensor, folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What one rank that has all of it sees."""
    folder = tmp_path_factory.mktemp("whole")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=0, world_size=1)
    try:
        return observed(1, str(folder))
    finally:
        dist.destroy_process_group()


def check_as_whole(found: Told, whole: Told) -> None:
    assert found.keys() == whole.keys()
    for name, expected in whole.items():
        one = found[name]
        for field in ("numel", "num_zero", "num_nan"):
            assert one.fields[field] == expected.fields[field], (name, field)
        scale = abs(expected.values["max"] - expected.values["min"])
        for stat in STATS:
            assert one.values[stat] == pytest.approx(expected.values[stat], rel=1e-4, abs=1e-4 * scale), (name, stat)


def test_statistics_of_two_tensor_parallel_ranks_are_those_of_the_whole_tensors(ranks: RankPool, whole: Told, tmp_path: Path) -> None:
    told = ranks.run(on_ranks, 2, str(tmp_path))
    assert len(whole) > 80
    for t in told:
        check_as_whole(t.value, whole)
    split = {name for name, one in told[0].value.items() if one.ranks == 2}
    layer = "decoder.layers.1."
    assert {layer + "mlp.linear_fc1_output", layer + "mlp.linear_fc1_weight", layer + "mlp.linear_fc2_wgrad"} <= split
    assert {layer + "self_attention.linear_qkv_gradient", layer + "self_attention.linear_proj_dgrad", "output_layer_output"} <= split
    assert not {layer + "mlp.linear_fc1_activation", layer + "mlp.linear_fc2_output", "decoder.final_layernorm_weight"} & split
    assert [sum(one.mine for one in t.value.values()) for t in told] == [len(whole), 0]
    first, second = sorted((tmp_path / "debug_statistics_logs").iterdir())
    assert "decoder.layers.1.self_attention.linear_proj_dgrad_l2_norm" in first.read_text()
    assert not second.read_text()


def test_statistics_of_two_data_parallel_ranks_are_those_of_the_whole_batch(ranks: RankPool, whole: Told, tmp_path: Path) -> None:
    told = ranks.run(on_ranks, 1, str(tmp_path))
    for t in told:
        check_as_whole(t.value, whole)
    for name, one in told[0].value.items():
        assert one.ranks == (1 if one.tensor in ("weight", "wgrad") else 2), name
    assert [sum(one.mine for one in t.value.values()) for t in told] == [len(whole), 0]


# ---- sequence parallelism


def sequence_parallel(rank: int, folder: str, world: int, low: bool) -> tuple[Told, torch.Tensor]:
    with megatron(world):
        model = SequenceParallel(config(world, sequence_parallel=world > 1))
        if low:
            of_megatron.convert(model, DelayedScaling())
        x = sequence(rank, world)
        with of_megatron.attach(model, config=statistics(), log_dir=folder) as watch:
            model(x).square().sum().backward()
            for parameter in (model.norm.weight, model.norm.bias):  # as Megatron does when gradients are final
                dist.all_reduce(parameter.grad)
            watch.step()
            inspector = watch.scopes[0]._watch.inspector
            assert inspector is not None
            assert x.grad is not None
            inspector.settle()
            return {one.name: one for one in inspector.last}, x.grad


def sequence_parallel_on_ranks(rank: int, folder: str, low: bool) -> tuple[Told, torch.Tensor]:
    return sequence_parallel(rank, folder, 2, low)


@pytest.mark.parametrize("low", [False, True])
def test_sequence_parallel_layers_show_and_compute_the_whole_sequence(ranks: RankPool, tmp_path: Path, low: bool) -> None:
    told = [t.value for t in ranks.run(sequence_parallel_on_ranks, str(tmp_path / "split"), low)]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1)
    try:
        whole, gradient = sequence_parallel(0, str(tmp_path / "whole"), 1, low)
    finally:
        dist.destroy_process_group()
    for found, _ in told:
        check_as_whole(found, whole)
    assert {name for name, one in told[0][0].items() if one.ranks == 1} == {"norm_weight", "norm_wgrad"}
    assert torch.allclose(torch.cat([part for _, part in told]), gradient, rtol=1e-4, atol=1e-5)


# ---- pipeline stages


def stage(rank: int, folder: str) -> tuple[list[str], str, bool]:
    with megatron(1, 2):
        model = gpt(config(pipeline=2, layers=4))
        refused = ""
        try:
            of_megatron.attach(model, on_nonfinite="raise")
        except UsageError as error:
            refused = str(error)
        with of_megatron.attach([model], config=statistics(r"layers\.3\."), log_dir=folder) as watch:
            if rank:
                model.set_input_tensor(torch.randn(LENGTH, 4, 16, requires_grad=True))
                loss_of(model, batch()).backward()
            else:
                mask = torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
                model(batch(), torch.arange(LENGTH).expand(4, LENGTH), mask).sum().backward()
            watch.step()
            inspector = watch.scopes[0]._watch.inspector
            assert inspector is not None
            inspector.settle()
            names = [one.name for one in inspector.last]
        return names, refused, bool(live())


def test_pipeline_stages_call_their_layers_by_the_whole_models_numbers(ranks: RankPool, tmp_path: Path) -> None:
    first, second = (t.value for t in ranks.run(stage, str(tmp_path)))
    assert first[0] == []
    assert "decoder.layers.3.self_attention.linear_proj_output" in second[0]
    assert {name.split(".")[2] for name in second[0]} == {"3"}
    assert first[1].startswith("attach: got on_nonfinite='raise' in a run of several pipeline stages, expected 'warn' or None")
    assert not second[2]


# ---- faults


def root_of(x: torch.Tensor) -> torch.Tensor:
    return x.sqrt()


def fault(rank: int, bad: tuple[int, ...]) -> Any:
    with megatron(2):
        model = gpt(config(2))
        if rank in bad:
            model.decoder.layers[1].mlp.activation_func = root_of  # type: ignore[union-attr, index]
        with of_megatron.attach(model, on_nonfinite="raise"):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            try:
                loss_of(model, batch()).backward()
                optimizer.step()
            except NonFiniteError as error:
                return error.finding
    return None


@pytest.mark.parametrize("bad", [(0, 1), (1,)])
def test_fault_in_a_layer_is_named_on_all_tensor_parallel_ranks(ranks: RankPool, bad: tuple[int, ...]) -> None:
    findings = [t.value for t in ranks.run(fault, bad)]
    for finding in findings:
        assert finding is not None
        culprit = finding.culprit
        assert culprit is not None
        assert (culprit.op, culprit.module) == ("aten.sqrt", "decoder.layers.1.mlp")
        assert culprit.code == "return x.sqrt()"
    assert findings[0].rank == findings[1].rank == bad[0]


def test_fault_is_named_through_megatrons_wrappers(alone: None) -> None:
    from megatron.core.transformer.module import Float16Module

    settings = config(bf16=True)
    inner = gpt(settings)
    inner.decoder.layers[1].mlp.activation_func = root_of  # type: ignore[union-attr, index]
    model = Float16Module(settings, inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with of_megatron.attach(model, on_nonfinite="raise"), pytest.raises(NonFiniteError) as caught:
        loss_of(model, batch()).backward()
        optimizer.step()
    assert caught.value.finding.culprit is not None
    assert caught.value.finding.culprit.module == "decoder.layers.1.mlp"


# ---- wrappers and optimizers


def test_gradients_in_megatrons_buffers_and_copies_of_weights_are_found(alone: None, tmp_path: Path) -> None:
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.module import Float16Module

    settings = config(bf16=True)
    model = DistributedDataParallel(settings, DistributedDataParallelConfig(), Float16Module(settings, gpt(settings)))
    copies = []
    for parameter in model.parameters():  # as Megatron's optimizer for bf16 does
        parameter.main_param = parameter.detach().float().clone().requires_grad_()  # type: ignore[attr-defined]
        copies.append((parameter, parameter.main_param))
    optimizer = torch.optim.SGD([copy for _, copy in copies], lr=0.01)
    what = statistics(r"decoder\.layers\.1\.mlp\.linear_fc1$", ("weight", "wgrad", "activation"))
    with of_megatron.attach([model], config=what, log_dir=tmp_path) as watch:
        inspector = watch.scopes[0]._watch.inspector
        assert inspector is not None
        for _ in range(2):
            model.zero_grad_buffer()
            loss_of(model, batch()).backward()
            model.finish_grad_sync()
            gradient = model.module.module.decoder.layers[1].mlp.linear_fc1.weight.main_grad.clone()
            for parameter, copy in copies:
                copy.grad = parameter.main_grad.float()  # type: ignore[attr-defined]
            optimizer.step()
            for parameter, copy in copies:
                parameter.data.copy_(copy)
        assert watch.scopes[0].step_number == 2  # the copies' optimizer ends steps
        found = {one.name: one for one in inspector.last}
    layer = "decoder.layers.1.mlp.linear_fc1"
    assert found.keys() == {f"{layer}_weight", f"{layer}_wgrad", f"{layer}_activation"}
    assert found[f"{layer}_activation"].dtype == "bfloat16"
    assert found[f"{layer}_wgrad"].values["l2_norm"] == pytest.approx(gradient.double().norm().item())


# ---- switched by the environment


VARIABLES = ("NV_DEBUG_TOOL_ENABLED", "NV_DEBUG_TOOL_CONFIG", "NV_DEBUG_TOOL_LOG_DIR")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Sets the variables by their last words."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "stats.yaml"
    path.write_text(
        "s:\n  enabled: True\n  layers: {layer_types: [linear_fc1]}\n"
        "  transformer_engine:\n    collect_tensor_stats: {enabled: True, type: [cur_amax], tensors: [activation]}\n"
    )

    def put(**words: str) -> Path:
        for word, value in words.items():
            monkeypatch.setenv(f"NV_DEBUG_TOOL_{word}", value)
        return path

    return put


def hooks(model: nn.Module) -> int:
    return sum(len(v) for m in model.modules() for k, v in vars(m).items() if k.endswith("_hooks") and isinstance(v, dict))


def test_without_the_environments_switch_nothing_is_watched(alone: None, environment: Any) -> None:
    model = gpt(config())
    before = hooks(model)
    for words in ({}, {"ENABLED": "0", "CONFIG": "no/such.yaml"}, {"ENABLED": ""}):
        environment(**words)
        with of_megatron.attach(model) as watch:
            watch.step()
            assert (watch.scopes, watch.findings, live(), hooks(model)) == ((), [], (), before)


def test_switched_on_without_a_configuration_is_the_default_run(alone: None, environment: Any) -> None:
    environment(ENABLED="1")
    assert of_megatron.attach(gpt(config())).scopes == ()


def test_the_environment_switches_statistics_on(alone: None, environment: Any, tmp_path: Path) -> None:
    path = environment(ENABLED="1", LOG_DIR=str(tmp_path / "logs"))
    environment(CONFIG=str(path))
    model = gpt(config())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with of_megatron.attach([model]) as watch:
        assert watch.scopes[0]._watch.options.on_nonfinite is None
        loss_of(model, batch()).backward()
        optimizer.step()
    text = (tmp_path / "logs" / "debug_statistics_logs").iterdir().__next__().read_text()
    assert re.findall(r"INFO - (\S+)", text) == [f"decoder.layers.{i}.mlp.linear_fc1_activation_cur_amax" for i in (0, 1)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"ENABLED": "yes"}, "NV_DEBUG_TOOL_ENABLED: got 'yes', expected 1 (on), 0 or nothing (off). Write 1."),
        (
            {"ENABLED": "1", "CONFIG": "no/such.yaml"},
            "NV_DEBUG_TOOL_CONFIG: got 'no/such.yaml', no such file, expected a YAML file's path.",
        ),
    ],
)
def test_wrong_variable_is_refused(alone: None, environment: Any, words: dict[str, str], message: str) -> None:
    environment(**words)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        of_megatron.attach(gpt(config()))


def test_what_is_no_model_and_what_selects_nothing_is_refused(alone: None, environment: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^attach: got a list of nothing, expected a model or a list of model chunks\.$"):
        of_megatron.attach([], config=statistics())
    with pytest.raises(UsageError, match="fc7"):
        of_megatron.attach(gpt(config()), config=statistics("fc7"), log_dir=tmp_path)
    assert live() == ()
