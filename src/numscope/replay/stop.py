"""Does a call again in this process, and stops in front of the operation at fault, for a prompt in live frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType

from torch import UntypedStorage, nn

from numscope.distributed.agree import spread
from numscope.records.finding import Culprit
from numscope.replay.call import as_it_began, eager, put_spared_back, what_hinders
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.stages import Stages, run_stages


class Left(BaseException):
    """The user has left the prompt. Not an Exception, so that no model's ``except`` catches it."""


def stop_in_call(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    culprit: Culprit,
    *,
    backward: bool,
    show: Callable[[FrameType], None],
) -> bool:
    """Do a call again in this process, and stop in front of the operation that a culprit comes from.

    Args:
        culprit: where another one is found, nothing is shown.
        show: called with the frame of the user's code that runs the operation; then the call is given up, and all is as it was.

    Returns: whether it has been shown.

    *Cost:* two replays.
    """
    if what_hinders(call, names, spread()) is not None:
        return False
    shown: list[FrameType] = []

    def stop(frame: FrameType) -> None:
        shown.append(frame)
        show(frame)
        raise Left

    at: int | None = None
    for _ in range(2):
        spared: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
        stages = Stages(call, names, spread(), None, spared, stop=None if at is None else (at, stop))
        try:
            with as_it_began(call, names, buffers), eager():
                found = run_stages(stages, backward).culprit
        except Left:
            return True
        finally:
            put_spared_back(spared)
        if found is None or stages.asked is None or (found.op, found.file, found.line) != (culprit.op, culprit.file, culprit.line):
            return False
        at = stages.asked.index
    return bool(shown)
