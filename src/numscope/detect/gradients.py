"""Asks of each autograd.Function that a step runs whether its backward is the derivative of its forward."""

from __future__ import annotations

from collections.abc import Mapping

from numscope.config.options import how_to_set
from numscope.detect.asked import Answer, AskedCalls, at, facts
from numscope.records.alert import Alert
from numscope.records.places import place
from numscope.replay.function_gradients import WrongGradient, examine, examined

WRONG_GRADIENT = "wrong gradient"


def ask(subject: AskedCalls) -> Answer:
    """One alert for each module that runs a wrong one."""
    found, undone = dict[str, list[WrongGradient]](), ""
    of_calls = (examine(call, subject.names, subject.buffers) for call in subject.calls)
    for several, why in (*of_calls, examined(subject.functions)):
        undone = undone or why
        for wrong in several:
            found.setdefault(wrong.module, []).append(wrong)
    alerts = [_alert(subject.step, name, {(one.function, one.operand): one for one in all_}) for name, all_ in found.items()]
    return Answer(alerts, (undone,) if undone else ())


def _alert(step: int, module: str, several: Mapping[tuple[str, str], WrongGradient]) -> Alert:
    said = []
    for wrong in several.values():
        backward = f" ({place(*wrong.backward)})" if wrong.backward[0] else ""
        said.append(f"{wrong.function}'s backward{backward} gives {wrong.operand} a gradient that is {wrong.kind}.")
    first = next(iter(several.values()))
    line = first.file, first.line, first.code
    text = f"By differences of its forward in {first.dtype}{at(line) and ', applied'}{at(line)}: {' '.join(said)}"
    advice = f"Compare it by torch.autograd.gradcheck. If it is meant so (a surrogate gradient): {how_to_set(WRONG_GRADIENT, False)}."
    return Alert(step, WRONG_GRADIENT, module, "", None, None, text, advice, facts("", line), asks=True)
