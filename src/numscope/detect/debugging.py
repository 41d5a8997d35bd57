"""At a finding, a prompt in the frame that ran the operation at fault.

The frames of a model's call are gone by the time its step is judged, so the call is done again and stopped in front of the operation. Code
outside the models can't be done again: its frames were kept as it ran.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

from numscope.detect.evidence import Evidence
from numscope.probe import optimizer as optimizer_probe
from numscope.records.faults import ours, told
from numscope.records.finding import Culprit, Finding
from numscope.records.site import Phase
from numscope.records.words import escape
from numscope.replay.call import stop_in_call
from numscope.replay.capture import RandomState
from numscope.replay.culprit import find, pending_states
from numscope.replay.prompt import Entry, prompt
from numscope.replay.stack import user_frames
from numscope.report.stderr import has_terminal, say

_KEYS = "up, down, list and p x work; c or q goes on."


def stop(finding: Finding, evidence: Sequence[Evidence], debugger: str, error: BaseException | None = None) -> None:
    """Open the prompt, or say why there is none, an error of ours too: the finding has been told.

    Args:
        evidence: of the watched models.
        debugger: the prompt's class, "" for Python's own.
        error: what ends the script, whose frames are those of its traceback.
    """
    try:
        _open(finding, evidence, debugger, error)
    except ours() as fault:
        say(f"numscope: --pdb: {told(fault)}")


def _open(finding: Finding, evidence: Sequence[Evidence], debugger: str, error: BaseException | None) -> None:
    culprit = finding.culprit
    if not has_terminal():
        return say("numscope: --pdb: no prompt, because stdin is not a terminal here: it is redirected, or this is a child process.")
    if culprit is None:
        return say(f"numscope: --pdb: no prompt, because no operation was found: {escape(finding.replay)}")
    outer = user_frames(sys._getframe(1)) if error is None else _of_traceback(error)
    with optimizer_probe.paused():
        if any(_outside(one, culprit, debugger, outer) or _in_call(one, culprit, debugger, outer) for one in evidence):
            return None
    why = "an optimizer's update is done by its own code" if culprit.phase is Phase.OPTIMIZER else "the operation could not be run again"
    if not outer:
        return say(f"numscope: --pdb: no prompt, because {why}, and no frame of the script is left.")
    _ask(outer, debugger, f"the script stands here; {why}, so there is no frame of {culprit.op}.")
    return None


def _in_call(evidence: Evidence, culprit: Culprit, debugger: str, outer: Sequence[Entry]) -> bool:
    def show(frame: FrameType) -> None:
        known = {id(entry[0]) for entry in outer}
        inner = [entry for entry in user_frames(frame) if id(entry[0]) not in known]
        what = f"just before {culprit.op}" if culprit.phase is not Phase.BACKWARD else f"whose backward ({culprit.op}) is at fault"
        said = f"{what}.\nThis is the bad call done again: its inputs, weights and random numbers are as they were."
        _ask([*outer, *inner], debugger, said, len(outer))

    for call in reversed(evidence.calls) if evidence.replays else ():
        backward = culprit.phase is Phase.BACKWARD or call.had_backward
        if stop_in_call(call, evidence.buffers, culprit, backward=backward, show=show):
            return True
    return False


def _outside(evidence: Evidence, culprit: Culprit, debugger: str, outer: Sequence[Entry]) -> bool:
    tape, rows = evidence.outside.tape, evidence.outside.ledger
    given = evidence.outside.states([t for call in evidence.calls for _, t in call.given])
    for states in (evidence.roots, evidence.backward, given, pending_states(tape, rows)):
        found, record = find(tape, states, rows)
        if found is None or record is None or (found.op, found.file, found.line) != (culprit.op, culprit.file, culprit.line):
            continue
        if record.frame is None:
            return False
        entries = user_frames(record.frame)
        entries[-1] = (record.frame, culprit.line)
        alive = any(frame is record.frame for frame, _ in outer)
        whose = "is still at work: its variables are as they are now" if alive else "has returned: its variables are as it left them"
        _ask(entries, debugger, f"which ran {culprit.op} and {whose}.")
        return True
    return False


def _ask(entries: Sequence[Entry], debugger: str, what: str, num_outer: int = 0) -> None:
    frame, line = entries[-1]
    code = frame.f_code
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    above = "\nFrames further up are the script's own, which stand where the fault was noticed." if num_outer else ""
    say(f"\nnumscope: --pdb: in {escape(f'{name}, {code.co_filename}:{line}')}, {what}{above}\n{_KEYS}")
    before = RandomState.capture()
    try:
        prompt(entries, debugger)
    finally:
        before.restore()  # a run that only warns goes on


def _of_traceback(error: BaseException) -> list[Entry]:
    trace, found = error.__traceback__, []
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    users = {id(frame) for frame, _ in found if user_frames(frame)[-1:] and user_frames(frame)[-1][0] is frame}
    return [entry for entry in found if id(entry[0]) in users]
