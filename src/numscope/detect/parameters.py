"""The parameters of a watched model in its journal: their gradients, and their weights as optimizers leave them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer

from numscope.detect.journal import Journal
from numscope.probe.entry import Entry
from numscope.probe.living import Beside
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import is_sharded, named_state
from numscope.probe.optimizers import ids_known, ids_of


class Parameters:
    """Puts parameters' gradients and weights into the journal, all in one native call.

    Args:
        probe: names the modules.
        journal: gets the rows.
    """

    def __init__(self, probe: ModuleProbe, journal: Journal) -> None:
        self._probe = probe
        self._journal = journal
        self._num_parameters: Beside[Optimizer, int] = Beside()  # when it was last looked at
        self.find()

    def find(self) -> None:
        """Again where modules or an optimizer's parameters are new: sharding and tying put others in the place of those that were there."""
        self.places: list[tuple[Entry, str, Parameter]] = [
            (self._probe.entry_of(module), slot, p) for module, slot, p in parameters_of(self._probe.names)
        ]
        self._own_ids = {id(p) for _, _, p in self.places}
        # By FSDP2, for each forward: into memory that it may have used before, and no version tells.
        self.are_gathered = any(is_sharded(module) for module in self._probe.names)

    @property
    def ids(self) -> set[int]:
        return {known for _, _, p in self.places for known in ids_known(p)}

    def follow(self, optimizer: Optimizer) -> None:
        """Look again where an optimizer of the model has parameters that were not there before."""
        num_given = sum(len(group["params"]) for group in optimizer.param_groups)
        if self._num_parameters.get(optimizer) != num_given:
            self._num_parameters[optimizer] = num_given
            if not ids_of(optimizer) <= self.ids:
                self.find()

    def see_gradients(self, only: Collection[int] | None = None) -> list[int]:
        """An event for each parameter that has a gradient; ``only`` those of some ids.

        Returns: their handles. *Cost:* one pass over the gradients.
        """
        return self._journal.add_gradients(self._of(only))

    def _of(self, only: Collection[int] | None) -> list[tuple[Entry, str, Parameter]]:
        """The places of parameters of some ids; None: of all."""
        if only is None or only == self._own_ids:
            return self.places
        return [(e, s, p) for e, s, p in self.places if any(known in only for known in ids_known(p))]

    def see_weights(self, only: Collection[int]) -> tuple[list[tuple[Entry, str, Parameter]], list[int]]:
        """Read weights anew: module, slot and parameter of each, and the handles of their rows. *Cost:* one pass over them."""
        found = self._of(only)
        return found, self._journal.weights.observe_many([p for _, _, p in found])

    def bad_now(self) -> frozenset[str]:
        """Names of the weights that are non-finite."""
        places, handles = self.see_weights(self.ids)
        ledger = self._journal.weights.ledger
        ledger.read()
        bad = set(ledger.bad())
        return frozenset(entry.parameter(slot) for (entry, slot, _), handle in zip(places, handles, strict=True) if handle in bad)


def parameters_of(names: Mapping[nn.Module, str]) -> list[tuple[str, str, nn.Parameter]]:
    """Each parameter once: (module name, slot, parameter)."""
    return cast(list[tuple[str, str, nn.Parameter]], named_state(names, buffers=False))
