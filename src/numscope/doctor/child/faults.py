"""Injects faults for tests: ``NUMSCOPE_DOCTOR_FAULT``, several separated by ``;``.

corrupt:rank=1            flips bits in what rank 1 sends in phase 5; with peer=2 only to rank 2; with phase=6 in its results there
slow:rank=2,factor=4      does the work of each measurement of phase 7 four times
hang:phase=5,rank=1       waits forever in that phase; with step=recv in the first step whose name starts so
die:phase=6,rank=0        ends by SIGKILL, likewise
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FAULT = "NUMSCOPE_DOCTOR_FAULT"
_KEYS = {
    "corrupt": {"rank", "peer", "phase"},
    "slow": {"rank", "factor"},
    "hang": {"rank", "phase", "step"},
    "die": {"rank", "phase", "step"},
}


class Faults:
    """The faults of one rank.

    Args:
        text: as above.

    Raises: ValueError for an invalid text.
    """

    def __init__(self, text: str, rank: int) -> None:
        self._of_rank: list[tuple[str, dict[str, str]]] = []
        for word in filter(None, (part.strip() for part in text.split(";"))):
            kind, _, rest = word.partition(":")
            keys = dict(part.partition("=")[::2] for part in rest.split(",") if part)
            if kind not in _KEYS or not keys.keys() <= _KEYS[kind] or "rank" not in keys:
                known = "; ".join(f"{name}:{','.join(sorted(_KEYS[name]))}" for name in _KEYS)
                raise ValueError(f"{FAULT}: got {word!r}, expected {known}; rank is required.")
            if int(keys["rank"]) == rank:
                self._of_rank.append((kind, keys))

    def strike(self, phase: int, step: str) -> None:
        """Hangs or dies if requested for this step."""
        for kind, keys in self._of_rank:
            if kind in ("hang", "die") and int(keys.get("phase", phase)) == phase and step.startswith(keys.get("step", "")):
                while kind == "hang":
                    signal.pause()
                os.kill(os.getpid(), signal.SIGKILL)

    def corrupt(self, phase: int, payload: torch.Tensor, peer: int = -1) -> None:
        """Flips three bits in two bytes of the payload, in place, if requested."""
        import torch

        for kind, keys in self._of_rank:
            if kind == "corrupt" and int(keys.get("phase", 5)) == phase and int(keys.get("peer", peer)) == peer:
                data = payload.view(-1).view(torch.uint8)
                data[min(4711, len(data) - 2)] ^= 5
                data[-1] ^= 128

    @property
    def slowness(self) -> int:
        """How many times phase 7 does the work of each measurement."""
        return max((int(keys.get("factor", 4)) for kind, keys in self._of_rank if kind == "slow"), default=1)
