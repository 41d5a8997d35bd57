"""Fingerprints of modules and state dicts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from numscope.parity.fused import layers_of_fused, sizes_of_fused
from numscope.probe.naming import qualified_names
from numscope.records.errors import UsageError
from numscope.records.faults import suppress
from numscope.records.fingerprint import WHOLE, Fingerprint, Sketch, TensorPrint
from numscope.summary.sketch import Piece, part_of, sketches
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable

_log = logging.getLogger("numscope")


def fingerprint(model: nn.Module | Mapping[str, Any]) -> Fingerprint:
    """The fingerprint of a model's parameters and buffers, or of a state dict: 400 bytes a tensor, by which it can be compared later.

        numscope.fingerprint(model).save("before.json")
        print(numscope.compare("before.json", numscope.fingerprint(other)))

    A tensor that is spread over ranks (a DTensor) gives the part that is here, and no rank waits for others: save one for each rank and
    load them together. Names are those of the model's author: segments of wrappers (DDP, FSDP, ``torch.compile``) are left out. A weight
    that has low-rank adapters (PEFT's) is there as it is, and as it would be with these merged into it. Of a fused layer of a known name
    (``qkv_proj``, ``gate_up_proj``) there are its parts as well.

    Args:
        model: a module, or a mapping of tensors by name, also nested; what is no tensor is left out, and so is one without elements that
            can be read (a meta tensor), of which the logger ``numscope`` warns.

    Raises: UsageError where it is neither.

    *Cost:* one pass over the tensors, and some 30 µs each; with adapters a copy of each weight that has one, one after the other.
    """
    found: dict[str, tuple[Piece, str]] = {}
    for name, tensor in _named(model):
        try:
            part = part_of(tensor)
        except Unsummarizable as error:
            _log.warning("fingerprint: %s is left out: %s", name, error)
            continue
        found[name] = part, str(tensor.dtype).removeprefix("torch.")
        for layer, piece in _pieces(name, part):
            found.setdefault(layer, (piece, found[name][1]))
    made = sketches([part for part, _ in found.values()])
    merged = _merged(model) if isinstance(model, nn.Module) else {}
    return Fingerprint(
        {
            name: TensorPrint(part.shape, dtype, {part.place: one}, merged.get(name))
            for (name, (part, dtype)), one in zip(found.items(), made, strict=True)
        }
    )


def named_tensors(model: nn.Module, buffers: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by the names that the model's author knows; a tied one under each of its names."""
    for module, name in qualified_names(model).items():
        for slot, tensor in (*module._parameters.items(), *(module._buffers.items() if buffers else ())):
            if tensor is not None:
                yield f"{name}.{slot}" if name else slot, tensor


def _named(model: nn.Module | Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(model, nn.Module):
        yield from ((_without_adapter(name), tensor) for name, tensor in named_tensors(model))
    elif isinstance(model, Mapping):
        for name, one in model.items():
            if isinstance(one, Tensor):
                yield _without_adapter(f"{before}{name}"), one
            elif isinstance(one, Mapping):
                yield from _named(one, f"{before}{name}.")
    else:
        raise UsageError(f"got {type(model).__name__}, expected a torch.nn.Module or a mapping of tensors by name.", "fingerprint")


def _without_adapter(name: str) -> str:
    """PEFT keeps a layer in ``base_layer``, and the model in ``base_model.model``."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _pieces(name: str, part: Piece) -> Iterator[tuple[str, Piece]]:
    """The layers that a fused one stands for; a shard's are not looked for."""
    if part.place == WHOLE:
        along, sizes = sizes_of_fused(name, part.shape)
        for layer, piece in zip(layers_of_fused(name), torch.split(part.tensor, sizes, along) if sizes else (), strict=False):
            yield layer, Piece.at(piece, piece.shape, (0,) * piece.dim())


def _merged(model: nn.Module) -> dict[str, Sketch]:
    """The sketches of weights with their adapters merged into them."""
    found: dict[str, Sketch] = {}
    for module, name in qualified_names(model).items():
        delta: Any = getattr(module, "get_delta_weight", None)
        weight = getattr(getattr(module, "base_layer", None), "weight", None)
        if not callable(delta) or not isinstance(weight, Tensor) or getattr(module, "merged", True):
            continue
        active = [one for one in getattr(module, "active_adapter", ()) if one in getattr(module, "lora_A", ())]
        with suppress(), unseen():  # an adapter of another kind: its weight is compared as it is
            whole = sum((delta(one) for one in active), weight)
            found[_without_adapter(f"{name}.base_layer.weight")] = sketches([part_of(whole.to(weight.dtype))])[0]
    return found
