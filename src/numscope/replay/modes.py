"""torch's stacks of modes, from which one of ours is taken off wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.overrides import _pop_mode as pop_function_mode
from torch.overrides import _push_mode as push_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack, _pop_mode, _push_mode

DISPATCH_MODES: Any = (_get_current_dispatch_mode_stack, _pop_mode, _push_mode)
FUNCTION_MODES: Any = (_get_current_function_mode_stack, pop_function_mode, push_function_mode)


def taken_off(mode: Any, stack: Callable[[], Any], pop: Callable[[], Any], push: Callable[[Any], None]) -> bool:
    """Take a mode off its stack, wherever it is in it. False if it is not in it: somebody else unwound the stack."""
    if mode not in stack():
        return False
    above: list[Any] = []
    while (top := pop()) is not mode:
        above.append(top)
    for other in reversed(above):
        push(other)
    return True


class Remover(TorchFunctionMode):
    """Takes a probe off at the next function of torch: within an operation that it sees it can't be taken off."""

    def __init__(self, probe: TorchDispatchMode) -> None:
        super().__init__()
        self.probe: TorchDispatchMode | None = probe

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.probe is not None and not torch.compiler.is_compiling() and taken_off(self.probe, *DISPATCH_MODES):
            self.probe = None
        return func(*args, **(kwargs or {}))
