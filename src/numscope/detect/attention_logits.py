"""The largest logit of each fused attention, which its kernel never writes to memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.records.faults import suppress

_FUSED = "_scaled_dot_product_"
_MOST = 1 << 24  # logits at a time


class AttentionLogits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes the logits of ``scaled_dot_product_attention`` once more, where a fused kernel runs it.

    Args:
        module: returns the qualified name of the innermost module being called.
        largest: gets the largest logit by module, in units of nats, as softmax gets it: scaled, and with the mask.

    *Cost:* of each attention the product of queries and keys, in float32, 64 MiB at a time.
    """

    def __init__(self, module: Callable[[], str], largest: dict[str, float]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._module, self._largest = module, largest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name.startswith(_FUSED) and "backward" not in name:
            with suppress(Exception), torch.no_grad():
                given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
                mask = given.get("attn_mask", given.get("attn_bias"))
                found = largest_logit(given["query"], given["key"], mask, given.get("is_causal", False), given.get("scale"))
                self._largest[self._module()] = max(self._largest.get(self._module(), -math.inf), found)
        return func(*args, **kwargs)


def largest_logit(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> float:
    """The largest of softmax's arguments.

    Args:
        query: [batch, heads, L, d]; ``key``: [batch, heads, S, d], or of heads that several of the query's share.
        mask: as ``scaled_dot_product_attention`` takes it, broadcast to [batch, heads, L, S].
        scale: None: 1/√d.
    """
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3) if key.shape[-3] != query.shape[-3] else key
    length, width = query.shape[-2], key.shape[-2]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rows = max(1, _MOST // max(1, query.shape[-3] * width))
    masks = None if mask is None else mask.broadcast_to(*query.shape[:-1], width).flatten(0, -4)
    largest = -math.inf
    for number, (q, k) in enumerate(zip(query.flatten(0, -4), key.flatten(0, -4), strict=True)):
        for begin in range(0, length, rows):
            part = slice(begin, min(begin + rows, length))
            logits = q[:, part].float() @ k.float().mT * scale
            if masks is not None:
                here = masks[number, :, part]
                logits = logits.masked_fill(~here, -math.inf) if here.dtype is torch.bool else logits + here
            if is_causal:
                seen = torch.ones(part.stop - begin, width, dtype=torch.bool, device=logits.device).tril(begin)
                logits = logits.masked_fill(~seen, -math.inf)
            largest = max(largest, float(logits.max()))
    return largest
