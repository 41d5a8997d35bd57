"""What a converted layer keeps beside its parameters: its recipe and plan, the amax histories of its operands, its weight's codes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from numscope.distributed.agree import among
from numscope.precision.casting.cast import Cast
from numscope.precision.casting.delayed import History
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.autocasting import FALLBACK, HIGH, region
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import Custom, DelayedScaling, Recipe
from numscope.precision.gemm.stepping import Cohort, follow
from numscope.precision.gemm.weights import KeptWeight
from numscope.probe.layer_names import own_parameters

Backend = Literal["auto", "emulate", "scaled_mm"]
CastObserver = Callable[[str, str, Tensor, Cast], None]

ATTRIBUTE: Final = "_numscope_fp8"  # of a converted module, in its __dict__


class LayerState:
    """One converted layer.

    Args:
        module: the layer.
        name: its qualified name.
        recipe: what it runs by outside ``autocast``, and within an ``autocast`` that names no recipe.
        backend: ``auto``, ``emulate`` or ``scaled_mm``.
        cohort: the layers converted together; None: this layer alone.
        is_transposed: whether the weight is stored as [in_features, out_features], as transformers' ``Conv1D`` does.

    ``plan`` is what its GEMMs do now. An assigned plan stays in effect until None is assigned. ``default`` is the plan of the recipe in
    force. ``observer`` is called with GEMM, operand, tensor and cast for each quantized operand of a GEMM; ``cells`` holds, by (GEMM,
    operand), float64[6] tensors that the same pass counts into. ``results`` are casts of the GEMMs' results ``output``, ``dgrad`` and
    ``wgrad``.
    """

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
        self.observer: CastObserver | None = None
        self.cells: Mapping[tuple[str, str, str], Tensor] | None = None  # by GEMM, operand, and the cast's family
        self.results: Mapping[str, How] | None = None
        self.histories: dict[tuple[str, str], History] = {}  # by operand and format
        self.kept_weights: dict[tuple[int, bool], KeptWeight] = {}  # by the plan's ``How`` (its id), and whether columnwise
        self.said: set[tuple[str, str]] = set()  # log messages about this layer, by GEMM, each logged once
        self._assigned: tuple[LayerPlan, LayerPlan] | None = None  # the default plan at that time, and the plan assigned
        self._switch: Callable[[LayerPlan], LayerPlan] | None = None
        self.in_force: Recipe = recipe
        self.default = self._plan = recipe.plan()
        self.handle = follow(self)
        with torch.inference_mode(False):
            self.tag = torch.tensor(self.handle, device="cpu")  # what compiled graphs know it by

    # ---- the plan

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
        """What a configuration makes of the default plan, whichever recipe comes into force. An assigned plan takes precedence."""
        return self._switch

    @switch.setter
    def switch(self, switch: Callable[[LayerPlan], LayerPlan] | None) -> None:
        self._switch = switch
        self._put_plan()

    def current_plan(self) -> LayerPlan:
        """What its GEMMs do here and now: ``plan``, unless an ``autocast`` around the call decides otherwise. *Cost:* a few comparisons."""
        wanted = self.recipe
        if region.depth:
            if not region.enabled:
                return HIGH
            wanted = region.recipe or (FALLBACK if wanted.is_high else wanted)
        return self.plan_by(wanted)

    def plan_by(self, recipe: Recipe) -> LayerPlan:
        """Bring a recipe into force, and return the plan under it."""
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
        self.kept_weights = {key: kept for key, kept in self.kept_weights.items() if key[0] in used}

    # ---- the end of a step, for stepping.py

    def parameters(self) -> Mapping[str, nn.Parameter | None]:
        """The layer's own parameters; empty when the layer is gone."""
        module = None if self.module is None else self.module()
        return {} if module is None else own_parameters(module)

    def device(self) -> torch.device:
        """Where its parameters are; the CPU if it has none."""
        return next((p.device for p in self.parameters().values() if p is not None), torch.device("cpu"))

    def amax_group(self) -> Any:
        """The process group that shares amaxes at the end of a step, None for none."""
        recipe = self.in_force
        return among(recipe.amax_group) if isinstance(recipe, DelayedScaling) and recipe.reduce_amax else None

    def history(self, operand: str, how: How, device: torch.device) -> History:
        """An operand's history in a format, started if there is none yet."""
        history = self.histories.get((operand, how.format.name))
        if history is None:
            recipe = self.in_force.delayed if isinstance(self.in_force, Custom) else self.in_force
            recipe = recipe if isinstance(recipe, DelayedScaling) else FALLBACK
            history = self.histories[operand, how.format.name] = recipe.history(how, device)
        return history

    def complete_histories(self) -> None:
        """Start the histories that the plan needs and that no forward has started."""
        if self.module is not None and self.module() is not None:
            for (_, operand), how in self._plan.items():
                if how is not None and how.delayed:
                    self.history(operand, how, self.device())

    def forget_weights(self) -> None:
        """Quantize the weight again when it is used next."""
        self.kept_weights.clear()

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        names = ("name", "recipe", "backend", "cohort", "is_transposed", "_assigned", "histories")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LayerState.__init__(self, None, state["name"], state["recipe"], state["backend"], state["cohort"], state["is_transposed"])
        self._assigned = state["_assigned"]
        self.histories = state["histories"]
        self._put_plan()


def state_of(module: nn.Module) -> LayerState | None:
    """The state of a converted layer, None for any other module."""
    state: LayerState | None = module.__dict__.get(ATTRIBUTE)
    return state
