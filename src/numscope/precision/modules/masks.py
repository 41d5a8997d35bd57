"""Which query sees which key: mask types, sliding windows and attention biases, turned into one boolean mask and one bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError

MaskType = Literal["no_mask", "padding", "causal", "padding_causal", "causal_bottom_right", "padding_causal_bottom_right", "arbitrary"]
MASK_TYPES: tuple[str, ...] = get_args(MaskType)
BIAS_TYPES = ("no_bias", "pre_scale_bias", "post_scale_bias", "alibi")
_SPELLINGS = {"padding,causal": "padding_causal", "causal,padding": "padding_causal", "causal_padding": "padding_causal"}

Mask = Tensor | tuple[Tensor, Tensor] | None
Window = tuple[int, int] | None


def check_mask_type(where: str, mask_type: str) -> str:
    """The mask type's canonical name; raises UsageError if it is unknown."""
    mask_type = _SPELLINGS.get(mask_type, mask_type)
    check_one_of(f"{where}: attn_mask_type", mask_type, MASK_TYPES)
    return mask_type


@dataclass(frozen=True, slots=True)
class Span:
    """The positions of one attention call."""

    queries: int  # their number
    keys: int  # likewise
    device: torch.device  # where masks are created
    query_lengths: Tensor | None = None  # lengths of padded sequences, shape ``(batch, 1, 1, 1)``
    key_lengths: Tensor | None = None  # lengths of padded sequences, shape ``(batch, 1, 1, 1)``

    def shift(self, bottom_right: bool) -> Tensor | int:
        """The difference between a query's position and that of the key on its diagonal."""
        if not bottom_right:
            return 0
        if self.query_lengths is not None and self.key_lengths is not None:
            return self.key_lengths - self.query_lengths
        return self.keys - self.queries

    def distance(self, bottom_right: bool) -> Tensor:
        """Each key's distance from the query's diagonal, broadcastable to ``(batch, heads, queries, keys)``."""
        rows = torch.arange(self.queries, device=self.device).view(1, 1, -1, 1)
        columns = torch.arange(self.keys, device=self.device).view(1, 1, 1, -1)
        return columns - (rows + self.shift(bottom_right))


def hidden(where: str, mask_type: str, mask: Mask, window: Window, bottom_right: bool | None, span: Span) -> tuple[Tensor | None, Span]:
    """Which keys a query must not see.

    Args:
        where: class name, for messages.
        mask_type: canonical.
        mask: booleans, true where masked out: padding of shape ``(batch, 1, 1, queries)``, or a pair for queries and keys; for
            ``arbitrary`` broadcastable to ``(batch, heads, queries, keys)``.
        window: how far to the left and right of the diagonal a query sees; -1: without limit.
        bottom_right: whether the diagonal ends at the bottom right; None: by mask type.
        span: the positions of this call.

    Returns:
        A mask broadcastable to ``(batch, heads, queries, keys)``, or None if every query sees every key; and the span with padded lengths.

    Raises: UsageError: the mask does not fit its type.
    """
    found: Tensor | None = None
    if mask_type == "arbitrary":
        found = _boolean(where, _single(where, mask_type, mask))
    elif "padding" in mask_type:
        queries, keys = _padded(where, mask_type, mask, span)
        found = queries.transpose(-1, -2) | keys
        span = Span(span.queries, span.keys, span.device, _length(queries), _length(keys))
    if bottom_right is None:
        bottom_right = mask_type not in ("causal", "padding_causal")
    left, right = (-1, -1) if window is None else window
    if "causal" in mask_type:
        right = 0
    if left >= 0 or right >= 0:
        distance = span.distance(bottom_right)
        outside = distance > right if right >= 0 else None
        before = distance < -left if left >= 0 else None
        for more in (outside, before):
            if more is not None:
                found = more if found is None else found | more
    return found, span


def alibi(slopes: Tensor | None, heads: int, bottom_right: bool, span: Span, dtype: torch.dtype) -> Tensor:
    """The bias ``-slope · |distance from the diagonal|``, shape ``(1 or batch, heads, queries, keys)``.

    Args:
        slopes: shape ``(heads,)`` or ``(batch, heads)``; None: those of ``alibi_slopes``.

    *Source:* Press, Smith and Lewis, Train Short, Test Long, 2021.
    """
    found = alibi_slopes(heads, span.device) if slopes is None else slopes
    found = found.view(1 if found.dim() == 1 else found.shape[0], heads, 1, 1)
    return (-found * span.distance(bottom_right).abs()).to(dtype)


def alibi_slopes(heads: int, device: torch.device) -> Tensor:
    """ALiBi's slopes, shape ``(heads,)``, float32: a geometric sequence for a power of two; for other numbers that of the next lower power,
    continued with every second slope of the next higher one."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, dtype=torch.float32, device=device)


def padding_of(cu_seqlens: Tensor, length: int) -> Tensor:
    """A padding mask, shape ``(batch, 1, 1, length)``, from cumulative sequence lengths, shape ``(batch + 1,)``."""
    lengths = cu_seqlens.diff().view(-1, 1, 1, 1)
    return torch.arange(length, device=cu_seqlens.device) >= lengths


def _padded(where: str, mask_type: str, mask: Mask, span: Span) -> tuple[Tensor, Tensor]:
    """The padding masks of queries and of keys, each ``(batch, 1, 1, length)``."""
    if mask is None:
        raise UsageError(f"{where}: attention_mask: got None, expected a boolean padding mask for attn_mask_type={mask_type!r}.")
    pair = (mask, mask) if isinstance(mask, Tensor) else tuple(mask)
    if len(pair) != 2:
        raise UsageError(f"{where}: attention_mask: got {len(pair)} masks, expected one for queries and one for keys.")
    queries, keys = (_boolean(where, one) for one in pair)
    for which, one, length in (("queries", queries, span.queries), ("keys", keys, span.keys)):
        if one.dim() != 4 or one.shape[1:] != (1, 1, length):
            hint = " In cross attention pass a pair: (mask for queries, mask for keys)." if isinstance(mask, Tensor) else ""
            raise UsageError(f"{where}: attention_mask: got shape {tuple(one.shape)} for {which}, expected (batch, 1, 1, {length}).{hint}")
    return queries, keys


def _single(where: str, mask_type: str, mask: Mask) -> Tensor:
    if not isinstance(mask, Tensor):
        raise UsageError(
            f"{where}: attention_mask: got {'None' if mask is None else 'a pair'}, expected a boolean tensor that broadcasts to "
            f"(batch, heads, queries, keys) for attn_mask_type={mask_type!r}."
        )
    return mask


def _boolean(where: str, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise UsageError(f"{where}: attention_mask: got dtype {mask.dtype}, expected torch.bool, true where masked out.")
    return mask


def _length(padding: Tensor) -> Tensor:
    return (~padding).sum(-1, keepdim=True)
