"""``torch.utils.swap_tensors`` of watched tensors: ``Module.to`` and ``load_state_dict`` call it, always for tensor subclasses."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class _WithoutReferences:
    """``weakref`` as ``torch.utils`` sees it: no tensor has weak references. They mean the Python object, which a swap keeps."""

    def getweakrefs(self, tensor: Any) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)


def allow_swaps() -> None:
    """Torch refuses to swap tensors that are weakly referenced, as numscope's watched ones are; let it, in this process from now on.

    Also after the last watch: what it has left to be collected refers to tensors still.
    """
    if getattr(torch.utils, "weakref", None) is weakref:
        setattr(torch.utils, "weakref", _WithoutReferences())  # noqa: B010
