"""The converted layers of a model: finding them, ending their step, and what a checkpoint keeps of their scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from numscope.precision.casting.scaling import How
from numscope.precision.gemm import stepping
from numscope.precision.gemm.state import LayerState, state_of
from numscope.probe.layer_names import layers_of
from numscope.records.errors import UsageError
from numscope.records.formats import format_of
from numscope.records.words import nearest


def states(model: nn.Module) -> dict[nn.Module, LayerState]:
    """The states of a model's converted layers, in the order of ``named_modules``.

    Args:
        model: as ``convert`` took it, or anything around or inside it.
    """
    return {module: state for module in model.modules() if (state := state_of(module)) is not None}


def named_states(model: nn.Module) -> dict[str, LayerState]:
    """The same by qualified name, without the names of wrappers around the model.

    Args:
        model: as for ``states``.
    """
    return {layer.qualified: state for module, layer in layers_of(model).items() if (state := state_of(module)) is not None}


def step(model: nn.Module) -> None:
    """End a step of a model that no torch optimizer steps: delayed scaling gets new scales, and weights are quantized again.

    Args:
        model: with converted layers.

    *Cost:* with ``reduce_amax`` and several ranks, one all-reduce of a few floats per layer.
    """
    stepping.end(states(model).values(), always=True)


def end_step(model: nn.Module) -> None:
    """End a step of a model unless it has ended: an optimizer's step, ``step`` or an earlier call may have done so.

    Scales advance if a forward in training has run since then. All ranks that share amaxes must call it together.

    Args:
        model: with or without converted layers.

    *Cost:* a tenth of a microsecond per module, and where the step has not ended that of ``step``.
    """
    stepping.end(states(model).values())


def state_dict(model: nn.Module) -> dict[str, dict[str, Any]]:
    """What a checkpoint keeps of delayed scaling. It goes beside the model's own state dict, which stays as it was.

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
