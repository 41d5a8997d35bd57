"""Units that do not count: those that never fire, so that nothing flows back through them, and those that are all the same."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.optim import Optimizer

from numscope.alerts.checks.check import MOST_NAMED, Check, Subject, names_of
from numscope.probe.optimizers import gradient_of, ids_known, ids_of
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

SHARE = 0.5  # of a layer's units; above it the layer is named
STEPS = 10  # looked at in a row, at which a unit got no gradient
LEAST = 8  # units of a layer; of fewer each counts too much
SAMPLE = 32  # weights of each unit that are looked at first
EQUAL = "equal units"
LEAST_LOOKS = 2  # at units that are equal, and move


@dataclass(slots=True)
class _Layer:
    dead: Tensor  # units that got no gradient at any of the steps
    steps: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Equal:
    first: list[float]  # some weights of the first unit, at the first look
    looks: int = 0  # at which the units were equal, and others than at the first one


class DeadUnits(Check):
    """A unit is an output of a linear layer or a channel of a convolution. If it is zero behind a ReLU for every element of the batch, the
    gradient of all its weights is exactly zero; so no activation has to be read, and compiled and functional code is seen as well.

    Left out: layers whose whole gradient is zero or absent (experts without tokens, heads without a loss, adapters that begin at zero),
    embeddings, weights whose gradient a hook of the script's masks, and pruned ones. Dropout and padding leave a unit alone only now and
    then, and the units must be the same at all steps that are looked at.

    Units whose weights are bit for bit equal, and are so after updates that have moved them, compute one number: that is what a constant as
    their initial value does. 32 weights of each are looked at, and all of them before a layer is named.

    *Cost:* at thorough steps, one look at 32 weights and their gradients a unit, and one pass over the gradients of units that seem dead.
    """

    name = "dead units"
    also = (EQUAL,)
    cheap = ("end",)
    fused = True

    def __init__(self, subject: Subject, share: float = SHARE, steps: int = STEPS) -> None:
        super().__init__(subject)
        self._share, self._steps = share, steps
        self._layers: dict[str, _Layer] = {}
        self._seen: list[tuple[int, str, int, HostCopy]] = []  # step, layer, number of units, of which each is 1 if dead; weights
        self._equal: dict[str, _Equal] = {}
        self._told: set[str] = set()

    def before_step(self, optimizer: Optimizer) -> None:
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
                gradient, values = plain(gradient), plain(weight)
                if gradient.layout is torch.strided and gradient.numel() and gradient.shape[dim] >= LEAST:
                    dead = _without_gradient(gradient.movedim(dim, 0))
                    both = HostCopy(torch.cat([dead.float(), _first_of_equal(values.movedim(dim, 0))]))
                    self._seen.append((self.subject.step, layer, len(dead), both))

    def end(self, closing: bool) -> None:
        equal = []
        while self._seen and self._seen[0][3].is_here:
            step, layer, num, late = self._seen.pop(0)
            dead, first = late.take()[:num] > 0, late.take()[num:]
            known = self._layers.get(layer)
            if dead.all():
                continue  # nothing reaches the layer at all
            if self._are_equal(layer, first.tolist()):
                equal.append(layer)
            if known is None or known.dead.shape != dead.shape or len(known.steps) >= self._steps:
                known = self._layers[layer] = _Layer(dead)
            else:
                known.dead &= dead
            known.steps.append(step)
            if len(known.steps) == self._steps and int(known.dead.sum()) / len(dead) > self._share and layer not in self._told:
                self._told.add(layer)
                self._tell(layer, known)
        if equal:
            self._tell_equal(equal)

    def _are_equal(self, layer: str, first: list[float]) -> bool:
        """Whether a layer's units have been equal for some looks; ``first``: some weights of one of them, nan if they differ."""
        known = self._equal.setdefault(layer, _Equal(first))
        is_equal = not math.isnan(first[0]) and not math.isnan(known.first[0])  # from the first look on
        known.looks = known.looks + (first != known.first) if is_equal else 0
        return known.looks == LEAST_LOOKS

    def _tell_equal(self, layers: Sequence[str]) -> None:
        named = {name: module for module, name in self.subject.probe.names.items() if name in layers}
        with unseen(), contextlib.suppress(Unsummarizable):
            rows = {
                f"{name}.weight".lstrip("."): plain(module.get_parameter("weight")).movedim(_unit_dim(module) or 0, 0)
                for name, module in named.items()
            }
            names = [name for name, tensor in rows.items() if bool((tensor == tensor[:1]).all())]
            if names:
                text = f"All units of {names_of(names)} are equal, bit for bit, and move together: each layer computes one number."
                advice = "Initialize weights at random, not with a constant: equal units get equal gradients."
                units = [len(rows[name]) for name in names[:MOST_NAMED]]
                self.say(text, advice, rule=EQUAL, parameters=names, evidence={"units": units})

    def _tell(self, layer: str, known: _Layer) -> None:
        num_dead, num = int(known.dead.sum()), len(known.dead)
        share = num_dead / num
        text = f"{num_dead} of {num} units ({share:.0%}) got no gradient at all at steps {', '.join(map(str, known.steps))}: they are "
        text += "zero for every input, or nothing uses them."
        advice = "Lower the learning rate or warm it up, look at the initial bias, or use an activation that is not flat (LeakyReLU, GELU)."
        about = {"steps": known.steps, "units": known.dead.nonzero().flatten()[:64].tolist()}
        self.say(text, advice, again=True, value=share, limit=self._share, evidence=about, asks=True, layer=layer, tensor="weight")


def _unit_dim(module: nn.Module) -> int | None:
    """The dimension of a module's weight that counts its units; None for other modules."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 0
    return 1 if type(module).__name__ == "Conv1D" else None  # GPT-2's linear layer


def _first_of_equal(weight: Tensor) -> Tensor:
    """Some weights of the first unit; nan in their place if those of other units differ from them."""
    rows = weight.detach().flatten(1)
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)]
    return sample[0].float().where((sample == sample[:1]).all(), torch.nan)


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
