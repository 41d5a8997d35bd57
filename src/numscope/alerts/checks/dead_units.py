"""Units that never fire: nothing flows back through them, at any step that is looked at."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.optim import Optimizer

from numscope.alerts.checks.check import Check, Subject
from numscope.probe.optimizers import gradient_of, ids_known, ids_of
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

SHARE = 0.5  # of a layer's units; above it the layer is named
STEPS = 10  # looked at in a row, at which a unit got no gradient
LEAST = 8  # units of a layer; of fewer each counts too much
SAMPLE = 32  # weights of each unit that are looked at first


@dataclass(slots=True)
class _Layer:
    dead: Tensor  # units that got no gradient at any of the steps
    steps: list[int] = field(default_factory=list)


class DeadUnits(Check):
    """A unit is an output of a linear layer or a channel of a convolution. If it is zero behind a ReLU for every element of the batch, the
    gradient of all its weights is exactly zero; so no activation has to be read, and compiled and functional code is seen as well.

    Left out: layers whose whole gradient is zero or absent (experts without tokens, heads without a loss, adapters that begin at zero),
    embeddings, weights whose gradient a hook of the script's masks, and pruned ones. Dropout and padding leave a unit alone only now and
    then, and the units must be the same at all steps that are looked at.

    *Cost:* at thorough steps, one look at 32 weights' gradients a unit, and one pass over the gradients of units that seem dead.
    """

    name = "dead units"
    cheap = True
    fused = True

    def __init__(self, subject: Subject, share: float = SHARE, steps: int = STEPS) -> None:
        super().__init__(subject)
        self._share, self._steps = share, steps
        self._layers: dict[str, _Layer] = {}
        self._seen: list[tuple[int, str, HostCopy]] = []
        self._told: set[str] = set()

    def before_step(self, optimizer: Optimizer) -> None:
        if not self.subject.thorough:
            return
        mine = ids_of(optimizer)
        for module, layer in self.subject.probe.names.items():
            dim = _unit_dim(module)
            weight = next((p for name, p in module._parameters.items() if name == "weight"), None)  # a scripted module's has no ``get``
            if dim is None or weight is None or weight._backward_hooks or mine.isdisjoint(ids_known(weight)):
                continue
            gradient = gradient_of(weight)
            if gradient is None:
                continue
            with unseen(), contextlib.suppress(Unsummarizable):
                gradient = plain(gradient)
                if gradient.layout is torch.strided and gradient.numel() and gradient.shape[dim] >= LEAST:
                    self._seen.append((self.subject.step, layer, HostCopy(_without_gradient(gradient.movedim(dim, 0)))))

    def end(self, closing: bool) -> None:
        while self._seen and self._seen[0][2].is_here:
            step, layer, late = self._seen.pop(0)
            dead = late.take()
            known = self._layers.get(layer)
            if dead.all():
                continue  # nothing reaches the layer at all
            if known is None or known.dead.shape != dead.shape or len(known.steps) >= self._steps:
                known = self._layers[layer] = _Layer(dead)
            else:
                known.dead &= dead
            known.steps.append(step)
            if len(known.steps) == self._steps and int(known.dead.sum()) / len(dead) > self._share and layer not in self._told:
                self._told.add(layer)
                self._tell(layer, known)

    def _tell(self, layer: str, known: _Layer) -> None:
        num_dead, num = int(known.dead.sum()), len(known.dead)
        share = num_dead / num
        self.say(
            f"{num_dead} of {num} units ({share:.0%}) got no gradient at all at steps {', '.join(map(str, known.steps))}: "
            "they are zero for every input, or nothing uses them.",
            "Lower the learning rate or warm it up, look at the initial bias, or use an activation that is not flat (LeakyReLU, GELU).",
            again=True,
            layer=layer,
            tensor="weight",
            value=share,
            limit=self._share,
            evidence={"steps": known.steps, "units": known.dead.nonzero().flatten()[:64].tolist()},
            asks=True,
        )


def _unit_dim(module: nn.Module) -> int | None:
    """The dimension of a module's weight that counts its units; None for other modules."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 0
    return 1 if type(module).__name__ == "Conv1D" else None  # GPT-2's linear layer


def _without_gradient(gradient: Tensor) -> Tensor:
    """Which rows of a gradient are all zero."""
    rows = gradient.flatten(1)
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)]
    zero = (sample == 0).all(1)
    if rows.device.type != "cpu":  # which rows to look at again is not known here
        return vector_norm(rows.float(), torch.inf, dim=1) == 0 if rows.shape[1] > SAMPLE else zero
    places = zero.nonzero().flatten()
    if len(places) and sample.shape != rows.shape:
        zero[places] = (rows[places] == 0).all(1)
    return zero
