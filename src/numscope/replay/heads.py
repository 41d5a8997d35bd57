"""Which of a model's outputs are computed from others: hidden states beside logits, logits beside a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def heads(outputs: Sequence[Tensor]) -> list[bool]:
    """For each output whether no other one is computed from it.

    What a head receives in backward comes from outside the model. What another receives is the sum of that and of the model's own gradient.

    *Cost:* a walk over the autograd graph; about 1 µs a node.
    """
    below: set[Any] = set()
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while todo:
        for following, _ in todo.pop().next_functions:
            if following is not None and following not in below:
                below.add(following)
                todo.append(following)
    return [t.grad_fn is None or t.grad_fn not in below for t in outputs]
