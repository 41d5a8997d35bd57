"""The reference document's examples as they stand, today's upstream names, and our own grammar: one form for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from numscope.config import load
from numscope.config.dialects import KEYS, LAYER_KEYS
from numscope.config.features import ALIASES, FEATURES
from numscope.config.plan import Collect, Plan, Schedule, Selection, StatRequest
from numscope.config.schema import Layers, Statistics
from numscope.records.errors import UsageError
from numscope.summary.operand_casts import CAST_STATS

HERE = Path(__file__).parent
DOCUMENT = sorted((HERE / "document").glob("*.yaml"))
REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "te-debug-module.md"


def asked(*labels: str, **canonical: str) -> tuple[StatRequest, ...]:
    return tuple(StatRequest(label, canonical.get(label, label)) for label in labels)


def section(**features: Any) -> Plan:
    return load({"s": {"enabled": True, "layers": {"layer_types": ["fc1"]}, **features}})


@pytest.mark.skipif(not REFERENCE.exists(), reason="the document is not beside this checkout")
def test_copied_examples_are_the_documents() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(blocks) == sorted(path.read_text(encoding="utf-8") for path in DOCUMENT)


@pytest.mark.parametrize("path", DOCUMENT, ids=lambda path: path.stem)
def test_example_of_the_document_loads_as_it_stands(path: Path) -> None:
    plan = load(path)
    assert plan.collects or plan.switches or plan.notes


def test_documents_statistics_example_means_what_it_says() -> None:
    plan = load(HERE / "document" / "statistics_collection.yaml")
    schedule, tensors = Schedule(100, ((1000, 5000),)), ("activation", "gradient", "weight")
    generic = asked("min", "max", "mean", "std", "l1_norm", "l2_norm", std="sample_std")
    high = asked("cur_amax", "dynamic_range")
    assert plan.collects == (
        Collect("statistics_collection", "collect_tensor_stats", Selection(), schedule, tensors, generic),
        Collect("statistics_collection", "transformer_engine.collect_tensor_stats", Selection(), schedule, tensors, high),
    )
    [switch] = plan.switches
    stats = asked("underflows", "overflows", underflows="underflows_pct", overflows="overflows_pct")
    assert (switch.feature, switch.schedule) == ("collect_fp8_tensor_stats", schedule)
    assert switch.settings == {"stats": stats, "tensors": tensors}


def test_documents_last_example_is_a_section_with_its_layers() -> None:
    plan = load(HERE / "document" / "performance.yaml")
    assert [(part.section, part.selection) for part in (*plan.collects, *plan.switches)] == [
        ("stat_collection", Selection(pattern=".*(fc1|fc2)"))
    ] * 3


def test_documents_precision_examples_become_switches() -> None:
    found = {path.stem: [(s.feature, s.settings) for s in load(path).switches] for path in DOCUMENT}
    gemms = ("dgrad", "wgrad", "fprop")
    assert found["disabling_fp8_gemms"] == [("disable_fp8_gemm", {"gemms": gemms})]
    assert found["disabling_fp8_layers"] == [("disable_fp8_layer", {})]
    scaling = {"gemms": ("fprop", "dgrad", "wgrad"), "tensors": None, "margin": 0}
    assert found["per_tensor_scaling"] == [("per_tensor_scaling", scaling)]


def test_layers_alone_load_with_a_note() -> None:
    assert load(HERE / "document" / "layer_selection.yaml").notes == (
        "layer_selection: selects layers and has no feature: nothing is collected",
    )


def test_upstream_names_mean_the_same() -> None:
    settings = {"enabled": True, "tensors": ["weight"], "freq": 2}
    upstream = section(transformer_engine={"LogTensorStats": {**settings, "stats": ["std"]}}).collects
    document = section(transformer_engine={"collect_tensor_stats": {**settings, "type": ["std"]}}).collects
    assert [(c.schedule, c.tensors, c.stats) for c in upstream] == [(c.schedule, c.tensors, c.stats) for c in document]
    assert upstream[0].stats == (StatRequest("std", "sample_std"),)
    assert section(statistics={**settings, "stats": ["std"]}).collects[0].stats == (StatRequest("std", "std"),)


def test_upstream_tensors_struct_is_a_collection_an_entry() -> None:
    plan = load(
        yaml.safe_load(
            """
            stats:
              enabled: True
              layers: {exact_layer_names: [fc1, fc2]}
              transformer_engine:
                LogTensorStats:
                  enabled: True
                  stats: [max]
                  tensors_struct:
                  - tensor: activation
                    freq: 10
                    end_step: -1
                  - tensors: [gradient, dgrad]
                    stats: [mean, min]
                    start_end_list: [[0, 20], [80, -1]]
                LogFp8TensorStats:
                  enabled: True
                  tensors_struct:
                  - {tensor: weight, stats: ["underflows%", mxfp8_mse, "fp8_current_scaling_underflows%_columnwise"]}
            """
        )
    )
    assert [(c.tensors, c.stats, c.schedule) for c in plan.collects] == [
        (("activation",), asked("max"), Schedule(10)),
        (("gradient", "dgrad"), asked("mean", "min"), Schedule(spans=((0, 20), (80, None)))),
    ]
    assert plan.collects[0].selection == Selection(names=("fc1", "fc2"))
    assert plan.switches[0].settings["stats"] == (
        StatRequest("underflows%", "underflows_pct"),
        StatRequest("mxfp8_mse", "mse", (("recipe", "mxfp8"),)),
        StatRequest(
            "fp8_current_scaling_underflows%_columnwise",
            "underflows_pct",
            (("recipe", "fp8_current_scaling"), ("orientation", "columnwise")),
        ),
    )


def test_a_word_alone_is_a_list_of_one() -> None:
    plan = section(
        statistics={"enabled": True, "stats": ["max"], "tensors": "activation"},
        LogFp8TensorStats={"enabled": True, "stats": ["mse"], "tensors": "gradient"},
        DisableFP8GEMM={"enabled": True, "gemms": "dgrad"},
    )
    assert [c.tensors for c in plan.collects] == [("activation",)]
    assert [(s.settings.get("tensors"), s.settings.get("gemms")) for s in plan.switches] == [(("gradient",), None), (None, ("dgrad",))]
    with pytest.raises(UsageError, match=r"statistics\.tensors: got \"activations\", expected a list of tensors: activation"):
        section(statistics={"enabled": True, "stats": ["max"], "tensors": "activations"})


def test_upstream_gemms_struct_is_a_switch_an_entry() -> None:
    gemms = [
        {"gemm": "fprop", "tensors": ["activation", "weight"]},
        {"gemm": "dgrad", "tensors_struct": [{"tensor": "gradient", "quant_format": "FP8E4M3"}, {"tensor": "weight"}]},
    ]
    plan = section(transformer_engine={"FakeQuant": {"enabled": True, "quant_format": "FP8E5M2", "gemms_struct": gemms}})
    assert [s.settings for s in plan.switches] == [
        {"quant_format": "FP8E5M2", "gemms": ("fprop",), "tensors": ("activation", "weight")},
        {"quant_format": "FP8E4M3", "gemms": ("dgrad",), "tensors": ("gradient",)},
        {"quant_format": "FP8E5M2", "gemms": ("dgrad",), "tensors": ("weight",)},
    ]


SETTINGS: dict[str, dict[str, Any]] = {
    "statistics": {"stats": ["max"], "tensors": ["weight"]},
    "collect_fp8_tensor_stats": {"stats": ["mse"], "tensors": ["weight"]},
    "collect_nvfp4_tensor_stats": {"stats": ["mse"], "tensors": ["weight"]},
    "disable_fp8_gemm": {"gemms": ["fprop"]},
    "disable_fp8_layer": {},
    "per_tensor_scaling": {"gemms": ["fprop"]},
    "fake_quant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3"},
    "dump_tensors": {"tensors": ["weight"], "quantized_tensor": True},
}


@pytest.mark.parametrize("name", ALIASES)
def test_every_name_of_the_table_is_read_in_both_places(name: str) -> None:
    settings = {"enabled": True, **SETTINGS[ALIASES[name].feature]}
    for plan in (section(**{name: settings}), section(transformer_engine={name: settings}), load({name: settings})):
        assert len(plan.collects) + len(plan.switches) == 1
        assert all(switch.feature == ALIASES[name].feature for switch in plan.switches)
    assert ALIASES[name].feature in FEATURES


def test_what_is_off_is_noted_and_may_be_incomplete_but_not_misspelt() -> None:
    plan = load(
        {
            "a": {"enabled": True, "layers": {"layer_types": "all"}, "LogTensorStats": {"enabled": False, "stats": ["max"]}},
            "b": {"enabled": False, "transformer_engine": {"LogFp8TensorStats": {"enabled": True, "stats": ["underflows%"]}}},
        }
    )
    assert plan.notes == ("a.LogTensorStats: off (enabled: false)", "b: off (enabled: false)")
    assert not plan.collects
    assert not plan.switches
    with pytest.raises(ValueError, match="unknown key"):
        section(statistics={"enabled": False, "stat": ["max"]})


def test_blockwise_options_default_by_tensor() -> None:
    name = "max_blockwise_dynamic_range"
    stats = ["max", name, {name: {"block_size": 16, "max_over_orientations": False}}]
    weight, gradient = section(statistics={"enabled": True, "stats": stats, "tensors": ["weight", "gradient", "activation"]}).collects
    fixed = StatRequest(f"{name}_block_size_16_dims_1", name, (("block_size", 16), ("dims", 1), ("max_over_orientations", False)))
    assert (weight.tensors, gradient.tensors) == (("weight", "activation"), ("gradient",))
    both = (("block_size", 32), ("dims", 1), ("max_over_orientations", True))
    assert weight.stats == (StatRequest("max", "max"), StatRequest(name, name, both), fixed)
    assert gradient.stats[1] == StatRequest(name, name, (*both[:2], ("max_over_orientations", False)))


def test_own_grammar_in_full() -> None:
    settings = {"enabled": True, "stats": ["rms"], "tensors": ["weight"], "reduce": False, "merge": r"h\.(\d+)", "evaluation": True}
    [collect] = section(statistics=settings).collects
    selection = Selection(types=("fc1",))
    assert collect == Collect("s", "statistics", selection, Schedule(), ("weight",), asked("rms"), False, r"h\.(\d+)", True)


def test_numbers_are_read_in_every_form() -> None:
    def numbers(value: object) -> object:
        tree = {"layers": {"layer_numbers": value}, "enabled": True, "statistics": {"enabled": True, **SETTINGS["statistics"]}}
        return load({"s": tree}).collects[0].selection.numbers

    assert numbers(["1-12"]) == set(range(1, 13))
    assert numbers([1, "3-5"]) == {1, 3, 4, 5}
    assert numbers(4) == {4}
    assert numbers("2-3") == {2, 3}
    assert numbers(["all"]) is None
    assert numbers("all") is None


def test_every_name_of_the_tables_is_in_the_docs() -> None:
    docs = (HERE.parents[1] / "docs" / "config.md").read_text(encoding="utf-8")
    words = {*ALIASES, *CAST_STATS, *Layers.model_fields, *Statistics.model_fields, *LAYER_KEYS, *KEYS}
    assert [word for word in sorted(words) if f"`{word}`" not in docs] == []


def test_examples_of_the_docs_load(tmp_path: Path) -> None:
    docs = (HERE.parents[1] / "docs" / "config.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml[^\n]*\n(.*?)```", docs, re.DOTALL)
    files = [tmp_path / f"{number}.yaml" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    told = [(len(load(str(file)).collects), bool(load(str(file)).alerts.rules)) for file in files]
    assert told == [(1, False), (0, True), (0, False), (1, False), (0, False)], "the last is off until it is edited"
