"""What stays with the object that it was put on: no copy of the object, in memory or in a file, has it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import nn


class Hook(partial[Any]):
    """A hook that stays with the object it was put on: a copy, in memory or in a file, gets one in its place that does nothing.

    ``copy.deepcopy(model)`` would else copy the watch, and ``torch.save(model)`` try to write it. What stands in needs no numscope to load.
    """

    __torch_unserializable__ = True  # no warning from torch when a tensor that has it is saved

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


# Dicts of hooks that every module has and few use. A dict that is not empty is left alone: handles of its hooks know it by itself.
_PLACES = ("_load_state_dict_post_hooks", "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks")


class _Owning(OrderedDict[int, Any]):
    """A module's dict of hooks that also keeps an object alive. Its copy, in memory or in a file, is a plain dict without the object."""

    owned: object = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        return OrderedDict(self).__reduce_ex__(protocol)


def owned_by(model: nn.Module, item: object) -> Callable[[], None]:
    """Let a model keep an object alive. Nothing of it gets into the model's copies, files, or calls.

    Returns: what ends it; safe to call twice.
    """
    place = next((place for place in _PLACES if type(model.__dict__[place]) is OrderedDict and not model.__dict__[place]), None)
    if place is None:  # in use by others, all four: whoever holds the object keeps it alive, and the hooks that it puts on the model do
        return lambda: None
    was, owning = model.__dict__[place], _Owning()
    owning.owned = item
    model.__dict__[place] = owning

    def end() -> None:
        owning.owned = None
        if model.__dict__[place] is owning and not owning:
            model.__dict__[place] = was

    return end
