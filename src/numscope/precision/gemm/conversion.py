"""Converting a model's linear layers in place, and back: the layers stay the objects they are, with their parameters, hooks and names."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from numscope.precision.gemm.linear import class_for, origin_of
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import HighPrecision, Recipe, recipe_of
from numscope.precision.gemm.state import ATTRIBUTE, Backend, Cohort, LayerState, state_of
from numscope.probe.layer_names import layers_of
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.records.words import nearest

__all__ = ["convert", "convertible", "revert"]

log = logging.getLogger("numscope")

BACKENDS: Final = ("auto", "emulate", "scaled_mm")
Layers = str | re.Pattern[str] | Collection[str] | Callable[[str, nn.Module], bool] | None


def convert(
    model: nn.Module,
    recipe: Recipe | LayerPlan | str | None = None,
    layers: Layers = None,
    backend: Backend = "auto",
) -> nn.Module:
    """Make a model's linear layers compute by a recipe; in place, with the same parameters and the same state dict.

    A layer's class is exchanged for a subclass; everything else of it stays. Taken are ``nn.Linear`` and subclasses that have its forward,
    transformers' ``Conv1D`` and the GEMMs of ``numscope.precision.modules``.

    Args:
        model: any module; before or after it was wrapped, sharded or compiled.
        recipe: a recipe, its name, or a plan; None: ``DelayedScaling()``. With ``HighPrecision()`` layers compute as before until
            ``autocast`` or a switch says otherwise. A converted layer takes a new recipe over.
        layers: which: a regular expression that is searched for in qualified names (as ``layer_name_regex_pattern`` is), names, or a
            function of name and module that says yes or no; None: all that can be.
        backend: ``emulate``, ``scaled_mm``, or ``auto``: fp8 GEMMs where the device has them.

    Returns:
        The model.

    Raises:
        UsageError: of an argument that is none of these, names that no layer has, or a layer without weights yet.

    *Cost:* training keeps one more byte for each element of a weight (its codes).
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"convert: model: got {type(model).__name__}, expected a torch.nn.Module.")
    recipe = recipe_of(recipe, "convert: recipe")
    if backend not in BACKENDS:
        raise UsageError(f"convert: backend: got {backend!r}, expected one of {', '.join(BACKENDS)}.{nearest(str(backend), BACKENDS)}")
    known = layers_of(model)
    found = {layer.qualified: module for module, layer in known.items() if convertible(module)}
    cohort = Cohort()
    for name, module in chosen(found, layers).items():
        if isinstance(module._parameters.get("weight"), UninitializedParameter):
            raise UsageError(f"convert: {name or 'the model'}: its weight is not there yet. Run one batch through the model first.")
        if "forward" in module.__dict__:
            raise UsageError(
                f"convert: {name or 'the model'}: its forward was replaced on the module itself (by an adapter, an offloading hook, "
                "high_precision), so that another class would change nothing. Convert first, or leave it out with layers=…."
            )
        state = state_of(module)
        if state is None:
            state = LayerState(module, known[module].name, recipe, backend, cohort, is_transposed=_is_conv1d(module))
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
        _tell_what_is_left(known)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Make converted layers what they were.

    Args:
        model: as ``convert`` took it, or anything around or inside it.

    Returns:
        The model.
    """
    for module in model.modules():
        state = state_of(module)
        if state is not None and getattr(type(module), "_numscope_gemm", False):
            state.recipe, state.plan = HighPrecision(), None  # it had a state before
        elif state is not None:
            del module.__dict__[ATTRIBUTE]
            origin = origin_of(type_before_parametrizations(module))
            if origin is not None:
                _put_class(module, origin)
            for number in [n for n, hook in module._forward_pre_hooks.items() if hook is _call_me]:
                del module._forward_pre_hooks[number]
    return model


def convertible(module: nn.Module) -> bool:
    """Whether ``convert`` can take a layer.

    Args:
        module: any.
    """
    kind: type[nn.Module] = type_before_parametrizations(module)
    if origin_of(kind) is not None or getattr(kind, "_numscope_gemm", False):
        return True
    if isinstance(module, nn.Linear):
        weight = module._parameters.get("weight")
        if weight is not None and not weight.is_floating_point():
            return False  # complex, or codes of another library
        # The projection within nn.MultiheadAttention is never called: attention takes its weight.
        return kind.forward is nn.Linear.forward and not isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
    return _is_conv1d(module)


def chosen(found: dict[str, nn.Module], layers: Layers) -> dict[str, nn.Module]:
    """Those of the layers that were asked for.

    Args:
        found: by name.
        layers: as ``convert`` takes it.
    """
    if layers is None:
        return found
    if isinstance(layers, (str, re.Pattern)):
        try:
            pattern = re.compile(layers)
        except re.error as error:
            raise UsageError(f"convert: layers: {layers!r} is no regular expression: {error}.") from None
        taken = {name: module for name, module in found.items() if pattern.search(name)}
    elif callable(layers):
        return {name: module for name, module in found.items() if layers(name, module)}
    else:
        names = list(layers)
        for name in names:
            if name not in found:
                raise UsageError(f"convert: layers: {name!r} is no layer that can be converted.{nearest(str(name), list(found))}")
        taken = {name: found[name] for name in names}
    if not taken:
        some = ", ".join(list(found)[:5]) or "none"
        raise UsageError(f"convert: layers: {layers!r} matches no layer that can be converted; there are {len(found)}, such as {some}.")
    return taken


def _put_class(module: nn.Module, kind: type[nn.Module]) -> None:
    """Exchange a module's class; of a parametrized one, that below the class which torch made for it and takes away with its own."""
    if is_parametrized(module):
        names = {name: held for name, held in vars(type(module)).items() if name not in ("__dict__", "__weakref__")}
        kind = type(type(module).__name__, (kind,), names)
    module.__class__ = kind


def _call_me(module: nn.Module, args: tuple[object, ...]) -> None:
    """A hook that does nothing: in evaluation ``nn.TransformerEncoderLayer`` calls layers with hooks, and of others takes the weights."""


def _tell_what_is_left(known: Mapping[nn.Module, Layer]) -> None:
    """Matrices that no converted layer has, such as those of fused experts."""
    left = Counter(
        type(module).__name__
        for module in known
        if state_of(module) is None
        and not isinstance(module, (nn.Embedding, nn.modules.conv._ConvNd))
        and any(p is not None and p.dim() > 1 for p in module._parameters.values())
    )
    if left:
        log.info("convert: left alone, with matrices of their own: %s.", ", ".join(f"{n} {name}" for name, n in sorted(left.items())))


def _is_conv1d(module: nn.Module) -> bool:
    """transformers' own, known without importing it."""
    kind = type_before_parametrizations(module)
    kind = origin_of(kind) or kind
    return any(k.__name__ == "Conv1D" and k.__module__ == "transformers.pytorch_utils" for k in kind.__mro__) and (
        "forward" not in kind.__dict__ or kind.__name__ == "Conv1D"
    )
