"""When a step of converted layers ends: with their optimizer's step, or when told. Scales change then and at no other time."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from numscope.precision.casting.delayed import History, advance_all
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.recipes import DelayedScaling
from numscope.precision.gemm.state import LayerState, group_of, live, named_states, states
from numscope.probe.layer_names import own_parameters
from numscope.records.errors import UsageError
from numscope.records.formats import format_of
from numscope.records.words import nearest

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

__all__ = ["follow", "load_state_dict", "state_dict", "step"]

_hook: RemovableHandle | None = None  # torch calls it after every optimizer's step, while there are states
_num_followed = 0


def follow(state: LayerState) -> None:
    """End this layer's steps with its optimizer's, as long as it lives.

    Args:
        state: a new one.
    """
    global _hook, _num_followed
    _num_followed += 1
    if _hook is None:
        _hook = register_optimizer_step_post_hook(_after_step)
    weakref.finalize(state, _unhook).atexit = False


def _unhook() -> None:
    global _hook, _num_followed
    _num_followed -= 1
    if _hook is not None and not _num_followed:
        _hook.remove()
        _hook = None


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    from numscope.probe.optimizer import is_paused

    if is_paused():
        return
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    cohorts: dict[int, list[LayerState]] = {}
    for _, state in sorted(live.items()):  # by handle: the same order on all ranks
        state.forget_weights()  # an average of the weights follows by ``p.data``, of which no version tells
        cohorts.setdefault(id(state.cohort), []).append(state)
    over = [state for cohort in cohorts.values() if _concerns(cohort, held) for state in cohort]
    _end_step(over, any(state.cohort.has_run for state in over))


def _concerns(cohort: Iterable[LayerState], held: set[int]) -> bool:
    """Whether an optimizer has some of the layers' parameters; of layers without any that it could have, every optimizer's step counts."""
    trained = False
    for state in cohort:
        module = None if state.module is None else state.module()
        for parameter in () if module is None else own_parameters(module).values():
            if parameter is None:
                continue
            if id(parameter) in held:
                return True
            trained |= parameter.requires_grad
    return not trained


def _end_step(over: Iterable[LayerState], has_run: bool) -> None:
    """Weights are quantized anew, and histories advance, those of one process group in one exchange.

    Args:
        over: layers.
        has_run: whether one of them has, here and so on the other ranks; else another optimizer of the same model has ended this step.
    """
    together: dict[tuple[Any, torch.device], list[History]] = {}
    groups: dict[int, Any] = {}
    cohorts = set()
    for state in over:
        state.forget_weights()
        cohorts.add(state.cohort)
        recipe = state.in_force
        group = group_of(recipe.amax_group) if isinstance(recipe, DelayedScaling) and recipe.reduce_amax else None
        if group is not None and has_run:
            state.complete_histories()  # what did not run on this rank may have on another
        elif not state.cohort.has_run:
            continue
        groups[id(group)] = group
        for _, history in sorted(state.histories.items()):
            together.setdefault((id(group), history.amax.device), []).append(history)
    for (group_id, _), histories in together.items():
        advance_all(histories, groups[group_id])
    for cohort in cohorts:
        cohort.has_run = False


def step(model: nn.Module) -> None:
    """End a step of a model that no torch optimizer steps: new scales of delayed scaling, weights quantized anew.

    Args:
        model: with converted layers.

    *Cost:* with ``reduce_amax`` and ranks, one all-reduce of a few floats a layer.
    """
    _end_step(states(model).values(), True)


def state_dict(model: nn.Module) -> dict[str, dict[str, Any]]:
    """What a checkpoint keeps of delayed scaling, beside the model's own state dict, which stays as it was.

    Args:
        model: with converted layers.

    Returns:
        Layer's name → operand and format → scale and amaxes; plain tensors and numbers, as ``torch.load(weights_only=True)`` reads them.
    """
    return {
        name: {f"{operand}.{form}": history.state_dict() for (operand, form), history in state.histories.items()}
        for name, (_, state) in named_states(model).items()
        if state.histories
    }


def load_state_dict(model: nn.Module, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Go on with the scales that ``state_dict`` gave.

    Args:
        model: with converted layers of the same names.
        saved: as ``state_dict`` gave it.

    Raises:
        UsageError: of a name that no converted layer has.
    """
    found = named_states(model)
    for name, histories in saved.items():
        if name not in found:
            raise UsageError(
                f"load_state_dict: {name!r} is no converted layer of this model.{nearest(name, list(found))} Convert it first."
            )
        module, state = found[name]
        device = next((p.device for p in own_parameters(module).values() if p is not None), torch.device("cpu"))
        for key, held in histories.items():
            operand, _, form = key.partition(".")
            history = state.histories.get((operand, form))
            if history is None:
                how = next((h for (_, of), h in state.plan.items() if h and of == operand and h.format.name == form and h.delayed), None)
                history = state.new_history(operand, how or How(format_of(form), delayed=True), device)
            history.load_state_dict(dict(held))
        state.forget_weights()
