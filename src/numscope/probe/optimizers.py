"""The optimizers of one model."""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.probe.living import Beside
from numscope.records.heap import Instances

MOST_GROUPS = 64  # whose settings are told
MOST_OF_ONE = 8  # numbers of a setting such as ``betas``


class Optimizers:
    """Those that update a model's parameters: known when they step, or found by a search.

    Args:
        model: whose they are.
        known: one of them; nobody searches for others then.
    """

    def __init__(self, model: nn.Module, known: Optimizer | None = None) -> None:
        self._model = weakref.ref(model)
        self._first = [weakref.ref(p) for p in model.parameters()]  # FSDP2 puts others in their place between forward and backward
        self._found: list[weakref.ref[Optimizer]] = [] if known is None else [weakref.ref(known)]
        self._owned: Beside[Optimizer, tuple[tuple[int, int], bool]] = Beside()
        self._searched = known is not None

    @property
    def model(self) -> nn.Module | None:
        """The model; None once it is gone."""
        return self._model()

    @property
    def any(self) -> bool:
        """Whether one is known, alive or not."""
        return bool(self._found)

    @property
    def num_met(self) -> int:
        """How many are known, alive or not."""
        return len(self._found)

    @property
    def living(self) -> list[Optimizer]:
        """Those that are known and alive."""
        return [optimizer for ref in self._found if (optimizer := ref()) is not None]

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer has parameters of this model.

        *Cost:* a walk over the parameters when the optimizer is new or has new ones, or the model has: FSDP2 puts whole parameters in the
        place of the sharded ones between forward and backward.
        """
        if any(ref() is optimizer for ref in self._found):
            return True
        model = self._model()
        if model is None:
            return False
        stamp = sum(len(group["params"]) for group in optimizer.param_groups), id(next(model.parameters(), None))
        known = self._owned.get(optimizer)
        if known is None or known[0] != stamp:
            first = [p for ref in self._first if (p := ref()) is not None]
            mine = {number for p in (*first, *model.parameters()) for number in ids_known(p)}
            known = self._owned[optimizer] = (stamp, not ids_of(optimizer).isdisjoint(mine))
        return known[1]

    def search(self) -> None:
        """Look once for the optimizers of this model. *Cost:* one walk over all objects."""
        if not self._searched:
            self._searched = True
            for optimizer in living_optimizers():
                if self.owns(optimizer):
                    self.meet(optimizer)

    def meet(self, optimizer: Optimizer) -> None:
        """An optimizer has begun a step."""
        if not any(ref() is optimizer for ref in self._found):
            self._found.append(weakref.ref(optimizer))

    def are_all_in(self, stepped: Collection[Optimizer]) -> bool:
        """Whether each that is still alive is among those that have stepped."""
        return all((o := ref()) is None or any(o is s for s in stepped) for ref in self._found)

    def forget_parameters(self) -> None:
        """The model has other parameters than before."""
        self._owned.clear()


made = Instances[Optimizer](lambda: Optimizer)  # the optimizer probe tells it of new ones, as long as somebody listens


def living_optimizers() -> list[Optimizer]:
    """Every optimizer of the process; one whose making failed has no groups. *Cost:* for the first call, one walk over all objects."""
    return [o for o in made if hasattr(o, "param_groups")]


def ids_of(optimizer: Optimizer) -> set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def ids_held() -> set[int]:
    """The ids of all parameters that some optimizer of the process has."""
    return {number for optimizer in living_optimizers() for number in ids_of(optimizer)}


def ids_known(parameter: Parameter) -> tuple[int, ...]:
    """The ids that optimizers know a parameter by: Megatron's for fp16 and bf16 step a copy, its ``main_param``."""
    copy = getattr(parameter, "main_param", None)
    return (id(parameter),) if copy is None else (id(parameter), id(copy))


def gradient_of(parameter: Parameter) -> Tensor | None:
    """The gradient that the optimizer gets: Megatron's DDP moves each into a buffer of its own, ``main_grad``."""
    gradient: Tensor | None = parameter.grad if parameter.is_leaf or parameter.retains_grad else None  # torch warns of others'
    return getattr(parameter, "main_grad", None) if gradient is None else gradient


def states_of(optimizer: Optimizer, parameter: Parameter) -> dict[str, Any]:
    """An optimizer's state of a parameter, by its own names; empty before its first step."""
    for known in (parameter, getattr(parameter, "main_param", None)):
        found = None if known is None else optimizer.state.get(known)
        if isinstance(found, dict):
            return found
    return {}


def settings_of(optimizers: Iterable[Optimizer]) -> dict[str, list[float]]:
    """The settings of optimizers' groups that are numbers, as columns of a run: ``optimizer_lr``, ``optimizer_betas_0``, …, each with one
    number for each group, the optimizers' one after the other; nan where a group has none.

    Of more than ``MOST_GROUPS`` groups the first are told. A number that lies on a device is not read. *Cost:* 10 µs a group of Adam's.
    """
    found: dict[str, list[float]] = {}
    groups = list(islice((group for optimizer in optimizers for group in optimizer.param_groups), MOST_GROUPS))
    for place, group in enumerate(groups):
        for name, value in group.items():
            if name == "params" or not (isinstance(name, str) and name.isidentifier()):
                continue
            several = isinstance(value, tuple | list)
            for i, one in enumerate(value[:MOST_OF_ONE] if several else (value,)):
                if type(one) is Tensor and one.numel() == 1 and one.device.type == "cpu":
                    one = one.item()
                if isinstance(one, float) or (isinstance(one, int) and not isinstance(one, bool) and abs(one) < 1 << 63):
                    column = f"optimizer_{name}_{i}" if several else f"optimizer_{name}"
                    found.setdefault(column, [math.nan] * len(groups))[place] = float(one)
    return found
