"""Fingerprints of modules and state dicts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
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


def fingerprint(model: nn.Module | Mapping[str, Any] | Iterable[tuple[str, Tensor]]) -> Fingerprint:
    """The fingerprint of a model's weights and persistent buffers, or of a state dict: 312 bytes a tensor, by which it can be compared.

        numscope.fingerprint(model).save("before.json")
        print(numscope.compare("before.json", numscope.fingerprint(other)))

    A tensor that is spread over ranks (a DTensor) gives the part that is here, and no rank waits for others: save one for each rank and
    load them together. Names are those of the model's author: segments of wrappers (DDP, FSDP, ``torch.compile``) are left out. A weight
    that has low-rank adapters (PEFT's) is there as it is, and as it would be with these merged into it. Of a fused layer of a known name
    (``qkv_proj``, ``gate_up_proj``) there are its parts as well.

    Args:
        model: a module; a mapping of tensors by name, also nested; or pairs of a name and a tensor, as inference engines load weights,
            of which one tensor at a time is kept. What is no tensor is left out, and so is one without elements that can be read (a meta
            tensor), of which the logger ``numscope`` warns.

    Raises: UsageError where it is none of these.

    *Cost:* one pass over the tensors, and some 50 µs each; with adapters a copy of each weight that has one, one after the other.
    """
    merged = _merged(model) if isinstance(model, nn.Module) else {}
    found: dict[str, TensorPrint] = {}
    for name, tensor in _named(model):
        dtype = str(tensor.dtype).removeprefix("torch.")
        try:
            part = part_of(tensor)
            found[name] = TensorPrint(part.whole_shape, dtype, {part.place: _sketch(part)}, merged.get(name))
            for layer, piece in _pieces(name, part):
                found.setdefault(layer, TensorPrint(piece.shape, dtype, {piece.place: _sketch(piece)}))
        except Unsummarizable as error:
            _log.warning("fingerprint: %s is left out: %s", name, error)
    return Fingerprint(found)


def named_tensors(model: nn.Module, buffers: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers by the names that the model's author knows; a tied one under each of its names."""
    for module, name in qualified_names(model).items():
        for slot, tensor in (*module._parameters.items(), *(module._buffers.items() if buffers else ())):
            if tensor is not None and slot not in module._non_persistent_buffers_set:
                yield f"{name}.{slot}" if name else slot, tensor


def _named(model: object, before: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(model, nn.Module):
        yield from ((_without_adapter(name), tensor) for name, tensor in named_tensors(model))
    elif isinstance(model, Mapping):
        for name, one in model.items():
            if isinstance(one, Tensor):
                yield _without_adapter(f"{before}{name}"), one
            elif isinstance(one, Mapping):
                yield from _named(one, f"{before}{name}.")
    elif isinstance(model, Iterable) and not isinstance(model, Tensor | str):
        for pair in model:
            if not isinstance(pair, tuple | list) or [type(one) for one in pair[:1]] != [str] or not isinstance(pair[-1], Tensor):
                raise UsageError(f"got {type(pair).__name__} among its elements, expected pairs of a name and a tensor.", "fingerprint")
            yield _without_adapter(pair[0]), pair[1]
    else:
        raise UsageError(f"got {type(model).__name__}, expected a torch.nn.Module or tensors by name.", "fingerprint")


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
        weight, is_merged = getattr(getattr(module, "base_layer", None), "weight", None), getattr(module, "merged", None)
        if not callable(delta) or not isinstance(weight, Tensor) or is_merged is None:
            continue
        active = [] if is_merged else [one for one in getattr(module, "active_adapter", ()) if one in getattr(module, "lora_A", ())]
        with suppress(), unseen():  # an adapter of another kind: its weight is compared as it is
            whole = sum((delta(one) for one in active), weight)
            found[_without_adapter(f"{name}.base_layer.weight")] = _sketch(part_of(whole.to(weight.dtype)))
    return found


def _sketch(part: Piece) -> Sketch:
    return sketches([part], rounds=True)[0]
