"""Layers that are one in some models and several in others."""

from __future__ import annotations

import re

_QKV = ("q_proj", "k_proj", "v_proj")
# A fused layer's name, those of the layers that others have in its place, and the dimension along which they lie in its weight.
FUSED: dict[str, tuple[tuple[str, ...], int]] = {
    "qkv_proj": (_QKV, 0),
    "qkv": (_QKV, 0),
    "Wqkv": (_QKV, 0),
    "in_proj": (_QKV, 0),  # of nn.MultiheadAttention: in_proj_weight
    "c_attn": (_QKV, 1),  # of GPT-2, whose weights are transposed
    "gate_up_proj": (("gate_proj", "up_proj"), 0),
}
_OF_LAYER = re.compile(rf"((?:.*\.)?)({'|'.join(FUSED)})[._](weight|bias)")


def layers_of_fused(name: str) -> list[str]:
    """The names of the tensors that a fused layer's tensor stands for; none for another's."""
    match = _OF_LAYER.fullmatch(name)
    return [] if match is None else [f"{match[1]}{layer}.{match[3]}" for layer in FUSED[match[2]][0]]


def sizes_of_fused(name: str, shape: tuple[int, ...]) -> tuple[int, list[int]]:
    """Along which dimension they lie, and how far each reaches; no sizes where they can't be told.

    Keys and values may have fewer heads than queries, which are then taken to be as many as features go in.
    """
    match = _OF_LAYER.fullmatch(name)
    if match is None or not shape:
        return 0, []
    layers, along = FUSED[match[2]]
    along = min(along, len(shape) - 1)
    size = shape[along]
    inputs = shape[1 - along] if len(shape) == 2 else 0
    first = inputs if layers is _QKV and 0 < inputs < size and (size - inputs) % 2 == 0 else size // len(layers)
    sizes = [first, *[(size - first) // (len(layers) - 1)] * (len(layers) - 1)]
    return along, sizes if sum(sizes) == size else []
