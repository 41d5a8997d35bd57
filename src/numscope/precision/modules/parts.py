"""Modules in parts: the whole holds the parameters, as checkpoints have them; each GEMM and norm is a module, as hooks see them.

Transformer Engine keeps all of a fused module's parameters in that module (``fc1_weight``, ``fc2_weight``), and its debug tools still
name each GEMM a layer (``….fc1``, ``….fc2``). So here the whole owns the parameters and its parts, child modules without any, borrow them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Part(nn.Module):
    """A child module that works with parameters of the module it is part of.

    Args:
        borrowed: its own name of each parameter → the whole's attribute.
        name: what configurations know the layer by.
    """

    def __init__(self, borrowed: Mapping[str, str], name: str | None) -> None:
        super().__init__()
        self.borrowed = dict(borrowed)
        self.name = name
        self._whole: weakref.ref[nn.Module] | None = None  # weak: a cycle would keep a deleted model's memory until the next collection

    def parameter(self, name: str) -> Tensor | None:
        """One of the whole's, as it is now: sharding and casting put others in its place."""
        assert self._whole is not None, "a part is of a whole"
        found: Tensor | None = getattr(self._whole(), self.borrowed[name], None)
        return found

    def _numscope_parameters(self) -> dict[str, nn.Parameter]:
        """What ``probe/layer_names.py`` counts as this layer's own."""
        held = {name: self.parameter(name) for name in self.borrowed}
        return {name: parameter for name, parameter in held.items() if isinstance(parameter, nn.Parameter)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": None}  # a weak reference can be neither copied nor pickled: the whole gives it anew

    def extra_repr(self) -> str:
        return ", ".join(self.borrowed.values())


class Whole(nn.Module):
    """A module that owns what its parts work with."""

    _numscope_stand_in: str | None = None  # the part that has this module's own layer name, where one has

    @property
    def _numscope_lent(self) -> frozenset[str]:
        """Parameters that are its parts' as layers go."""
        return frozenset(name for part in self.children() if isinstance(part, Part) for name in part.borrowed.values())

    def bind(self) -> None:
        """Make the parts its own. To be called when they are there, and again of a copy."""
        for part in self.children():
            if isinstance(part, Part):
                part._whole = weakref.ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.bind()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        drop_extra_state(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def drop_extra_state(state_dict: dict[str, Any], prefix: str) -> None:
    """Leave out what Transformer Engine's checkpoints keep beside parameters (scales and amax histories in its own format)."""
    for key in (f"{prefix}_extra_state", f"{prefix}fused_attention._extra_state"):
        state_dict.pop(key, None)
