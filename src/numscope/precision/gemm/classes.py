"""The classes of converted layers: each has the forward of ``Converted``, and else everything of the class that it was made from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch.fx
from torch import Tensor, nn

from numscope.precision.gemm.linear import product
from numscope.precision.gemm.state import ATTRIBUTE, LayerState

torch.fx.wrap("product")  # symbolic tracing keeps the call, as it keeps a bare layer's


class Converted:
    """What a converted layer's class has before its own. There is one such class for each kind of layer."""

    _numscope_origin: type[nn.Module]

    def forward(self, x: Tensor) -> Tensor:
        if ATTRIBUTE not in self.__dict__:  # reverted, but under a class that something else derived from this one
            y: Tensor = super().forward(x)  # type: ignore[misc]
            return y
        return product(self, x, self.weight, self.bias)  # type: ignore[attr-defined, arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        held: LayerState | None = self.__dict__.get(ATTRIBUTE)
        if held is not None:
            held.module = weakref.ref(self)  # type: ignore[arg-type]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__dict__.get("_numscope_origin") is None:  # a derived class, as above: pickling is its own business
            return super().__reduce_ex__(protocol)
        return _restored, (self._numscope_origin,), super().__reduce_ex__(protocol)[2]


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def class_for(origin: type[nn.Module]) -> type[nn.Module]:
    """The class that layers of a class get when they are converted."""
    made = _classes.get(origin)
    if made is None:
        names = {"_numscope_origin": origin, "__module__": __name__, "__qualname__": f"Converted{origin.__qualname__}"}
        made = _classes[origin] = type(origin.__name__, (Converted, origin), names)
    return made


def origin_of(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class that a converted layer's class was made from; None for other classes."""
    origin: type[nn.Module] | None = kind.__dict__.get("_numscope_origin")
    return origin


def _restored(origin: type[nn.Module]) -> nn.Module:
    """An empty converted layer, for pickle and copy."""
    make: Callable[[type[nn.Module]], nn.Module] = nn.Module.__new__
    return make(class_for(origin))
