"""Does a call again operation by operation: on one rank if it needs no other rank, otherwise on all of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import FrameType

import torch

from numscope.distributed.agree import Ranks, has_group, spread
from numscope.probe import optimizer as optimizer_probe
from numscope.records.faults import ours, told
from numscope.records.finding import Culprit
from numscope.records.places import is_installed
from numscope.records.site import Phase
from numscope.replay.capture import BufferCopies, Call, RandomState, attributes_restored, put_back
from numscope.replay.compiled_graphs import HINT, backend_of, differing
from numscope.replay.fork import in_child
from numscope.replay.stages import (
    COMMUNICATES,
    ELSEWHERE,
    FINITE,
    FORWARD_FINITE,
    REPRODUCED,
    Replay,
    Stages,
    conditions,
    needs_accumulation,
    run_stages,
    some,
    untrained,
)  # fmt: skip
from numscope.replay.tape import OpRecord

NOT_WANTED = "not replayed: the watch has replay=False"
NO_FORK = (
    "not replayed: nothing of it reached training, and no process of its own can do the call again (a device, other threads, other ranks)"
)


def replay_call(
    call: Call, buffers: BufferCopies, *, backward: bool, ranks: Ranks | None = None, gave_bad: bool = False, forks: bool = False,
    saved: Collection[str] = (),
) -> Replay:  # fmt: skip
    """Replay one outermost call under the op probe, with its backward if requested, and find the culprit.

    The run is not changed: the call runs in a forked process. Where there can be none (a device, other threads, a call that all ranks do
    together), random states, buffers, gradients, attributes and training flags are restored afterwards.

    Args:
        call: captured when it began.
        buffers: copies of the model's.
        backward: also replay the backward, from the gradients that the outputs had received.
        ranks: that replay the same call at the same time. Without them no collective runs, and the replay ends with COMMUNICATES.
        gave_bad: the call returned a nan or an infinity.
        forks: in a forked process or not at all; it is not waited for long.
        saved: names of buffers that it may have made bad.

    *Cost:* one step under a dispatch mode, about 50 µs per operation; a fork.
    """

    def work(lone: bool) -> Replay:
        stages = Stages(call, buffers.names, lone, ranks, saved=saved)
        try:
            done = _placed(do_again(stages, buffers, backward), call)
            return done if ranks is not None else _compared(call, buffers, done, gave_bad)
        finally:
            stages.put_spared_back()

    if ranks is None and (done := forked(work, goes_on=forks)) is not None:
        return done
    return Replay(None, NO_FORK) if forks else work(ranks is None and spread())


def forked(work: Callable[[bool], Replay], *, goes_on: bool = False) -> Replay | None:
    """The result of work in a forked process, see ``in_child``; the work is told whether it is alone in a group of ranks.

    Returns: None if it can't be done there, as by a model that communicates with itself, for which a fork lacks the threads.
    """
    done = in_child(lambda: work(has_group()), lambda why: Replay(None, f"not reproduced: {why}"), goes_on=goes_on)
    return None if done is None or (done.status == COMMUNICATES and not spread()) else done


def do_again(stages: Stages, buffers: BufferCopies, backward: bool) -> Replay:
    """Run a call's stages from where it began; afterwards all is as it is now."""
    call, names = stages.call, stages.names
    against: Replay | None = None
    if any(tensor._version != version for tensor, version in call.versions):
        against = Replay(None, "not reproduced: an argument of the model was changed in place after the call began")
    elif stages.lone and any(needs_accumulation(p) for module in names for p in module._parameters.values() if p is not None):
        against = Replay(None, COMMUNICATES)  # FSDP2's state must not be left incomplete
    if some(against is not None, stages.ranks):
        return against or Replay(None, ELSEWHERE)
    try:
        with as_it_began(call, buffers), eager(), stages.under:
            return run_stages(stages, backward)
    finally:
        stages.put_spared_back()
        for module in names if stages.ranks is not None else ():
            if (reshard := getattr(module, "reshard", None)) is not None:
                reshard()  # FSDP2 keeps the gathered weights until backward, and the optimizer does not update them


class _Left(BaseException):
    """The user has left the prompt. Not an Exception, so that no model's ``except`` catches it."""


def stop_in_call(call: Call, buffers: BufferCopies, culprit: Culprit, *, backward: bool, show: Callable[[FrameType], None]) -> bool:
    """Do a call again in this process, and stop in front of the operation that a culprit comes from.

    Args:
        culprit: where another one is found, nothing is shown.
        show: called with the frame of the user's code that runs the operation; then the call is given up, and all is as it was.

    Returns: whether it has been shown.

    *Cost:* two replays.
    """

    def stop(frame: FrameType | None, *_: object) -> None:
        if frame is not None:
            show(frame)
            raise _Left

    first = Stages(call, buffers.names, spread(), None)
    found = do_again(first, buffers, backward).culprit
    if found is None or first.asked is None or (found.op, found.file, found.line) != (culprit.op, culprit.file, culprit.line):
        return False
    try:
        do_again(Stages(call, buffers.names, spread(), None, stop=(first.asked.index, stop)), buffers, backward)
    except _Left:
        return True
    return False


@contextlib.contextmanager
def as_it_began(call: Call, buffers: BufferCopies) -> Iterator[None]:
    """Everything is as it was when a call began; afterwards it is again as it is now."""
    before = RandomState.capture()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(attributes_restored({*buffers.names, *call.around}))
            if call.attributes is not None:
                call.attributes()
            stack.enter_context(buffers.restored(call.buffers))
            stack.enter_context(optimizer_probe.paused())
            for module, forward in call.forwards.items():
                vars(module)["forward"] = forward
            for module, weights in call.weights.items():
                put_back(module._parameters, weights)
            for module, training in zip(buffers.names, call.training, strict=False):  # modules added since then come last
                module.training = training
            call.random.restore()
            yield
    finally:
        before.restore()


def _compared(call: Call, buffers: BufferCopies, done: Replay, gave_bad: bool) -> Replay:
    """Of a compiled call that eager has done without a fault: look for it in the graphs. What the call writes, the caller restores."""
    found = done
    if gave_bad and done.culprit is not None and done.culprit.phase is Phase.BACKWARD:
        done = Replay(None, FORWARD_FINITE)  # it went on from what this forward does not give
    compiler = backend_of(call.module) if done.status in (FINITE, FORWARD_FINITE) else None
    if compiler is None:
        return found
    with as_it_began(call, buffers), conditions(call), untrained(buffers.names):
        try:
            culprit = differing(lambda: call.module(*call.args, **call.kwargs), compiler, buffers.names)
        except ours() as error:
            return replace(done, status=f"{done.status}; in the graph not looked for: {told(error)}")
    return replace(done, status=done.status + HINT) if culprit is None else Replay(culprit, REPRODUCED)


def _placed(replay: Replay, call: Call) -> Replay:
    """Add what the op probe can't know: the script's line that called the model."""
    culprit = replay.culprit
    if culprit is None:
        return replay
    callers = call.caller.resolve()
    own = [number for number, caller in enumerate(callers) if not is_installed(caller[0])]
    stack = (*callers[own[-1] if own else -1 :], *culprit.stack)  # from the script's own line on; a library's loop may lie between
    if not culprit.line and stack:  # the whole model is torch's own code, so the innermost user line is the one that called it
        file, line, _, code = stack[-1]
        culprit = replace(culprit, file=file, line=line, code=code)
    return replace(replay, culprit=replace(culprit, stack=stack))


def script_line(record: OpRecord, call: Call) -> tuple[str, int, str]:
    """The script's line that ran it: the innermost one that is not in an installed package."""
    lines = [*call.caller.resolve(), *(record.forward or record).stack.resolve()]
    file, line, _, code = next((found for found in reversed(lines) if not is_installed(found[0])), lines[-1] if lines else ("", 0, "", ""))
    return file, line, code


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as Python, because only then are there an operation and a line to name."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    with torch.compiler.set_stance("force_eager"), contextlib.nullcontext() if autograd is None else autograd._disable():
        yield
