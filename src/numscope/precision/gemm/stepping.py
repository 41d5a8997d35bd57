"""When a step of converted layers ends: with their optimizer's step, or on request. Scales change then and at no other time."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from numscope.precision.casting.delayed import History, advance_all
from numscope.probe.optimizer import is_paused

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class Cohort:
    """The layers that one call converted. Their steps end together, with their optimizer's step."""

    __slots__ = ("__weakref__", "has_run", "said")

    def __init__(self) -> None:
        self.has_run = False  # whether a forward has recorded amaxes since the last step
        self.said: set[str] = set()  # log messages that concern all of them, each logged once

    def __reduce__(self) -> tuple[type[Cohort], tuple[()]]:
        return Cohort, ()


class Steps(Protocol):
    """What this file needs of a converted layer's state."""

    cohort: Cohort
    histories: dict[tuple[str, str], History]

    def parameters(self) -> Mapping[str, nn.Parameter | None]: ...
    def amax_group(self) -> Any: ...
    def complete_histories(self) -> None: ...
    def forget_weights(self) -> None: ...


live: Final[weakref.WeakValueDictionary[int, Steps]] = weakref.WeakValueDictionary()  # all states by handle
_handles = itertools.count(1)
_hook: RemovableHandle | None = None  # torch calls it after every optimizer's step, as long as there are states
_num_followed = 0


def follow(state: Steps) -> int:
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
    cohorts: dict[int, list[Steps]] = {}
    for _, state in sorted(live.items()):  # by handle, which gives all ranks the same order
        state.forget_weights()  # averages of the weights are often written through ``p.data``, which changes no version
        cohorts.setdefault(id(state.cohort), []).append(state)
    end([state for cohort in cohorts.values() if _concerns(cohort, held) for state in cohort])


def _concerns(cohort: Iterable[Steps], held: set[int]) -> bool:
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


def end(states: Iterable[Steps], *, always: bool = False) -> None:
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
