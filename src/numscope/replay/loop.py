"""Tells each thread's tape of the training loop: where backward runs, and where torch itself changes gradients."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.loop_calls import LoopCall
from numscope.replay import outside


class _Loop(optimizer_probe.StepListener):
    """Reports to the thread's tape backward, before the models' steps are told, and what torch itself does to gradients after it.

    The latter needs no record, since nothing but a bad gradient makes it go wrong.
    """

    def rehearsal(self) -> None:
        outside.current().pause()

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        outside.current().before_backward(roots)

    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        outside.current().after_gradients(gradients)

    def after_backward(self) -> None:
        outside.current().after_backward()

    def called(self, call: LoopCall) -> None:
        if call.kind in ("clip", "unscale"):
            outside.current().own_begins()

    def returned(self, call: LoopCall) -> None:
        if call.kind in ("clip", "unscale"):
            outside.current().own_ends()


_loop = _Loop()


def listen() -> None:
    """Follow backward and the loop's own calls, until ``unlisten``. Safe to call twice."""
    optimizer_probe.listen(_loop)


def unlisten() -> None:
    optimizer_probe.unlisten(_loop)
