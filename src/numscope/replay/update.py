"""Replays an optimizer's step, operation by operation, from the state that it left behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from numscope.distributed.agree import has_group, spread
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.calls import heard
from numscope.records.faults import ours
from numscope.records.finding import Culprit
from numscope.records.site import Phase
from numscope.replay.call import eager, forked
from numscope.replay.capture import RandomState
from numscope.replay.culprit import find_culprit
from numscope.replay.op import Communicates
from numscope.replay.operation import full_probe
from numscope.replay.stages import COMMUNICATES, REPRODUCED, Replay, nonfinite
from numscope.replay.tape import OpTape, Rewritten
from numscope.summary.ledger import Ledger

_REDONE = "Weights and states from before the step are gone: it was done again on those that it left, which have no numbers below."


def replay_optimizer(optimizer: Optimizer, names: Mapping[int, str]) -> Replay:
    """Replay an optimizer's step under the op probe, from the state that it left behind.

    The weights from before the step are gone, so non-finite elements are set to zero. An update that is bad because of its state and
    gradients (a zero denominator, an overflowed square, a non-finite rate) is bad again. Weights, state and gradients are restored exactly.

    Args:
        optimizer: its parameters still have the gradients of the bad step.
        names: names of parameters by id.

    *Cost:* a copy of weights and state during the replay; a fork where that is possible.
    """
    done = forked(lambda lone: _replay(optimizer, names, lone))
    return _replay(optimizer, names, spread()) if done is None else done  # alone in its group, it may communicate


def failed_operation(optimizer: Optimizer, names: Mapping[int, str], culprit: Culprit) -> object:
    """The operation at fault of an optimizer's step, done again from the state that it left behind, or why it can't be done alone; None: it
    does not fail again."""
    tape = OpTape()
    _replay(optimizer, names, has_group(), tape=tape)
    return next((record.operation for record in tape.records if record.op == culprit.op and record.operation is not None), None)


def foresee_update(optimizer: Optimizer, names: Mapping[int, str]) -> Replay | None:
    """Take an optimizer's step in a forked process before it is taken here. None: there can be no such process."""
    return forked(lambda lone: _replay(optimizer, names, lone, is_past=False))


def _replay(optimizer: Optimizer, names: Mapping[int, str], lone: bool, *, is_past: bool = True, tape: OpTape | None = None) -> Replay:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [(p, p.detach().clone(), None if p.grad is None else p.grad.detach().clone()) for p in params]
    state = {p: dict(s) if isinstance(s, dict) else s for p, s in optimizer.state.items()}
    kept_state = [(t, t.detach().clone()) for s in state.values() for _, t in walk.tensors(s, "state")]
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    random_state = RandomState.capture()
    slots = {id(g): f"gradient of {names[id(p)]}" for p in params if (g := p.grad) is not None and id(p) in names}
    for p, s in state.items():
        for key, value in s.items() if isinstance(s, dict) else ():
            slots |= {id(t): f"{slot} of {names.get(id(p), 'a parameter')}" for slot, t in walk.tensors(value, str(key))}
    slots |= names
    written = Rewritten(frozenset(slots.values()) - {slots[id(p.grad)] for p in params if id(p.grad) in slots}, _REDONE)
    tape, rows = OpTape() if tape is None else tape, Ledger()
    tape.rewritten = written if is_past else None
    status = "not reproduced: the optimizer's step was finite the second time"
    culprit: Culprit | None = None
    try:
        with torch.no_grad(), optimizer_probe.paused(), eager():
            for value in (*params, *optimizer.state.values()) if is_past else ():
                _make_finite(value)
            with heard(), full_probe(tape, rows, phase=Phase.OPTIMIZER, names=slots, lone=lone):
                optimizer.step()
            rows.read()
            bad = [p.detach() for p in params if nonfinite(p)]
            bad += [t for s in optimizer.state.values() for _, t in walk.tensors(s, "state") if nonfinite(t)]
            culprit = find_culprit(tape, bad, rows) if bad else None
            if culprit is not None:
                status = REPRODUCED
    except Communicates:
        status = COMMUNICATES
    except ours() as error:
        status = f"not reproduced: the optimizer's second step raised {type(error).__name__}: {error}"
    finally:
        with torch.no_grad():
            for p, value, gradient in kept:
                p.detach().copy_(value)
                if gradient is not None and p.grad is not None:
                    p.grad.copy_(gradient)
            for tensor, value in kept_state:
                tensor.detach().copy_(value)
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group.update(values)
        random_state.restore()
    return Replay(culprit, status)


def _make_finite(value: Any) -> None:
    for _, tensor in walk.tensors(value, "state"):
        if tensor.is_floating_point():
            torch.nan_to_num_(getattr(tensor, "_local_tensor", tensor).detach(), nan=0.0, posinf=0.0, neginf=0.0)
