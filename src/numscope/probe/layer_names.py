"""A model's modules as selections know them: named, with what they own."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import UninitializedParameter

from numscope.plan.plan import Layer
from numscope.probe.naming import class_name, qualified_names


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

    A module's name is the one it was given (a string in its attribute ``name``), else its qualified name, else ``Layer_1`` and so
    on. Names are unique: a second ``fc1`` is ``fc1_2``.
    """
    qualified = qualified_names(model)
    given = {module: name for module in qualified if isinstance(name := vars(module).get("name"), str) and name.strip()}
    taken: set[str] = set()
    names: dict[nn.Module, str] = {}
    for module, name in given.items():  # first: what the author chose is kept
        names[module] = _free(name, taken)
    unnamed = 0
    for module, name in qualified.items():
        if module in names:
            continue
        if not name:
            unnamed += 1
            name = f"Layer_{unnamed}"
        names[module] = _free(name, taken)
    return {module: _layer(module, names[module], name) for module, name in qualified.items()}


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; takes it."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free


def _layer(module: nn.Module, name: str, qualified: str) -> Layer:
    own = {key: parameter for key, parameter in module._parameters.items() if parameter is not None}
    weights = {key: parameter for key, parameter in own.items() if "bias" not in key}
    made = [parameter for parameter in weights.values() if not isinstance(parameter, UninitializedParameter)]
    return Layer(
        name=name,
        cls=class_name(module),
        qualified=qualified,
        weights=tuple(weights),
        numel_weights=sum(parameter.numel() for parameter in made),
        weight_bytes=sum(parameter.numel() * parameter.element_size() for parameter in made),
        owns_parameters=bool(own) or "parametrizations" in module._modules,
    )
