"""A process of ours that must not outlive the one that has started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, number: int = signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM) -> None:
    """Has the kernel send this process a signal when its parent dies, even while it hangs where no Python thread runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)  # it has died already
