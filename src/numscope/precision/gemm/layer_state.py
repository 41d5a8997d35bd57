"""The state of converted layers beside their parameters (recipe, plan, amax histories, the weight's codes), and the end of their steps."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from numscope.distributed.agree import among
from numscope.precision.casting.cast import Cast
from numscope.precision.casting.delayed import History, advance_all
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.autocasting import FALLBACK, HIGH, region
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import Custom, DelayedScaling, Recipe
from numscope.probe.layer_names import layers_of, own_parameters
from numscope.probe.optimizer import is_paused
from numscope.records.errors import UsageError
from numscope.records.formats import format_of
from numscope.records.words import nearest

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


Backend = Literal["auto", "emulate", "scaled_mm"]
CastObserver = Callable[[str, str, Tensor, Cast], None]

ATTRIBUTE: Final = "_numscope_fp8"  # in a converted module's __dict__


class Cohort:
    """The layers that one call converted. Their steps end together, with their optimizer's step."""

    __slots__ = ("__weakref__", "has_run", "logged")

    def __init__(self) -> None:
        self.has_run = False  # whether a forward has recorded amaxes since the last step
        self.logged: set[str] = set()  # log messages that concern all of them, each logged once

    def __reduce__(self) -> tuple[type[Cohort], tuple[()]]:
        return Cohort, ()


class KeptWeight:
    """The codes of one weight, quantized in one way: gradient accumulation and recomputation quantize it once.

    Args:
        recorded: whether its amax joined a history.
        counted: the cells that the cast was counted into, by GEMM.
    """

    __slots__ = ("_pointer", "_version", "_weight", "cast", "counted", "recorded")

    def __init__(self, weight: Tensor, cast: Cast, recorded: bool, counted: dict[str, Tensor]) -> None:
        self.cast, self.recorded, self.counted = cast, recorded, counted
        self._weight = weakref.ref(weight)
        self._version = weight._version
        self._pointer = weight.data_ptr()  # ``weight.data = other`` changes the address but not the version

    def is_of(self, weight: Tensor) -> bool:
        """Whether the codes still belong to this weight."""
        return self._weight() is weight and self._version == weight._version and self._pointer == weight.data_ptr()


def can_be_kept(weight: Tensor, module: nn.Module | None) -> bool:
    """Whether a weight lives as long as its layer: it is neither gathered for one call nor computed from other parameters."""
    is_gathered = module is not None and "_is_fsdp_managed_module" in module.__dict__
    return isinstance(weight, nn.Parameter) and not is_gathered and not weight.is_inference()


class LayerState:
    """One converted layer.

    Args:
        module: the layer.
        name: its qualified name.
        recipe: used outside ``autocast``, and within an ``autocast`` that names no recipe.
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
        self.logged: set[tuple[str, str]] = set()  # log messages about this layer, by GEMM, each logged once
        self._assigned: tuple[LayerPlan, LayerPlan] | None = None  # the default plan at that time, and the plan assigned
        self._switch: Callable[[LayerPlan], LayerPlan] | None = None
        self.raised: tuple[str, ...] = ()  # GEMMs in high precision for now, whichever plan is in force, see ``raising.py``
        self.in_force: Recipe = recipe
        self.default = self._plan = recipe.plan()
        self.handle = follow(self)
        with torch.inference_mode(False):
            self.tag = torch.tensor(self.handle, device="cpu")  # identifies it in compiled graphs

    # ---- the plan

    @property
    def plan(self) -> LayerPlan:
        """The plan of its GEMMs under the recipe in force."""
        return self._plan

    @plan.setter
    def plan(self, plan: LayerPlan | None) -> None:
        self._assigned = None if plan is None or plan == self.default else (self.default, plan)
        self.put_plan()

    @property
    def switch(self) -> Callable[[LayerPlan], LayerPlan] | None:
        """A configuration's change of the default plan, whichever recipe comes into force. An assigned plan takes precedence."""
        return self._switch

    @switch.setter
    def switch(self, switch: Callable[[LayerPlan], LayerPlan] | None) -> None:
        self._switch = switch
        self.put_plan()

    def current_plan(self) -> LayerPlan:
        """Returns ``plan``, unless an ``autocast`` around the call decides otherwise. *Cost:* a few comparisons."""
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
            self.put_plan()
        return self._plan

    def put_plan(self) -> None:
        """Make ``plan`` of the recipe, the switch, an assigned plan, and what is raised."""
        self._plan = self.default if self._switch is None else self._switch(self.default)
        if self._assigned is not None:
            before, plan = self._assigned
            self._plan = plan if before == self.default else plan.moved_to(before, self.default)
        if self.raised:
            self._plan = self._plan.with_high(self.raised)
        used = {id(how) for how in self._plan.values()}
        self.kept_weights = {key: kept for key, kept in self.kept_weights.items() if key[0] in used}

    # ---- the end of a step

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
        self.put_plan()


def state_of(module: nn.Module) -> LayerState | None:
    """The state of a converted layer, None for any other module."""
    state: LayerState | None = module.__dict__.get(ATTRIBUTE)
    return state


def states(model: nn.Module) -> dict[nn.Module, LayerState]:
    """The states of a model's converted layers, in the order of ``named_modules``.

    Args:
        model: as ``convert`` took it, or anything around or inside it.
    """
    return {module: state for module in model.modules() if (state := state_of(module)) is not None}


def named_states(model: nn.Module) -> dict[str, LayerState]:
    """``states`` by qualified name, without the names of wrappers around the model."""
    return {layer.qualified: state for module, layer in layers_of(model).items() if (state := state_of(module)) is not None}


def state_dict(model: nn.Module) -> dict[str, dict[str, Any]]:
    """The state of delayed scaling for a checkpoint. Save it with the model's own state dict, which does not contain it.

    Args:
        model: with converted layers.

    Returns: Layer's name → operand and format → scale and amaxes: plain tensors and numbers, which ``torch.load(weights_only=True)`` reads.
    """
    return {
        name: {f"{operand}.{form}": history.state_dict() for (operand, form), history in state.histories.items()}
        for name, state in named_states(model).items()
        if state.histories
    }


def load_state_dict(model: nn.Module, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Continue with the scales that ``state_dict`` gave.

    Args:
        model: with converted layers of the same names.
        saved: what ``state_dict`` returned.

    Raises: UsageError: for a name that no converted layer has.
    """
    found = named_states(model)
    for name, histories in saved.items():
        if name not in found:
            raise UsageError(
                f"load_state_dict: {name!r} is not a converted layer of this model.{nearest(name, list(found))} Convert it first."
            )
        state = found[name]
        for key, held in histories.items():
            operand, _, form = key.partition(".")
            planned = (how for (_, of), how in state.plan.items() if how and of == operand and how.format.name == form and how.delayed)
            how = next(planned, How(format_of(form), delayed=True))
            state.history(operand, how, state.device()).load_state_dict(dict(held))
        state.forget_weights()


# ---- the end of a step: with the layers' optimizer's step, or on request; scales change then and at no other time

live: Final[weakref.WeakValueDictionary[int, LayerState]] = weakref.WeakValueDictionary()  # all states by handle
_handles = itertools.count(1)
_hook: RemovableHandle | None = None  # torch calls it after every optimizer's step, as long as there are states
_num_followed = 0


def follow(state: LayerState) -> int:
    """End this layer's steps with its optimizer's, as long as the state lives; returns its handle in ``live``."""
    global _hook, _num_followed
    _num_followed += 1
    if _hook is None:
        _hook = register_optimizer_step_post_hook(_after_step)
    weakref.finalize(state, _unhook).atexit = False
    handle = next(_handles)
    live[handle] = state
    return handle


def _unhook() -> None:
    global _hook, _num_followed
    _num_followed -= 1
    if _hook is not None and not _num_followed:
        _hook.remove()
        _hook = None


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if is_paused():
        return
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    cohorts: dict[int, list[LayerState]] = {}
    for _, state in sorted(live.items()):  # by handle, which gives all ranks the same order
        state.forget_weights()  # averages of the weights are often written through ``p.data``, which changes no version
        cohorts.setdefault(id(state.cohort), []).append(state)
    end([state for cohort in cohorts.values() if _concerns(cohort, held) for state in cohort])


def _concerns(cohort: Iterable[LayerState], held: set[int]) -> bool:
    """Whether an optimizer's step ends the step of these layers: it holds a parameter of theirs, or no optimizer can hold one."""
    trained = False
    for state in cohort:
        for parameter in state.parameters().values():
            if parameter is None:
                continue
            if id(parameter) in held:
                return True
            trained |= parameter.requires_grad
    return not trained


def end(states: Iterable[LayerState], *, always: bool = False) -> None:
    """End a step: histories advance, those that share a process group in one exchange, and weights are quantized again.

    Without a forward in training since the last step, nothing advances: another optimizer of the same model has ended this step.

    Args:
        states: layers, in the same order on all ranks.
        always: layers whose amaxes are shared over ranks advance even if none ran on this rank: others may have run elsewhere.
    """
    states = list(states)
    has_run = always or any(state.cohort.has_run for state in states)
    together: dict[tuple[Any, torch.device], list[History]] = {}
    groups: dict[int, Any] = {}
    for state in states:
        state.forget_weights()
        group = state.amax_group()
        if group is not None and has_run:
            state.complete_histories()  # a layer that did not run here may have run on another rank
        elif not state.cohort.has_run:
            continue
        groups[id(group)] = group
        for _, history in sorted(state.histories.items()):
            together.setdefault((id(group), history.amax.device), []).append(history)
    for (group_id, _), histories in together.items():
        advance_all(histories, groups[group_id])
    for state in states:
        state.cohort.has_run = False


def step(model: nn.Module) -> None:
    """End a step of a model that no torch optimizer steps: delayed scaling gets new scales, and weights are quantized again.

    Args:
        model: with converted layers.

    *Cost:* with ``reduce_amax`` and several ranks, one all-reduce of a few floats per layer.
    """
    end(states(model).values(), always=True)


def end_step(model: nn.Module) -> None:
    """End a step of a model, with or without converted layers, unless it has ended: an optimizer's step, ``step`` or an earlier call may
    have done so.

    Scales advance if a forward in training has run since then. All ranks that share amaxes must call it together.

    *Cost:* a tenth of a microsecond per module, and where the step has not ended that of ``step``.
    """
    if live:
        end(states(model).values())
