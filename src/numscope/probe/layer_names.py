"""A model's modules as selections know them: named, with what they own.

A module may be made of parts that are the layers while it keeps their parameters, as the fused modules of ``numscope.precision`` do. It
then says so: ``_numscope_lent`` are its parameters that are its parts' as layers go, ``_numscope_stand_in`` the part that is a layer in its
place; a part's ``_numscope_parameters()`` are those it works with, by its own names.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedParameter

from numscope.probe.keras import KERAS_PARAMETERS, is_layer, own_weights
from numscope.probe.naming import class_name, free_name, qualified_names
from numscope.records.layer import Layer


class Structure:
    """Notices that a model has other modules than when this was made.

    *Cost:* a tenth of a microsecond a module and look.
    """

    def __init__(self, model: nn.Module) -> None:
        self._children = [(m._modules, tuple(m._modules.values())) for m in model.modules() if isinstance(m._modules, dict)]

    def has_changed(self) -> bool:
        return any(tuple(now.values()) != then for now, then in self._children)


def layers_of(model: nn.Module) -> dict[nn.Module, Layer]:
    """Each module once, a shared one under its first name.

    A module's name is the one it was given (a string in its attribute ``name``; Keras's are parts of qualified names), else its qualified
    name, else ``Layer_1`` and so on. Names are unique: a second ``fc1`` is ``fc1_2``. A part's class is its whole's; a module that a part
    stands in for is left out: the part has its name.
    """
    qualified = {module: name for module, name in qualified_names(model).items() if not name.endswith(KERAS_PARAMETERS)}
    classes = {module: class_name(module) for module in qualified}
    for module in list(qualified):
        for part in module._modules.values():
            if part is not None and hasattr(type(part), "_numscope_parameters"):
                classes[part] = classes[module]
        if (part := _stand_in(module)) is not None:
            qualified[part] = qualified.pop(module)
    given = {module: name for module in qualified if isinstance(name := vars(module).get("name"), str) and name.strip()}
    given = {module: name for module, name in given.items() if not is_layer(module)}
    numbers, taken = itertools.count(1), set[str]()
    names: dict[nn.Module, str] = {}
    others = {module: name or f"Layer_{next(numbers)}" for module, name in qualified.items() if module not in given}
    for module, name in (given | others).items():  # first what the author chose, which is kept
        names[module] = free_name(name, taken)
        taken.add(names[module])
    return {module: _layer(module, names[module], name, classes[module]) for module, name in qualified.items()}


def own_parameters(module: nn.Module) -> Mapping[str, nn.Parameter | None]:
    """Those that are a layer's own, by its own names for them, as they are now: adapters, tying and sharding put others in their place."""
    borrowed = getattr(type(module), "_numscope_parameters", None)
    if borrowed is not None:
        found: Mapping[str, nn.Parameter | None] = borrowed(module)
        return found
    own: Any = own_weights(module)  # a scripted module's is no dict
    if not hasattr(type(module), "_numscope_lent"):
        return dict(own.items())
    lent: Any = module._numscope_lent
    return {name: parameter for name, parameter in own.items() if name not in lent}


def _stand_in(module: nn.Module) -> nn.Module | None:
    part = getattr(type(module), "_numscope_stand_in", None)
    return None if part is None else module._modules.get(part)


def _layer(module: nn.Module, name: str, qualified: str, cls: str) -> Layer:
    own = {key: parameter for key, parameter in own_parameters(module).items() if parameter is not None}
    weights = {key: parameter for key, parameter in own.items() if "bias" not in key}
    made = [parameter for parameter in weights.values() if not isinstance(parameter, UninitializedParameter)]
    return Layer(
        name=name,
        cls=cls,
        qualified=qualified,
        weights=tuple(weights),
        numel_weights=sum(parameter.numel() for parameter in made),
        weight_bytes=sum(parameter.numel() * parameter.element_size() for parameter in made),
        owns_parameters=bool(own) or "parametrizations" in module._modules,
    )
