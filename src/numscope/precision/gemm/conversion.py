"""Converts a model's linear layers in place, and back. They stay the same objects, with their parameters, hooks and names.

Each kind of layer gets a class with the forward of ``Converted``, and else everything of the class that it was made from.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import torch.fx
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from numscope.precision.gemm.layer_state import ATTRIBUTE, Backend, Cohort, LayerState, state_of
from numscope.precision.gemm.linear import product
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import HighPrecision, Recipe, recipe_of
from numscope.probe.layer_names import layers_of
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.records.words import nearest

torch.fx.wrap("product")  # symbolic tracing keeps the call, as it keeps a bare layer's


class Converted:
    """The first base of converted layers' classes, of which there is one for each kind of layer."""

    _numscope_origin: type[nn.Module]

    def forward(self, x: Tensor) -> Tensor:
        if ATTRIBUTE not in self.__dict__:  # reverted, but under a class that something else derived from this one
            y: Tensor = super().forward(x)  # type: ignore[misc]
            return y
        return product(self, x, self.weight, self.bias)  # type: ignore[attr-defined, arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        held: LayerState | None = self.__dict__.get(ATTRIBUTE)
        if held is not None:
            held.module = weakref.ref(self)  # type: ignore[arg-type]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__dict__.get("_numscope_origin") is None:  # a derived class, as above: pickling is its own business
            return super().__reduce_ex__(protocol)
        return _restored, (self._numscope_origin,), super().__reduce_ex__(protocol)[2]


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def class_for(origin: type[nn.Module]) -> type[nn.Module]:
    """The class that layers of a class get when they are converted."""
    made = _classes.get(origin)
    if made is None:
        names = {"_numscope_origin": origin, "__module__": __name__, "__qualname__": f"Converted{origin.__qualname__}"}
        made = _classes[origin] = type(origin.__name__, (Converted, origin), names)
    return made


def origin_of(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class that a converted layer's class was made from; None for other classes."""
    origin: type[nn.Module] | None = kind.__dict__.get("_numscope_origin")
    return origin


def _restored(origin: type[nn.Module]) -> nn.Module:
    """An empty converted layer, for pickle and copy."""
    make: Callable[[type[nn.Module]], nn.Module] = nn.Module.__new__
    return make(class_for(origin))


log = logging.getLogger("numscope")

BACKENDS: Final = ("auto", "emulate", "scaled_mm")
Layers = str | re.Pattern[str] | Collection[str] | Callable[[str, nn.Module], bool] | None


def convert(
    model: nn.Module, recipe: Recipe | LayerPlan | str | None = None, layers: Layers = None, backend: Backend = "auto"
) -> nn.Module:
    """Make a model's linear layers compute by a recipe, in place, with the same parameters and the same state dict.

    A layer's class is replaced by a subclass; everything else stays. This converts ``nn.Linear`` and its subclasses with the same
    forward, transformers' ``Conv1D``, and the GEMMs of ``numscope.precision.modules``.

    Args:
        model: any module, before or after it is wrapped, sharded or compiled.
        recipe: a recipe, its name, or a plan; None: ``DelayedScaling()``. With ``HighPrecision()`` layers compute as before until
            ``autocast`` or a switch changes that. A layer that is converted already gets the new recipe.
        layers: which of them: a regular expression that is searched for in qualified names (like ``layer_name_regex_pattern``), a list
            of names, or a function of name and module that returns a bool; None: all.
        backend: ``emulate``, ``scaled_mm``, or ``auto``, which uses fp8 GEMMs if the device has them.

    Returns: The model.

    Raises: UsageError: an argument is none of these, no layer matches, or a layer can't be converted (the message says why).

    *Cost:* training keeps one more byte per element of a weight (its codes).
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"convert: model: got {type(model).__name__}, expected a torch.nn.Module.")
    recipe = recipe_of(recipe, "convert: recipe")
    check_one_of("convert: backend", backend, BACKENDS)
    known = layers_of(model)
    found = {layer.qualified: module for module, layer in known.items() if convertible(module)}
    cohort = Cohort()
    for name, module in chosen(found, layers).items():
        if isinstance(module._parameters.get("weight"), UninitializedParameter):
            raise UsageError("its weight is not there yet. Run a batch through the model first.", f"convert: {name or 'the model'}")
        if "forward" in module.__dict__:
            raise UsageError(
                "its forward was replaced on the object (by an adapter, an offloading hook, high_precision), so another class would "
                "change nothing. Convert first, or leave the layer out with layers=….",
                f"convert: {name or 'the model'}",
            )
        state = state_of(module)
        if state is None:
            state = LayerState(module, known[module].name, recipe, backend, cohort, is_transposed=is_conv1d(module))
            module.__dict__[ATTRIBUTE] = state
        else:
            state.recipe, state.backend, state.cohort, state.name = recipe, backend, cohort, known[module].name
        kind = type_before_parametrizations(module)
        if origin_of(kind) is None and not getattr(kind, "_numscope_gemm", False):
            _put_class(module, class_for(kind))
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            for layer in (module.linear1, module.linear2):
                if state_of(layer) is not None and _call_me not in layer._forward_pre_hooks.values():
                    layer.register_forward_pre_hook(_call_me)
    if layers is None:
        _log_what_is_left(known)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Undo ``convert``: the layers get their own classes back.

    Args:
        model: as ``convert`` took it, or anything around or inside it.

    Returns: The model.
    """
    for module in model.modules():
        state = state_of(module)
        if state is not None and getattr(type(module), "_numscope_gemm", False):
            state.recipe, state.plan = HighPrecision(), None  # it has a state from the beginning
        elif state is not None:
            del module.__dict__[ATTRIBUTE]
            origin = origin_of(type_before_parametrizations(module))
            if origin is not None:
                _put_class(module, origin)
            for number in [n for n, hook in module._forward_pre_hooks.items() if hook is _call_me]:
                del module._forward_pre_hooks[number]
    return model


def convertible(module: nn.Module) -> bool:
    """Whether ``convert`` can convert a module."""
    kind: type[nn.Module] = type_before_parametrizations(module)
    if origin_of(kind) is not None or getattr(kind, "_numscope_gemm", False):
        return True
    if isinstance(module, nn.Linear):
        weight = module._parameters.get("weight")
        if weight is not None and not weight.is_floating_point():
            return False  # complex numbers, or another library's codes
        # nn.MultiheadAttention never calls its projection; it only reads its weight.
        return kind.forward is nn.Linear.forward and not isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
    return is_conv1d(module)


def chosen(found: dict[str, nn.Module], layers: Layers) -> dict[str, nn.Module]:
    """Those of the layers, by name, that ``convert``'s argument ``layers`` selects."""
    if layers is None:
        return found
    if isinstance(layers, (str, re.Pattern)):
        try:
            pattern = re.compile(layers)
        except re.error as error:
            raise UsageError(f"convert: layers: {layers!r} is not a regular expression: {error}.") from None
        taken = {name: module for name, module in found.items() if pattern.search(name)}
    elif callable(layers):
        return {name: module for name, module in found.items() if layers(name, module)}
    else:
        names = list(layers)
        for name in names:
            if name not in found:
                raise UsageError(f"convert: layers: {name!r} is not a layer that can be converted.{nearest(str(name), list(found))}")
        taken = {name: found[name] for name in names}
    if not taken:
        some = ", ".join(list(found)[:5]) or "none"
        raise UsageError(f"convert: layers: {layers!r} matches no layer that can be converted; there are {len(found)}, such as {some}.")
    return taken


def _put_class(module: nn.Module, kind: type[nn.Module]) -> None:
    """Replace a module's class. For a parametrized module, torch has made a class on top; it stays on top, and torch can remove it."""
    if is_parametrized(module):
        names = {name: held for name, held in vars(type(module)).items() if name not in ("__dict__", "__weakref__")}
        kind = type(type(module).__name__, (kind,), names)
    module.__class__ = kind


def _call_me(module: nn.Module, args: tuple[object, ...]) -> None:
    """A hook that does nothing: in evaluation ``nn.TransformerEncoderLayer`` reads the weights of layers that have no hooks."""


def _log_what_is_left(known: Mapping[nn.Module, Layer]) -> None:
    """Log modules with matrices that are not converted, such as fused experts."""
    left = Counter(
        type(module).__name__
        for module in known
        if state_of(module) is None
        and not isinstance(module, (nn.Embedding, nn.modules.conv._ConvNd))
        and any(p is not None and p.dim() > 1 for p in module._parameters.values())
    )
    if left:
        log.info("convert: not converted, though they have matrices: %s.", ", ".join(f"{n} {name}" for name, n in sorted(left.items())))


def is_conv1d(module: nn.Module) -> bool:
    """Whether it is transformers' ``Conv1D``, found out without importing transformers."""
    kind = type_before_parametrizations(module)
    kind = origin_of(kind) or kind
    return any(k.__name__ == "Conv1D" and k.__module__ == "transformers.pytorch_utils" for k in kind.__mro__) and (
        "forward" not in kind.__dict__ or kind.__name__ == "Conv1D"
    )
