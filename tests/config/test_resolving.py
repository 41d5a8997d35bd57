"""A plan on a model's layers: what matches nothing and what contradicts itself is an error."""

from __future__ import annotations

from typing import Any

import pytest

from numscope import UsageError
from numscope.config import Resolved, load, resolve
from numscope.records.layer import Layer

LAYERS = [
    Layer("h.0", "Block", "h.0", owns_parameters=False),
    *(Layer(f"h.{n}.{part}", "Linear", f"h.{n}.{part}", ("weight",), 8, 32) for n in (0, 1) for part in ("qkv", "fc1", "fc2")),
    Layer("head", "Linear", "head", ("weight",), 8, 32),
]


def section(feature: str = "statistics", layers: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    if feature == "statistics":
        settings = {"stats": ["max"], "tensors": ["activation"], **settings}
    return {"enabled": True, "layers": layers or {"layer_types": ["fc"]}, feature: {"enabled": True, **settings}}


def resolved(**sections: dict[str, Any]) -> Resolved:
    return resolve(load(sections), LAYERS)


def chosen(found: Resolved) -> list[tuple[str, tuple[str, ...], list[str]]]:
    return [(collect.section, collect.tensors, [layer.name for layer in layers]) for collect, layers in found.collects]


@pytest.mark.parametrize(
    ("layers", "error"),
    [
        (
            {"layer_name_regex_pattern": r".*(fc3|fc4)"},
            'a.layers: layer_name_regex_pattern: ".*(fc3|fc4)" matches none of the model\'s 8 layers. Nearest: "h.0.fc2".',
        ),
        (
            {"layer_name_regex_pattern": "zzz"},
            'a.layers: layer_name_regex_pattern: "zzz" matches none of the model\'s 8 layers. Layers: "h.0.qkv", "h.0.fc1", "h.0.fc2", ….',
        ),
        (
            {"layer_name_regex_pattern": r"^h\.0$"},
            'a.layers: layer_name_regex_pattern: "^h\\\\.0$" matches only modules without their own parameters ("h.0"). '
            "To select them: containers: true.",
        ),
        (
            {"layer_types": ["fc1", "fcc2"]},
            'a.layers.layer_types: "fcc2" is neither part of a layer\'s name nor a class. Nearest: "h.0.fc2".',
        ),
        ({"layer_names": ["head", "h.1.fc3"]}, 'a.layers.layer_names: "h.1.fc3" is not a layer\'s name. Nearest: "h.1.fc2".'),
        (
            {"layer_numbers": ["2-5", 7]},
            "a.layers: layer_numbers: 2-5, 7 matches none of the model's 8 layers. Layer numbers: 0-1.",
        ),
        (
            {"layer_numbers": [1], "layer_types": ["head"]},
            'a.layers: layer_numbers: 1 with layer_types: "head" matches none of the model\'s 8 layers. Layer numbers: 0-1.',
        ),
    ],
)
def test_selection_that_matches_nothing_names_the_nearest_layers(layers: dict[str, Any], error: str) -> None:
    plan = load({"a": section(layers=layers)})
    with pytest.raises(UsageError) as caught:
        resolve(plan, LAYERS)
    assert str(caught.value) == f"config: {error}"
    lenient = resolve(plan, LAYERS, strict=False)
    assert lenient.unmatched == (str(caught.value),)


def test_all_unmatched_sections_are_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        resolved(a=section(layers={"layer_types": ["x1"]}), b=section(layers={"layer_numbers": 9}))
    assert [line.split(":")[1] for line in str(caught.value).split("\n")] == [" a.layers.layer_types", " b.layers"]


def test_numbers_beyond_the_model_are_a_note() -> None:
    found = resolved(a=section(layers={"layer_numbers": ["1-12"]}))
    assert found.notes == ("config: a.layers.layer_numbers: no layer has the number 2-12",)
    assert chosen(found) == [("a", ("activation",), ["h.1.qkv", "h.1.fc1", "h.1.fc2"])]


def test_merge_regex_that_matches_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r'a\.statistics\.merge: "layers\\\\\.\(\.\)" matches none of the layers'):
        resolved(a=section(merge=r"layers\.(.)"))


def test_same_settings_in_two_sections_are_collected_once() -> None:
    found = resolved(
        a=section(tensors=["activation"]),
        b=section(layers={"layer_types": ["fc1", "qkv"]}, tensors=["activation", "weight"]),
    )
    fc = ["h.0.fc1", "h.0.fc2", "h.1.fc1", "h.1.fc2"]
    assert chosen(found) == [
        ("a", ("activation",), fc),
        ("b", ("activation", "weight"), ["h.0.qkv", "h.1.qkv"]),
        ("b", ("weight",), ["h.0.fc1", "h.1.fc1"]),
    ]


def test_sections_that_merge_sites_keep_their_own_layers() -> None:
    found = resolved(a=section(merge="all"), b=section(layers={"layer_types": ["fc1"]}, merge="all"))
    assert [len(layers) for _, layers in found.collects] == [4, 2]


@pytest.mark.parametrize(
    "other", [{"freq": 2}, {"stats": ["min"]}, {"reduce": False}, {"evaluation": True}, {"merge": "all"}, {"start_end_list": [[1, 2]]}]
)
def test_same_feature_with_different_settings_for_one_layer_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        resolved(a=section(), b=section(layers={"layer_names": ["h.1.fc2"]}, **other))
    expected = 'config: b.statistics: activation of "h.1.fc2" gets this feature from a with other settings'
    assert str(caught.value).startswith(expected)


def test_same_feature_with_different_settings_for_other_tensors_or_layers_is_right() -> None:
    assert len(resolved(a=section(), b=section(freq=2, tensors=["weight"])).collects) == 2
    assert len(resolved(a=section(), b=section(freq=2, layers={"layer_types": ["qkv"]})).collects) == 2


def test_contradiction_is_an_error_also_where_unmatched_sections_are_not() -> None:
    with pytest.raises(UsageError, match="with other settings"):
        resolve(load({"a": section(), "b": section(freq=2)}), LAYERS, strict=False)


def test_one_name_in_the_log_for_two_statistics_is_refused() -> None:
    document = section("collect_tensor_stats", type=["std"], tensors=["activation"])
    with pytest.raises(UsageError, match=r'b\.collect_tensor_stats: "h\.0\.fc1_activation_std" is logged by a\.statistics too'):
        resolved(a=section(stats=["std"]), b=document)
    assert len(resolved(a=section(stats=["rms"]), b=document).collects) == 2


def test_switches_clash_by_gemm_and_tensor() -> None:
    def scaling(**settings: Any) -> dict[str, Any]:
        return section("per_tensor_scaling", **settings)

    assert len(resolved(a=scaling(gemms=["dgrad"]), b=scaling(gemms=["fprop"], margin=1)).switches) == 2
    assert len(resolved(a=scaling(gemms=["dgrad"]), b=scaling(gemms=["dgrad"], tensors=["weight"])).switches) == 2
    with pytest.raises(UsageError, match=r"b\.per_tensor_scaling: weight of"):
        resolved(a=scaling(gemms=["dgrad"]), b=scaling(gemms=["dgrad"], margin=1, tensors=["weight"]))


def test_gemms_disabled_twice_at_different_steps_are_no_contradiction() -> None:
    for feature, more in (("disable_fp8_layer", {}), ("disable_fp8_gemm", {"gemms": ["fprop"]})):
        found = resolved(a=section(feature, end_step=10, **more), b=section(feature, **more))
        assert [(switch.section, switch.schedule.active(11)) for switch, _ in found.switches] == [("a", False), ("b", True)]
