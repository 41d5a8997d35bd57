"""Layers of real models and of small ones."""

from __future__ import annotations

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from numscope.probe.layer_names import layers_of


def test_layers_have_qualified_names_classes_and_weights() -> None:
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=10, n_positions=4))
    layers = {layer.name: layer for layer in layers_of(model).values()}
    fc = layers["transformer.h.1.mlp.c_fc"]
    assert (fc.cls, fc.weights, fc.numel_weights, fc.weight_bytes, fc.owns_parameters) == ("Conv1D", ("weight",), 256, 1024, True)
    assert not layers["transformer.h.1.mlp"].owns_parameters
    assert layers["lm_head"].weights == ("weight",)


def test_given_names_are_kept_and_unique() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU())
    model[0].name = "proj"  # type: ignore[assignment]
    model[1].name = "proj"  # type: ignore[assignment]
    model[2].name = ""  # type: ignore[assignment]
    model[3].name = 3  # type: ignore[assignment]
    assert [layer.name for layer in layers_of(model).values()] == ["Layer_1", "proj", "proj_2", "2", "3"]


def test_given_name_goes_before_a_qualified_one() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].name = "0"  # type: ignore[assignment]
    assert [layer.name for layer in layers_of(model).values()] == ["Layer_1", "0_2", "0"]


def test_shared_module_is_one_layer_and_wrappers_have_no_part_in_names() -> None:
    shared = nn.Linear(2, 2)
    model = nn.DataParallel(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)}))
    assert [layer.name for layer in layers_of(model).values() if layer.owns_parameters] == ["a"]


def test_weights_are_own_parameters_but_biases() -> None:
    attention = nn.MultiheadAttention(4, 2)
    layers = {type(module).__name__: layer for module, layer in layers_of(nn.ModuleList([attention, nn.LSTM(2, 2)])).items()}
    assert layers["MultiheadAttention"].weights == ("in_proj_weight",)
    assert layers["LSTM"].weights == ("weight_ih_l0", "weight_hh_l0")


def test_bias_alone_and_parametrized_weights_make_a_layer() -> None:
    class Bias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))

    model = nn.ModuleDict({"b": Bias(), "p": nn.utils.parametrizations.weight_norm(nn.Linear(2, 2, bias=False)), "z": nn.LazyLinear(2)})
    layers = {layer.name: layer for layer in layers_of(model).values()}
    assert (layers["b"].weights, layers["b"].owns_parameters) == ((), True)
    assert (layers["p"].cls, layers["p"].owns_parameters) == ("Linear", True)
    assert (layers["z"].weights, layers["z"].weight_bytes) == (("weight",), 0)
