"""What is read of weights around an optimizer's step: how the step changes them, and the states that the optimizer keeps for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.inspect.dynamics import MOMENTA, Dynamics, momentum_of, sign_agreement
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Site
from numscope.inspect.tally import Tally
from numscope.probe.layer_names import own_parameters
from numscope.probe.optimizers import gradient_of, ids_known, ids_of, states_of
from numscope.records.observation import PREFIX
from numscope.records.words import few

Owned = tuple[Site, nn.Module, str]  # with the module that owns the parameter, and its name there


class Updates:
    """Reads one model's sites of weights and of optimizer states.

    Args:
        weights, states: the sites, each with its module and parameter.
        tally: takes the numbers.
        part: gives this rank's part of a site's tensor.
        show: takes a site's tensor, of which this rank's part counts.
        recorder: logs states that an optimizer does not keep.
    """

    def __init__(
        self,
        weights: Sequence[Owned],
        states: Sequence[Owned],
        tally: Tally,
        part: Callable[[Site, Tensor], Tensor | None],
        show: Callable[[Site, Tensor], None],
        recorder: Recorder,
    ) -> None:
        self._moving = [one for one in weights if one[0].offset("dynamics") is not None]
        self._signed = [one for one in weights if one[0].offset("signs") is not None]
        self._states = states
        self._tally, self._part, self._show, self._recorder = tally, part, show, recorder
        self._sites = {site.index: site for site, _, _ in weights}
        self._dynamics: dict[int, Dynamics] = {}  # by id of the optimizer that is stepping

    def before(self, optimizer: Optimizer, read: Collection[int]) -> None:
        """Copy the weights of which a statistic describes the update, and compare gradients with the momentum of the steps before.

        Args:
            read: indices of the sites that this step reads.
        """
        moving = [(site.index, parameter) for site, parameter in _of(optimizer, self._moving, read)]
        if moving:
            dynamics = self._dynamics[id(optimizer)] = Dynamics(moving, lambda index, gradient: self._part(self._sites[index], gradient))
            dynamics.before(optimizer)
        rising = {id(p) for group in optimizer.param_groups if group.get("maximize") for p in group["params"]}
        for site, parameter in _of(optimizer, self._signed, read):
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
        missing: dict[str, list[str]] = {}
        for site, parameter in _of(optimizer, self._signed, read):
            if momentum_of(optimizer, parameter) is None:
                missing.setdefault(" or ".join(MOMENTA), []).append(site.layer.name)
        for site, parameter in _of(optimizer, self._states, read):
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


def _of(optimizer: Optimizer, owned: Sequence[Owned], read: Collection[int]) -> Iterator[tuple[Site, Parameter]]:
    """The sites to read whose parameters the optimizer steps."""
    wanted = [one for one in owned if one[0].index in read]
    mine = ids_of(optimizer) if wanted else ()
    for site, module, name in wanted:
        parameter = own_parameters(module).get(name)
        if parameter is not None and any(known in mine for known in ids_known(parameter)):
            yield site, parameter
