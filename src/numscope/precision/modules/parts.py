"""Fused modules in parts: the whole owns the parameters, as checkpoints have them; each GEMM and norm is a module that hooks can see.

Transformer Engine keeps all parameters of a fused module in that module (``fc1_weight``, ``fc2_weight``), and its debug tools still treat
each GEMM as a layer (``….fc1``, ``….fc2``). So here the whole owns the parameters, and its parts, child modules without any, borrow them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from numscope.precision.modules.arguments import check_others


class Part(nn.Module):
    """A child module that works with parameters of the module it is part of: its own name for each → the whole's attribute."""

    def __init__(self, borrowed: Mapping[str, str], name: str | None) -> None:
        super().__init__()
        self.borrowed = dict(borrowed)
        self.name = name
        self._whole: weakref.ref[nn.Module] | None = None  # weak: a cycle would delay freeing a deleted model

    def parameter(self, name: str) -> Tensor | None:
        """A parameter of the whole, read anew each time: sharding and casting replace parameters."""
        assert self._whole is not None
        found: Tensor | None = getattr(self._whole(), self.borrowed[name], None)
        return found

    def _numscope_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that ``probe/layer_names.py`` counts as this layer's own."""
        held = {name: self.parameter(name) for name in self.borrowed}
        return {name: parameter for name, parameter in held.items() if isinstance(parameter, nn.Parameter)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": None}  # a weak reference can't be copied or pickled; the whole sets it again

    def extra_repr(self) -> str:
        return ", ".join(self.borrowed.values())


class NamedModule(nn.Module):
    """A module with Transformer Engine's arguments; it loads their checkpoints without the scales and amaxes in their own format."""

    def __init__(self, name: str | None, others: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__()
        check_others(type(self), others)
        self.name = name

    def named(self, child: str) -> str | None:
        """A child's name in configurations; None if the module has none."""
        return self.name and f"{self.name}.{child}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Whole(NamedModule):
    """A module that owns the parameters of its parts."""

    _numscope_stand_in: str | None = None  # the part that has this module's own layer name, if there is one

    @property
    def _numscope_lent(self) -> frozenset[str]:
        """Its parameters that count as a part's."""
        return frozenset(name for part in self.children() if isinstance(part, Part) for name in part.borrowed.values())

    def bind(self) -> None:
        """Make the parts its own. Call it when all parts are there; copies do so themselves."""
        for part in self.children():
            if isinstance(part, Part):
                part._whole = weakref.ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.bind()
