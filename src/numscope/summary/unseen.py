"""Operations of the tool's own, which nothing of the run's sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """No mode hears of them, neither the script's (a counter of operations) nor the tape of a replay, and autograd records none.

    *Cost:* 4 µs.
    """
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        yield
