"""Plants faults in the doctor's torch processes. Python runs this file when it starts, if this folder is in PYTHONPATH.

``NUMSCOPE_TEST_FAULT`` holds the faults, several separated by ``;``:

corrupt:rank=1            flips bits in what rank 1 sends in phase 5; with peer=2 only to rank 2; with phase=6 in its results there
slow:rank=2,factor=4      repeats the work of each measurement of phase 7 four times
hang:phase=5,rank=1       waits forever in that phase; with step=recv in the first step whose name starts so
die:phase=6,rank=0        ends by SIGKILL, likewise
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from numscope.doctor.child.session import ChildSession

FAULT = "NUMSCOPE_TEST_FAULT"
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

    def corrupt(self, phase: int, payload: torch.Tensor, peer: int = -1) -> torch.Tensor:
        """Flips three bits in two bytes of the payload, in place, if requested; returns the payload."""
        import torch

        for kind, keys in self._of_rank:
            if kind == "corrupt" and int(keys.get("phase", 5)) == phase and int(keys.get("peer", peer)) == peer:
                data = payload.view(-1).view(torch.uint8)
                data[min(4711, len(data) - 2)] ^= 5
                data[-1] ^= 128
        return payload

    @property
    def slowness(self) -> int:
        """How many times phase 7 does the work of each measurement."""
        return max((int(keys.get("factor", 4)) for kind, keys in self._of_rank if kind == "slow"), default=1)


def plant(text: str) -> None:
    """Wraps the child's steps and its work, so that the faults strike there."""
    from numscope.doctor.child.reporting import Report

    step, strike = Report.step, Strike(text)

    @contextlib.contextmanager
    def step_with_faults(report: Report, what: str) -> Iterator[None]:
        with step(report, what):
            strike(what)
            yield
        if what == "import torch":
            strike.wrap_phases()  # not before: it needs torch

    Report.step = step_with_faults  # type: ignore[method-assign]


class Strike:
    """The faults of this process, whose rank and phase become known when a phase begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._faults = Faults("", 0)
        self._rank = self._phase = -1

    def __call__(self, what: str) -> None:
        self._faults.strike(self._phase, what)

    def wrap_phases(self) -> None:
        """Has the phases send corrupted payloads, receive corrupted results, and work slowly, as requested."""
        from numscope.doctor.child import backend, collectives, compute, pairs
        from numscope.doctor.child.collectives import Exercise

        pattern, prepare, measure = pairs.pattern, Exercise.prepare, compute._time

        def run_with_faults(run: Callable[..., None], phase: int, session: ChildSession, arguments: Any) -> None:
            self._faults, self._rank, self._phase = Faults(self._text, session.rank), session.rank, phase
            run(session, arguments)

        def pattern_with_faults(num_bytes: int, kind: str, sender: int, receiver: int, size: int) -> torch.Tensor:
            payload = pattern(num_bytes, kind, sender, receiver, size)
            return self._faults.corrupt(5, payload, receiver) if sender == self._rank else payload

        def prepare_with_faults(exercise: Exercise, *of: Any) -> Callable[[], torch.Tensor | None]:
            work = prepare(exercise, *of)

            def worked() -> torch.Tensor | None:
                result = work()
                return None if result is None else self._faults.corrupt(6, result)

            return worked

        def measure_with_faults(function: Callable[[], object], device: torch.device) -> float:
            return measure(lambda: [function() for _ in range(self._faults.slowness)], device)

        for phase, module in ((4, backend), (5, pairs), (6, collectives), (7, compute)):
            module.run = functools.partial(run_with_faults, module.run, phase)  # type: ignore[attr-defined]
        pairs.pattern = pattern_with_faults  # type: ignore[assignment]
        Exercise.prepare = prepare_with_faults  # type: ignore[method-assign]
        compute._time = measure_with_faults


if "numscope.doctor.child" in sys.orig_argv and FAULT in os.environ:
    plant(os.environ[FAULT])
