"""Records a run's loss step by step.

The loss is the tensor that ``backward`` is called on, so a script does not have to name it. Several backward calls before an optimizer's
step (micro-batches, several losses) are summed. A loss scaled by a ``GradScaler`` counts as it was before scaling, and roots with several
elements do not count. If one model's optimizer steps between the backward calls of one training step (a GAN), each stretch between two
optimizers' steps counts as a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from numscope.probe import optimizer as optimizer_probe

Over = Callable[[int, float], None]


class LossRecorder(optimizer_probe.StepListener):
    """Records losses from ``open`` to ``close``; calls ``over`` with each step's number and loss, once its weights have been updated.

    *Cost:* a host sync per backward: meant for short trial runs.
    """

    def __init__(self, over: Over = lambda step, loss: None) -> None:
        self.losses: list[float] = []
        self._over = over
        self._sum: float | None = None  # of the current step
        self._unscaled = WeakIdKeyDictionary()  # tensors compare by their elements
        self._scale: Any = None

    def open(self) -> None:
        optimizer_probe.listen(self)
        original = self._scale = torch.amp.GradScaler.scale

        def scale(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if isinstance(outputs, Tensor) and isinstance(scaled, Tensor) and scaled is not outputs:
                self._unscaled[scaled] = outputs.detach()
            return scaled

        torch.amp.GradScaler.scale = scale  # type: ignore[method-assign,assignment]

    def close(self) -> None:
        optimizer_probe.unlisten(self)
        if self._scale is not None:
            torch.amp.GradScaler.scale = self._scale  # type: ignore[method-assign]
        if self._sum is not None:  # no torch optimizer has stepped since the last backward
            self._end()

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        for root in roots:
            if root.numel() == 1:
                original: Tensor = self._unscaled.get(root, root)  # type: ignore[no-untyped-call]
                value = float(original.detach().double().item())
                self._sum = value if self._sum is None else self._sum + value

    def after_step(self, optimizer: Optimizer) -> None:
        if self._sum is not None:  # else this is a second optimizer in the same step
            self._end()

    def skipped_step(self, optimizer: Optimizer) -> None:
        self.after_step(optimizer)

    def _end(self) -> None:
        assert self._sum is not None
        loss, self._sum = self._sum, None
        self.losses.append(loss)
        self._over(len(self.losses) - 1, loss)
