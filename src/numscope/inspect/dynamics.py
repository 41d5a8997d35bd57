"""An optimizer's effect on weights: how large the update is beside them, and how much of it rounding loses; and its states.

Weights are compared element by element, so that those of before the step must be there: they are copied, on scheduled steps only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import PlannedSite
from numscope.inspect.tally import Tally
from numscope.probe.layer_names import own_parameters
from numscope.probe.optimizers import gradient_of, ids_known, ids_of, states_of
from numscope.records.faults import ours
from numscope.records.observation import PREFIX
from numscope.records.words import few
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

PIECE_NUMEL = 1 << 16  # elements at a time on CPU, where float64 copies then stay in its cache; sixteen times as many elsewhere
MOMENTA = ("exp_avg", "momentum_buffer")  # states that move a weight in a step in which its gradient is zero
SECOND_MOMENT = "exp_avg_sq"
NUM_CELLS = 8

Owned = tuple[PlannedSite, nn.Module, str]  # with the module that owns the parameter, and its name there


class Dynamics:
    """The updates that one optimizer's step makes to some parameters.

    Cells of a parameter (of its local part where it is sharded), all sums or counts over its elements, float64, in the order of the
    ``dynamics`` columns:

    - ``grad_square``: sum of g², over finite elements, of the gradient g that the optimizer uses (unscaled where it unscales itself).
    - ``update_square``: sum of u², over finite elements, of the update u = after − before, made in float64.
    - ``num_updates``: elements that the step meant to change: the optimizer had a gradient for the parameter, and the element's gradient,
      or after the step its first moment (``exp_avg``, ``momentum_buffer``), is finite and not zero. Weight decay alone does not count.
    - ``num_lost_updates``: those of them with after = before.
    - ``bf16_num_updates``: elements whose update is finite and not zero.
    - ``bf16_num_lost_updates``: those of them that would stay as they were, had the weight been kept in bf16: with w = bf16(before),
      bf16(float32(w + u)) = w, rounded to nearest even. Of a weight that *is* bf16 both are as ``num_updates`` and ``num_lost_updates``.
    - ``v_numel``: elements of Adam's second moment (``exp_avg_sq``, of the weight's shape) whose gradient or first moment is not zero.
    - ``v_num_underflow``: those of them that are zero: the square has underflowed in the second moment's dtype.

    Args:
        parameters: each with the index of its site.
        part: what of a site's gradient is to be read on this rank; None: nothing. A distributed gradient may be summands that are no
            gradient until they are summed up.

    *Cost:* a copy of the parameters during the step; some twenty passes over small pieces, 30 ns an element on one CPU thread, which is
    several times what the step itself takes. No host sync.
    """

    def __init__(
        self, parameters: Sequence[tuple[int, Parameter]], part: Callable[[int, Tensor], Tensor | None] = lambda site, gradient: gradient
    ) -> None:
        self._parameters = tuple(parameters)
        self._part = part
        self._kept: dict[int, tuple[Tensor, Tensor | None, Tensor | None]] = {}  # by id: a weight, its gradient, the gradient's square

    def before(self, optimizer: Optimizer) -> None:
        """Keep what the step will change: gradients are final, weights untouched."""
        self._kept = {}
        with unseen():
            for site, parameter in self._parameters:
                weight = _readable(parameter)
                if weight is not None and id(parameter) not in self._kept:
                    self._kept[id(parameter)] = weight.clone(), *self._gradient(site, parameter, getattr(optimizer, "grad_scale", None))

    def after(self, optimizer: Optimizer) -> list[tuple[int, Tensor]]:
        """Measure what the step has done: for each site its cells, float64[8] on the weight's device.

        A parameter that was not there before the step, or has another shape, dtype or device since, is left out.
        """
        found: dict[int, Tensor] = {}
        with unseen():
            for site, parameter in self._parameters:
                before, gradient, square = self._kept.pop(id(parameter), (None, None, None))
                weight = _readable(parameter, before)
                if before is None or weight is None or weight.dtype != before.dtype:
                    continue
                if gradient is None:  # an optimizer that calls a closure has made it within the step
                    gradient, square = self._gradient(site, parameter)
                found[id(parameter)] = _cells(before, weight, gradient, square, states_of(optimizer, parameter))
        return [(site, found[id(parameter)]) for site, parameter in self._parameters if id(parameter) in found]

    def _gradient(self, site: int, parameter: Parameter, scale: object = None) -> tuple[Tensor | None, Tensor | None]:
        """The gradient, and the sum of its finite elements' squares; ``scale`` is what a fused optimizer divides it by itself."""
        gradient = None if parameter.grad is None else _readable(self._part(site, parameter.grad), _readable(parameter))
        if gradient is None:
            return None, None
        square = torch.zeros((), dtype=torch.float64, device=gradient.device)
        for (piece,) in _pieces(gradient):
            square += torch.where(piece.isfinite(), piece, 0.0).double().square().sum()
        if isinstance(scale, Tensor):
            square /= scale.to(device=gradient.device, dtype=torch.float64, non_blocking=True).reshape(()).square()
        return gradient, square


def _cells(before: Tensor, after: Tensor, gradient: Tensor | None, square: Tensor | None, state: dict[str, Any]) -> Tensor:
    cells = torch.zeros(NUM_CELLS, dtype=torch.float64, device=after.device)
    if square is not None:
        cells[0] = square
    momenta = [m for name in MOMENTA if (m := _readable(state.get(name), after)) is not None]
    second = _readable(state.get(SECOND_MOMENT), after)
    for old, new, grad, v, *moved in _pieces(before, after, gradient, second, *momenta):
        update = new.double() - old.double()
        finite = update.isfinite()
        cells[1] += torch.where(finite, update, 0.0).square().sum()
        if grad is not None:
            meant = _moves(grad)
            for momentum in moved:
                meant |= _moves(momentum)
            cells[2] += meant.sum()
            cells[3] += (meant & (new == old)).sum()
            if v is not None:
                cells[6] += meant.sum()
                cells[7] += (meant & (v == 0)).sum()
        if after.dtype == torch.bfloat16:
            cells[4:6] = cells[2:4]
        else:
            low = old.to(torch.bfloat16)
            changed = finite & (update != 0)
            cells[4] += changed.sum()
            cells[5] += (changed & ((low.double() + update).float().to(torch.bfloat16) == low)).sum()
    return cells


def momentum_of(optimizer: Optimizer, parameter: Parameter) -> Tensor | None:
    """The first moment that an optimizer keeps for a parameter; None before its first step, or if it keeps none."""
    states = states_of(optimizer, parameter)
    return next((found for name in MOMENTA if isinstance(found := states.get(name), Tensor)), None)


def sign_agreement(gradient: Tensor, momentum: Tensor, maximize: bool = False) -> Tensor | None:
    """How often a gradient and a momentum of the same shape have the same sign; ``maximize``: the optimizer turns the gradient's.

    Returns: float64[2], the ``signs`` columns: elements where both are finite and not zero; those of them with the same sign. None where
    the two can't be compared.
    """
    with unseen():
        plain_gradient = _readable(gradient)
        plain_momentum = None if plain_gradient is None else _readable(momentum, plain_gradient)
        if plain_gradient is None or plain_momentum is None:
            return None
        cells = torch.zeros(2, dtype=torch.float64, device=plain_gradient.device)
        for g, m in _pieces(plain_gradient, plain_momentum):
            counted = _moves(g) & _moves(m)
            cells[0] += counted.sum()
            cells[1] += (counted & (((g > 0) == (m > 0)) != maximize)).sum()
        return cells


def _readable(tensor: object, like: Tensor | None = None) -> Tensor | None:
    """The plain local tensor of real numbers; None where there is none, or none of another's shape and device."""
    if not isinstance(tensor, Tensor):
        return None
    try:
        found = plain(tensor)
    except ours(Unsummarizable, RuntimeError):
        return None
    if found.layout is not torch.strided:
        found = found.to_dense()
    if found.is_complex():
        found = torch.view_as_real(found)
    if not found.is_floating_point() or (like is not None and (found.shape != like.shape or found.device != like.device)):
        return None
    return found


def _pieces(*tensors: Tensor | None) -> Iterator[list[Any]]:
    """The same elements of tensors of one shape, a piece at a time; None stays None."""
    flat = [None if t is None else t.reshape(-1) for t in tensors]
    first = next(t for t in flat if t is not None)
    size = PIECE_NUMEL if first.is_cpu else 16 * PIECE_NUMEL
    for start in range(0, first.numel(), size):
        yield [None if t is None else t[start : start + size] for t in flat]


def _moves(tensor: Tensor) -> Tensor:
    return tensor.isfinite() & (tensor != 0)


class Updates:
    """Reads one model's sites of weights and of optimizer states into a tally.

    Args:
        part: gives this rank's part of a site's tensor.
        show: takes a site's tensor, of which this rank's part counts.
        recorder: logs states that an optimizer does not keep.
    """

    def __init__(
        self,
        weights: Sequence[Owned],
        states: Sequence[Owned],
        tally: Tally,
        part: Callable[[PlannedSite, Tensor], Tensor | None],
        show: Callable[[PlannedSite, Tensor], None],
        recorder: Recorder,
    ) -> None:
        self._moving = [one for one in weights if one[0].offset("dynamics") is not None]
        self._signed = [one for one in weights if one[0].offset("signs") is not None]
        self._states = states
        self._tally, self._part, self._show, self._recorder = tally, part, show, recorder
        self._sites = {site.index: site for site, _, _ in weights}
        self._dynamics: dict[int, Dynamics] = {}  # by id of the optimizer that is stepping

    def before(self, optimizer: Optimizer, read: Collection[int]) -> None:
        """Copy the weights of which a statistic describes the update, and compare gradients with the momentum of the steps before."""
        mine = ids_of(optimizer)
        moving = [(site.index, parameter) for site, parameter in read_of(self._moving, read, mine)]
        if moving:
            dynamics = self._dynamics[id(optimizer)] = Dynamics(moving, lambda index, gradient: self._part(self._sites[index], gradient))
            dynamics.before(optimizer)
        rising = {id(p) for group in optimizer.param_groups if group.get("maximize") for p in group["params"]}
        for site, parameter in read_of(self._signed, read, mine):
            gradient, momentum = gradient_of(parameter), momentum_of(optimizer, parameter)
            if gradient is not None and momentum is not None and (part := self._part(site, gradient)) is not None:
                cells = sign_agreement(part, momentum, maximize=not rising.isdisjoint(ids_known(parameter)))
                if cells is not None:
                    self._merge(site.index, "signs", cells)

    def after(self, optimizer: Optimizer, read: Collection[int]) -> None:
        """Describe the updates, and read the states as the step has left them."""
        dynamics = self._dynamics.pop(id(optimizer), None)
        for index, cells in dynamics.after(optimizer) if dynamics is not None else ():
            self._merge(index, "dynamics", cells)
        mine = ids_of(optimizer) if read else set()
        missing: dict[str, list[str]] = {}
        for site, parameter in read_of(self._signed, read, mine):
            if momentum_of(optimizer, parameter) is None:
                missing.setdefault(" or ".join(MOMENTA), []).append(site.layer.name)
        for site, parameter in read_of(self._states, read, mine):
            name = site.kind.removeprefix(PREFIX)
            state = states_of(optimizer, parameter).get(name)
            if isinstance(state, Tensor):
                self._show(site, state)
            else:
                missing.setdefault(name, []).append(site.layer.name)
        for name, layers in missing.items():
            text = f"{type(optimizer).__name__} keeps no state {name} on this rank for the weights of {few(layers, 4)}"
            self._recorder.say_once(("no state", name, *layers), text, logging.WARNING)

    def _merge(self, index: int, key: str, cells: Tensor) -> None:
        first = self._sites[index].offset(key)
        assert first is not None
        self._tally.merge_cells(index, first, cells)

    def forget(self) -> None:
        """The step is over, or has not taken place."""
        self._dynamics.clear()


def read_of(owned: Sequence[Owned], read: Collection[int], only: Set[int] | None) -> Iterator[tuple[PlannedSite, Parameter]]:
    """The sites to read, each with its parameter; ``only`` those whose parameters have one of some ids."""
    for site, module, name in owned:
        parameter = own_parameters(module).get(name) if site.index in read else None
        if parameter is not None and (only is None or id(parameter) in only or not only.isdisjoint(ids_known(parameter))):
            yield site, parameter
