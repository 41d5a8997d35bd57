"""Replays a call operation by operation: on one rank if it needs no other rank, otherwise on all of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor, UntypedStorage, nn

from numscope.distributed.agree import Ranks, has_group, spread
from numscope.probe import optimizer as optimizer_probe
from numscope.records.faults import ours
from numscope.records.places import is_installed
from numscope.records.site import Phase
from numscope.replay.capture import BufferCopies, Call, RandomState, attributes_restored, put_back
from numscope.replay.fork import in_child
from numscope.replay.graph import HINT, backend_of, differing
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
)

NOT_WANTED = "not replayed: the watch has replay=False"
NO_FORK = (
    "not replayed: nothing of it reached training, and no process of its own can do the call again (a device, other threads, other ranks)"
)


def replay_call(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    *,
    backward: bool,
    ranks: Ranks | None = None,
    gave_bad: bool = False,
    forks: bool = False,
    saved: Collection[str] = (),
) -> Replay:
    """Replay one outermost call under the op probe, with its backward if requested, and find the culprit.

    The run is not changed: the call runs in a forked process. Where there can be none (a device, other threads, a call that all ranks do
    together), random states, buffers, gradients, attributes and training flags are restored afterwards.

    Args:
        call: captured when it began.
        names: the model's modules and their names.
        buffers: holds copies of the model's buffers.
        backward: also replay the backward, from the gradients that the outputs had received.
        ranks: that replay the same call at the same time. Without them no collective runs, and the replay ends with COMMUNICATES.
        gave_bad: the call returned a nan or an infinity.
        forks: in a forked process or not at all; it is not waited for long.
        saved: names of buffers that it may have made bad.

    *Cost:* one step under a dispatch mode, about 50 µs per operation; a fork.
    """
    if ranks is None:
        done = in_child(
            lambda: _replay(call, names, buffers, backward, None, gave_bad, saved, lone=has_group()), not_reproduced, goes_on=forks
        )
        if done is not None and (done.status != COMMUNICATES or spread()):
            return done  # else it communicates with itself, for which a fork lacks the threads
    if forks:
        return Replay(None, NO_FORK)
    return _replay(call, names, buffers, backward, ranks, gave_bad, saved, lone=ranks is None and spread())


def what_hinders(call: Call, names: Mapping[nn.Module, str], lone: bool) -> Replay | None:
    """Why a call can't be done again, as the result of a replay; None if it can. ``lone``: other ranks do not do it too."""
    if any(tensor._version != version for tensor, version in call.versions):
        return Replay(None, "not reproduced: an argument of the model was changed in place after the call began")
    if lone and any(map(needs_accumulation, parameters_of(names))):
        return Replay(None, COMMUNICATES)  # FSDP2's state must not be left incomplete
    return None


def parameters_of(names: Mapping[nn.Module, str]) -> Iterator[Tensor]:
    """The parameters of modules, as often as they have them."""
    return (p for module in names for p in module._parameters.values() if p is not None)


def not_reproduced(why: str) -> Replay:
    """The result of a replay whose process has failed."""
    return Replay(None, f"not reproduced: {why}")


def _replay(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    backward: bool,
    ranks: Ranks | None,
    gave_bad: bool,
    saved: Collection[str],
    *,
    lone: bool,
) -> Replay:
    against = what_hinders(call, names, lone)
    if some(against is not None, ranks):
        return against or Replay(None, ELSEWHERE)
    spared: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
    try:
        with as_it_began(call, names, buffers), eager():
            done = _placed(run_stages(Stages(call, names, lone, ranks, spared, saved=saved), backward), call)
        put_spared_back(spared)
        return done if ranks is not None else _compared(call, names, buffers, done, gave_bad)
    finally:
        put_spared_back(spared)
        if ranks is not None:
            for module in names:
                if (reshard := getattr(module, "reshard", None)) is not None:
                    reshard()  # FSDP2 keeps the gathered weights until backward, and the optimizer does not update them


@contextlib.contextmanager
def as_it_began(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies) -> Iterator[None]:
    """Everything is as it was when a call began; afterwards it is again as it is now."""
    before = RandomState.capture()
    try:
        with attributes_restored({*names, *call.around}), buffers.restored(call.buffers), optimizer_probe.paused():
            for module, forward in call.forwards.items():
                vars(module)["forward"] = forward
            for module, weights in call.weights.items():
                put_back(module._parameters, weights)
            for module, training in zip(names, call.training, strict=False):  # modules added since then come last
                module.training = training
            call.random.restore()
            yield
    finally:
        before.restore()


def put_spared_back(spared: Mapping[int, tuple[UntypedStorage, UntypedStorage]]) -> None:
    """Give memory that a replay has written in place the content that it had."""
    for storage, content in spared.values():
        if storage.nbytes() == content.nbytes():  # else it was freed, as what FSDP2 gathers is
            storage.copy_(content)


def _compared(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies, done: Replay, gave_bad: bool) -> Replay:
    """Of a compiled call that eager has done without a fault: look for it in the graphs. What the call writes, the caller restores."""
    found = done
    if gave_bad and done.culprit is not None and done.culprit.phase is Phase.BACKWARD:
        done = Replay(None, FORWARD_FINITE)  # it went on from what this forward does not give
    compiler = backend_of(call.module) if done.status in (FINITE, FORWARD_FINITE) else None
    if compiler is None:
        return found
    with as_it_began(call, names, buffers), conditions(call), untrained(names):
        try:
            culprit = differing(lambda: call.module(*call.args, **call.kwargs), compiler, names)
        except ours() as error:
            return replace(done, status=f"{done.status}; in the graph not looked for: {type(error).__name__}: {error}")
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


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as Python, because only then are there an operation and a line to name."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    with torch.compiler.set_stance("force_eager"), contextlib.nullcontext() if autograd is None else autograd._disable():
        yield
