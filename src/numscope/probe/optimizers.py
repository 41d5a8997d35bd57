"""The optimizers of one model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer


class Optimizers:
    """Those that update a model's parameters: known when they step, or found by a search.

    Args:
        model: whose they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._found: list[weakref.ref[Optimizer]] = []
        self._known: weakref.WeakKeyDictionary[Optimizer, tuple[int, bool]] = weakref.WeakKeyDictionary()
        self._searched = False

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer has parameters of this model. *Cost:* a walk over them when the optimizer is new or has new ones."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._known.get(optimizer)
        if known is None or known[0] != count:
            mine = {number for p in self._model.parameters() for number in ids_known(p)}
            known = self._known[optimizer] = (count, not ids_of(optimizer).isdisjoint(mine))
        return known[1]

    def search(self) -> None:
        """Look once for the optimizers of this model. *Cost:* one walk over all objects."""
        if not self._searched:
            self._searched = True  # by type: isinstance asks each object for its __class__, which some answer with a warning
            # one whose making failed has no groups
            optimizers = [o for o in gc.get_objects() if issubclass(type(o), Optimizer) and hasattr(o, "param_groups")]
            self._found = [weakref.ref(o) for o in optimizers if self.owns(o)]

    def meet(self, optimizer: Optimizer) -> None:
        """An optimizer has begun a step."""
        if not any(ref() is optimizer for ref in self._found):
            self._found.append(weakref.ref(optimizer))

    def are_all_in(self, stepped: Collection[Optimizer]) -> bool:
        """Whether each that is still alive is among those that have stepped."""
        return all((o := ref()) is None or any(o is s for s in stepped) for ref in self._found)

    def forget_parameters(self) -> None:
        """The model has other parameters than before."""
        self._known.clear()


def ids_of(optimizer: Optimizer) -> set[int]:
    """The ids of an optimizer's parameters."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def ids_known(parameter: Parameter) -> tuple[int, ...]:
    """The ids that optimizers know a parameter by: Megatron's for fp16 and bf16 step a copy, its ``main_param``."""
    copy = getattr(parameter, "main_param", None)
    return (id(parameter),) if copy is None else (id(parameter), id(copy))


def gradient_of(parameter: Parameter) -> Tensor | None:
    """What the optimizer gets: Megatron's DDP moves each gradient into a buffer of its own, ``main_grad``."""
    gradient: Tensor | None = parameter.grad if parameter.grad is not None else getattr(parameter, "main_grad", None)
    return gradient
