"""Layers by name, number and type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.config.plan import Selection, block_of, number_of
from numscope.records.layer import Layer


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model.decoder.layers.4.self_attention.linear_proj", 4),
        ("encoder.block.3.layer.1.DenseReluDense.wi", 3),
        ("transformer.h.11.mlp.c_fc", 11),
        ("0", 0),
        ("Layer_1", 1),
        ("layer4", 4),
        ("layer4.0.conv1", 0),
        ("decoder_block_2.fc1", 2),
        ("TransformerLayer3.proj", 3),
        ("h_7.attn", 7),
        ("layers.2.mlp.experts.5.w1", 2),
        ("mlp.experts.5.w1", None),
        ("local_experts.0.linear_fc1", None),
        ("fc1", None),
        ("mlp.linear_fc2", None),
        ("w1", None),
        ("ln_2", None),
        ("conv1", None),
        ("graph_3", None),
        ("lm_head", None),
        ("", None),
        ("layers.²", None),
    ],
)
def test_number_is_the_layers_and_never_a_parts_or_an_experts(name: str, number: int | None) -> None:
    assert number_of(name) == number


@given(st.text("abh.0159_", max_size=20))
def test_block_is_a_prefix_that_has_the_same_number(name: str) -> None:
    block = block_of(name)
    assert name == block or name.startswith(f"{block}.")
    assert number_of(block) == number_of(name)


@pytest.mark.parametrize(
    ("name", "block"), [("h.1.mlp.fc1", "h.1"), ("layers.2.mlp.experts.5.w1", "layers.2"), ("lm_head.proj", "lm_head.proj")]
)
def test_block_ends_with_the_layer_number(name: str, block: str) -> None:
    assert block_of(name) == block


def layer(name: str, cls: str = "Linear", *, owns: bool = True) -> Layer:
    return Layer(name, cls, name, owns_parameters=owns)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(), ["h.0.fc1", "h.0.fc2", "h.1.fc1", "h.1.norm", "head"]),
        (Selection(containers=True), ["h.0.fc1", "h.0.fc2", "h.1", "h.1.fc1", "h.1.norm", "head"]),
        (Selection(pattern=".*(fc1|fc2)"), ["h.0.fc1", "h.0.fc2", "h.1.fc1"]),
        (Selection(pattern=r"1$"), ["h.0.fc1", "h.1.fc1"]),
        (Selection(pattern=r"^h\.1$"), []),
        (Selection(pattern=r"^h\.1$", containers=True), ["h.1"]),
        (Selection(names=("head", "h.0.fc1")), ["h.0.fc1", "head"]),
        (Selection(names=("h.1",)), []),
        (Selection(numbers=frozenset({1})), ["h.1.fc1", "h.1.norm"]),
        (Selection(types=("fc",)), ["h.0.fc1", "h.0.fc2", "h.1.fc1"]),
        (Selection(types=("LayerNorm", "head")), ["h.1.norm", "head"]),
        (Selection(types=("Layer",)), []),
        (Selection(numbers=frozenset({0, 1}), types=("fc1",)), ["h.0.fc1", "h.1.fc1"]),
    ],
)
def test_selection_selects(selection: Selection, names: list[str]) -> None:
    norm, container = layer("h.1.norm", "LayerNorm"), layer("h.1", "Block", owns=False)
    layers = [layer("h.0.fc1"), layer("h.0.fc2"), container, layer("h.1.fc1"), norm, layer("head")]
    assert [one.name for one in layers if selection.selects(one)] == names
