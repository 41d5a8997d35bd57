"""Keras with torch as its backend: its models are modules of torch's, but keep their layers and step their weights in ways of their own.

Keras is not imported: a process that runs one of its models has already loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.probe.living import Beside
from numscope.probe.patching import patch

_LAYER, _OPTIMIZER, _SCALER = "keras.src.layers.layer", "keras.src.optimizers.base_optimizer", "keras.src.optimizers.loss_scale_optimizer"
KERAS_PARAMETERS = "_torch_params"  # a ParameterDict of a layer and all in it, which are named by their layers instead
_steps: Beside[Any, KerasSteps] = Beside()


def is_layer(module: object) -> bool:
    """Whether a module is one of Keras's layers; a model is one."""
    known = sys.modules.get(_LAYER)
    return known is not None and isinstance(module, known.Layer)


def children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers in a layer, by the names that Keras has for them: it keeps those in lists, and those of a Sequential, to itself."""
    if is_layer(module):
        for layer in getattr(module, "_layers", ()):
            if isinstance(layer, nn.Module):
                yield str(layer.name), layer


def own_weights(module: nn.Module) -> Mapping[str, Tensor | None]:
    """A module's own parameters by its own names for them: as they change, but for Keras's, which its model's ParameterDicts hold too."""
    if not is_layer(module):
        return module._parameters
    layer: Any = module
    variables = (*getattr(layer, "_trainable_variables", ()), *getattr(layer, "_non_trainable_variables", ()))
    return {v.name: v.value for v in variables if isinstance(v.value, nn.Parameter)} | {**module._parameters}


def has_no_values(args: tuple[Any, ...]) -> bool:
    """Whether a call only asks for shapes, as Keras does while it builds a model."""
    return any((isinstance(arg, Tensor) and arg.is_meta) or type(arg).__name__ == "KerasTensor" for arg in args)


class KerasSteps(Optimizer):
    """Stands for one of Keras's optimizers: whatever hears of torch's steps hears of its own.

    Args:
        optimizer: Keras's; it keeps this object alive.
        variables: those that it updates.
    """

    def __init__(self, optimizer: Any, variables: list[Any]) -> None:
        super().__init__([v.value for v in variables], {})
        self._optimizer, self.variables = ref(optimizer), variables
        self._apply: Callable[[], Any] | None = None

    def apply(self, apply: Callable[[], Any]) -> Any:
        self._apply = apply
        try:
            result = self.step()
        finally:
            self._apply = None
        optimizer: Any = self._optimizer()
        self.state[self.param_groups[0]["params"][0]] = {v.path: v.value for v in optimizer.variables}
        return result

    def step(self, closure: Any = None) -> Any:
        """The update at work; none is at work where the last one is done again."""
        if self._apply is not None:
            return self._apply()
        optimizer: Any = self._optimizer()
        with torch.no_grad():
            return optimizer.apply([v.value.grad for v in self.variables], self.variables)


def _steps_of(optimizer: Any, variables: Any) -> KerasSteps | None:
    """The stand-in for an optimizer; None where its variables are none that autograd knows."""
    variables = list(optimizer._trainable_variables if variables is None else variables)
    found = _steps.get(optimizer)
    if found is None or found.variables != variables:
        if not variables or not all(isinstance(getattr(v, "value", None), nn.Parameter) for v in variables):
            return None
        found = _steps[optimizer] = KerasSteps(optimizer, variables)
    return found


def hear_steps(skipped: Callable[[Optimizer], None], paused: Callable[[], bool]) -> list[Callable[[], None]]:
    """Have the steps of Keras's optimizers be torch's, if Keras is loaded. Returns: what ends it.

    Args:
        skipped: is told of a step that loss scaling has left out.
        paused: whether nobody is to hear of steps now.
    """

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        def go() -> Any:
            return original(optimizer, grads, trainable_variables)

        steps = None if torch.compiler.is_compiling() or paused() else _steps_of(optimizer, trainable_variables)
        return go() if steps is None else steps.apply(go)

    def scaled(original: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if torch.compiler.is_compiling():
            return original(optimizer, grads, trainable_variables)
        inner = optimizer.inner_optimizer
        before = int(inner._iterations) if inner.built else 0  # ``iterations`` counts accumulated steps as one
        result = original(optimizer, grads, trainable_variables)
        if int(inner._iterations) == before and not paused():
            steps = _steps_of(inner, trainable_variables)
            if steps is not None:
                skipped(steps)
        return result

    found = []
    if (base := sys.modules.get(_OPTIMIZER)) is not None and "keras.src.backend.torch" in sys.modules:
        found.append(patch(base.BaseOptimizer, "apply", apply))
    if found and (scaler := sys.modules.get(_SCALER)) is not None:
        found.append(patch(scaler.LossScaleOptimizer, "apply", scaled))
    return found
