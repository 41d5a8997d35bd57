"""What a converted layer keeps beside its parameters: its plan, its operands' amax histories, its weight's codes."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from numscope.precision.casting.cast import Cast, cast, empty_cells
from numscope.precision.casting.decoding import values_of
from numscope.precision.casting.delayed import History
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.autocasting import FALLBACK, HIGH, region
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import CurrentScaling, Custom, DelayedScaling, Recipe
from numscope.probe.layer_names import layers_of, own_parameters

__all__ = ["ATTRIBUTE", "Backend", "Cohort", "LayerState", "group_of", "live", "named_states", "state_of", "states"]

Backend = Literal["auto", "emulate", "scaled_mm"]
Observer = Callable[[str, str, Tensor, Cast], None]

ATTRIBUTE: Final = "_numscope_fp8"  # of a converted module, in its __dict__
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_handles = itertools.count(1)
live: Final[weakref.WeakValueDictionary[int, LayerState]] = weakref.WeakValueDictionary()  # by handle


class Cohort:
    """The layers that one call converted: their steps end together, with their optimizer's."""

    __slots__ = ("__weakref__", "has_run", "said")

    def __init__(self) -> None:
        self.has_run = False  # a forward that counts, since the last step
        self.said: set[str] = set()  # what the log was told of all of them

    def __reduce__(self) -> tuple[type[Cohort], tuple[()]]:
        return Cohort, ()


class _KeptWeight:
    """A weight's codes, and what they were made from."""

    __slots__ = ("cast", "counted", "pointer", "recorded", "version", "weight")

    def __init__(self, weight: Tensor, cast: Cast, recorded: bool, counted: dict[str, Tensor]) -> None:
        self.weight = weakref.ref(weight)
        self.version = weight._version
        self.pointer = weight.data_ptr()  # ``weight.data = other`` moves it and not the version
        self.cast = cast
        self.recorded = recorded
        self.counted = counted  # the cells that it was counted into, by GEMM

    def is_of(self, weight: Tensor) -> bool:
        return self.weight() is weight and self.version == weight._version and self.pointer == weight.data_ptr()


class LayerState:
    """One converted layer.

    Args:
        module: the layer.
        name: its qualified name.
        recipe: what it runs by outside ``autocast``, and within one that names none.
        backend: ``auto``, ``emulate`` or ``scaled_mm``.
        cohort: of the layers converted together; None: alone.

    ``plan`` is what its GEMMs do now; whoever assigns it (switches do, between steps) has the word until None is assigned. ``default`` is
    the plan of the recipe in force. ``observer`` is called with GEMM, operand, the tensor and the cast for each operand that a GEMM takes
    quantized; ``cells`` are what such operands are counted into, by (GEMM, operand), in the same pass. ``results`` are casts of what the
    GEMMs give: ``output``, ``dgrad``, ``wgrad``.
    """

    __slots__ = (
        "__weakref__",
        "_assigned",
        "_plan",
        "_switch",
        "_weights",
        "backend",
        "cells",
        "cohort",
        "default",
        "handle",
        "histories",
        "in_force",
        "is_transposed",
        "module",
        "name",
        "observer",
        "recipe",
        "results",
        "said",
        "tag",
    )

    def __init__(
        self,
        module: nn.Module | None,
        name: str,
        recipe: Recipe,
        backend: Backend = "auto",
        cohort: Cohort | None = None,
        is_transposed: bool = False,
    ) -> None:
        self.name = name
        self.recipe = recipe
        self.backend: Backend = backend
        self.cohort = Cohort() if cohort is None else cohort
        self.is_transposed = is_transposed
        self.module: weakref.ref[nn.Module] | None = None if module is None else weakref.ref(module)
        self.observer: Observer | None = None
        self.cells: Mapping[tuple[str, str], Tensor] | None = None
        self.results: Mapping[str, How] | None = None
        self.histories: dict[tuple[str, str], History] = {}  # by operand and format
        self.said: set[tuple[str, str]] = set()  # what the log was told of this layer, by GEMM
        self._weights: dict[tuple[int, bool], _KeptWeight] = {}  # by the plan's How and whether it is columnwise
        self._assigned: tuple[LayerPlan, LayerPlan] | None = None  # on top of which default, what
        self._switch: Callable[[LayerPlan], LayerPlan] | None = None
        self.in_force: Recipe = recipe
        self.default = self._plan = recipe.plan()
        self._register()

    # What runs ------------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> LayerPlan:
        """What its GEMMs do under the recipe in force."""
        return self._plan

    @plan.setter
    def plan(self, plan: LayerPlan | None) -> None:
        self._assigned = None if plan is None or plan == self.default else (self.default, plan)
        self._put_plan()

    @property
    def switch(self) -> Callable[[LayerPlan], LayerPlan] | None:
        """What a configuration makes of the default plan, whichever recipe comes into force; an assigned plan goes before it."""
        return self._switch

    @switch.setter
    def switch(self, switch: Callable[[LayerPlan], LayerPlan] | None) -> None:
        self._switch = switch
        self._put_plan()

    def current_plan(self) -> LayerPlan:
        """What its GEMMs do here and now: as ``plan``, but for what ``autocast`` says. *Cost:* some comparisons."""
        wanted = self.recipe
        if region.depth:
            if not region.enabled:
                return HIGH
            wanted = region.recipe or (FALLBACK if wanted.is_high else wanted)
        return self.plan_by(wanted)

    def plan_by(self, recipe: Recipe) -> LayerPlan:
        """What its GEMMs do by a recipe, which is in force from now on.

        Args:
            recipe: its own or another.
        """
        if recipe is not self.in_force:
            if recipe != self.in_force:
                self.default = recipe.plan()
            self.in_force = recipe
            self._put_plan()
        return self._plan

    def _put_plan(self) -> None:
        self._plan = self.default if self._switch is None else self._switch(self.default)
        if self._assigned is not None:
            before, plan = self._assigned
            self._plan = plan if before == self.default else plan.moved_to(before, self.default)
        used = {id(how) for how in self._plan.values()}
        self._weights = {key: kept for key, kept in self._weights.items() if key[0] in used}

    # Operands -------------------------------------------------------------------------------------------------------------

    def quantize(
        self,
        gemm: str,
        operand: str,
        x: Tensor,
        how: How,
        *,
        columnwise: bool = False,
        values: bool = True,
        codes: bool = False,
        record: bool = False,
        also: str | None = None,
        counts: bool = True,
    ) -> Cast:
        """Cast an operand as its GEMM takes it.

        Args:
            gemm, operand: which.
            x: the tensor.
            how: from the plan.
            columnwise: the GEMM takes it transposed.
            values, codes: what is wanted.
            record: whether its amax joins the history of delayed scaling.
            also: another GEMM that takes the same cast.
            counts: whether ``cells`` and ``observer`` get it: not in evaluation, a replay, a checkpoint's second pass.
        """
        scale = amax = group = None
        if how.delayed:
            history = self.histories.get((operand, how.format.name)) or self.new_history(operand, how, x.device)
            scale = history.scale
            if record:
                amax = history.amax
                self.cohort.has_run = True
        elif operand != "weight" and type(self.in_force) is CurrentScaling and self.in_force.reduce_amax:
            group = group_of(self.in_force.amax_group)
        counted = cells = None
        if self.cells is not None and counts:
            takers = (gemm,) if also is None else (gemm, also)
            counted = [self.cells[taker, operand] for taker in takers if (taker, operand) in self.cells]
            cells = None if not counted else counted[0] if len(counted) == 1 else empty_cells(x.device)
        made = cast(x, how, scale=scale, columnwise=columnwise, values=values, codes=codes, cells=cells, amax=amax, group=group)
        if counted and len(counted) > 1:
            for into in counted:
                into[:4] += cells[:4]  # type: ignore[index]
                torch.maximum(into[4:], cells[4:], out=into[4:])  # type: ignore[index]
        if self.observer is not None and counts:
            self.observer(gemm, operand, x, made)
            if also is not None:
                self.observer(also, operand, x, made)
        return made

    def weight(
        self,
        gemm: str,
        weight: Tensor,
        how: How,
        *,
        columnwise: bool,
        dtype: torch.dtype,
        codes: bool = False,
        record: bool = False,
        counts: bool = True,
    ) -> Cast:
        """Cast the weight, or take the codes that were kept: it is quantized once until it changes.

        Args:
            gemm: which.
            weight: as the module has it.
            how: from the plan.
            columnwise: the GEMM takes it transposed.
            dtype: of the values.
            codes: codes alone are wanted, else values alone.
            record, counts: as ``quantize`` has them.
        """
        if how.scaling.kind == "tensor" or (how.scaling.kind == "block" and how.scaling.block[0] == how.scaling.block[1]):
            columnwise = False  # the same either way
        # A dispatch mode (the op probe of a replay, selective checkpointing) is to see the same operations each time, from the weight on.
        kept = None if _num_dispatch_modes() else self._weights.get((id(how), columnwise))
        cells = self.cells.get((gemm, "weight")) if counts and self.cells is not None else None
        counted: dict[str, Tensor] = {}
        if kept is not None and kept.is_of(weight):
            counted = kept.counted
            recorded = kept.recorded or not (record and how.delayed)
            shown = counts and self.observer is not None
            if recorded and not shown and (cells is None or counted.get(gemm) is cells):
                made = kept.cast
                return made if codes else Cast(values_of(made, weight, dtype), None, made.scale_inv, how, columnwise)
        same = weight.dtype is dtype
        keeps = self._keeps(weight)
        made = self.quantize(
            gemm,
            "weight",
            weight,
            how,
            columnwise=columnwise,
            values=same and not codes,
            codes=codes or keeps or not same,
            record=record,
            counts=counts,
        )
        values = made.values if same or codes else values_of(made, weight, dtype)
        if keeps:
            made.values = None
            counted = counted if cells is None else {**counted, gemm: cells}
            self._weights[id(how), columnwise] = _KeptWeight(weight, made, record, counted)
        return made if codes else Cast(values, None, made.scale_inv, how, columnwise)

    def _keeps(self, weight: Tensor) -> bool:
        """Whether the weight is there as long as the layer: not one that is gathered for a call, and not one that is computed."""
        module = None if self.module is None else self.module()
        gathered = module is not None and "_is_fsdp_managed_module" in module.__dict__
        return isinstance(weight, nn.Parameter) and not gathered and not weight.is_inference()

    def new_history(self, operand: str, how: How, device: torch.device) -> History:
        """An operand's first history in a format.

        Args:
            operand: which.
            how: it is quantized.
            device: of the operand.
        """
        recipe = self.in_force
        if isinstance(recipe, Custom):
            recipe = recipe.delayed or FALLBACK
        elif not isinstance(recipe, DelayedScaling):
            recipe = FALLBACK
        history = recipe.history(how, device)
        self.histories[operand, how.format.name] = history
        return history

    def complete_histories(self) -> None:
        """Begin those histories that the plan asks for and no pass has begun."""
        module = None if self.module is None else self.module()
        if module is None:
            return
        device = next((p.device for p in own_parameters(module).values() if p is not None), torch.device("cpu"))
        for (_, operand), how in self._plan.items():
            if how is not None and how.delayed and (operand, how.format.name) not in self.histories:
                self.new_history(operand, how, device)

    def forget_weights(self) -> None:
        """Quantize the weight anew when it is used next."""
        self._weights.clear()

    # Copies ---------------------------------------------------------------------------------------------------------------

    def _register(self) -> None:
        self.handle = next(_handles)
        with torch.inference_mode(False):
            self.tag = torch.tensor(self.handle, device="cpu")  # what compiled graphs know it by
        live[self.handle] = self
        from numscope.precision.gemm import stepping

        stepping.follow(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "recipe": self.recipe,
            "backend": self.backend,
            "cohort": self.cohort,
            "is_transposed": self.is_transposed,
            "assigned": self._assigned,
            "histories": self.histories,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        LayerState.__init__(self, None, state["name"], state["recipe"], state["backend"], state["cohort"], state["is_transposed"])
        self._assigned = state["assigned"]
        self.histories = state["histories"]
        self._put_plan()


def group_of(group: Any) -> Any:
    """The process group to share amaxes in; None where there is nobody to share with."""
    if "torch.distributed" not in sys.modules:
        return None
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    group = dist.group.WORLD if group is None else group
    return group if dist.get_world_size(group) > 1 else None


def state_of(module: nn.Module) -> LayerState | None:
    """A converted layer's state.

    Args:
        module: any.
    """
    state: LayerState | None = module.__dict__.get(ATTRIBUTE)
    return state


def named_states(model: nn.Module) -> dict[str, tuple[nn.Module, LayerState]]:
    """Converted layers by their qualified names, without those of wrappers around the model.

    Args:
        model: as ``convert`` took it, or anything around or inside it.
    """
    return {layer.qualified: (module, state) for module, layer in layers_of(model).items() if (state := state_of(module)) is not None}


def states(model: nn.Module) -> dict[nn.Module, LayerState]:
    """The states of a model's converted layers, in the order of ``named_modules``.

    Args:
        model: as ``convert`` took it, or anything around or inside it.
    """
    return {module: state for module in model.modules() if (state := state_of(module)) is not None}
