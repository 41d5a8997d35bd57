"""Which operands an operation's bad result can come from.

Not from one that the operation was told to ignore, and, where elements correspond, not from one whose bad elements are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from numscope.replay.tape import UNOBSERVED, NumberStore, OperandRecord, OpRecord, plain_name

# Operations that write each element of their result from one element of one operand.
_MOVES = frozenset(
    {"where", "masked_fill", "masked_scatter", "index_put", "index_copy", "index_fill", "scatter", "slice_scatter", "select_scatter",
     "diagonal_scatter", "as_strided_scatter", "put", "copy"}
)  # fmt: skip
_PICKS = frozenset({"nll_loss_forward", "nll_loss2d_forward"})

Bad = list[tuple[OperandRecord, str, Tensor]]  # the operand, its argument's name, where its elements are bad


def corresponds(func: Any) -> bool:
    """Whether it can be said which of an operator's operands an element of its result comes from."""
    name = plain_name(str(getattr(func, "__name__", "")).partition(".")[0])
    return torch.Tag.pointwise in getattr(func, "tags", ()) or name in _MOVES or name in _PICKS


def bad_elements(record: OpRecord, named: Sequence[tuple[str, Any]], rows: NumberStore, syncs: bool) -> Bad:
    """Where the operands of an operation are bad, before it runs.

    Args:
        named: the operation's arguments.
        rows: the numbers of its operands.
        syncs: a device may be waited for.
    """
    tensors = [(name, value) for name, value in named if isinstance(value, Tensor) and value.is_floating_point()]
    if not all(_is_plain(t) and (syncs or t.is_cpu) for _, t in tensors):
        return []
    found = []
    for operand in record.inputs:
        value = next((t for name, t in tensors if name == operand.name), None)
        if value is None or operand.state is None or operand.state.row == UNOBSERVED:
            continue
        if rows.is_bad(operand.state.row) is not False:
            found.append((operand, operand.name, ~torch.isfinite(value)))
    return found


def settle(func: Any, record: OpRecord, named: Sequence[tuple[str, Any]], bad: Bad, result: Any) -> None:
    """Mark those operands as ignored whose bad elements are not among the result's; ``bad``: of ``bad_elements``."""
    out = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(out, Tensor) or not _is_plain(out) or not out.is_floating_point():
        return
    own = bad_out = ~torch.isfinite(out)
    if not bool(bad_out.any()):
        return
    for operand, name, mask in bad:
        if record.name in _PICKS:
            landed = _picked(name, mask, dict(named))
        elif record.name in _MOVES:
            landed = _moved(func, name, mask, named)
        else:
            landed = mask
        operand.ignored = not bool((landed & bad_out).any())
        own = own & ~landed
    record.bears = bool(own.any())


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and tensor.device.type != "meta"


def _moved(func: Any, place: str, mask: Tensor, named: Sequence[tuple[str, Any]]) -> Tensor:
    """Where an operand's bad elements go: the operation done with ones in their places, and zeros in all others."""

    def stand_in(name: str, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return mask.to(value.dtype) if name == place else torch.zeros_like(value)
        return 0 if name == "value" and isinstance(value, int | float) else value

    names = [argument.name for argument in func._schema.arguments if not argument.kwarg_only]
    given = {name: stand_in(name, value) for name, value in named}
    positional = [given.pop(name) for name in names[: len(given)] if name in given]
    landed: Tensor = func(*positional, **given).ne(0)
    return landed


def _picked(place: str, mask: Tensor, arguments: Mapping[str, Any]) -> Tensor:
    """Whether a likelihood loss takes a bad element: that of a target that counts."""
    target, classes = arguments["target"], arguments["self"].shape[1 if arguments["self"].dim() > 1 else 0]
    counts = target != arguments.get("ignore_index", -100)
    chosen = target.clamp(0, classes - 1)
    by_class = place == "weight" or mask.dim() == 1
    taken: Tensor = mask[chosen] if by_class else mask.gather(1, chosen.unsqueeze(1)).squeeze(1)
    return taken.logical_and(counts).any()
