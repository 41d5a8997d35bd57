"""Does a compiled call once more compiled, and once in eager mode beside float64: which result is wrong, by which part of the compiler."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from numscope.detect.asked import Answer, AskedCalls, at, facts, share
from numscope.detect.float64 import WithShadows
from numscope.distributed.agree import has_group
from numscope.records.alert import Alert
from numscope.records.site import Phase
from numscope.replay.call import do_again
from numscope.replay.capture import Call
from numscope.replay.compiled_graphs import backend_of
from numscope.replay.inductor import Looked, is_worse, place_of
from numscope.replay.shadows import distance
from numscope.replay.stages import FINITE, FORWARD_FINITE, Stages

MISCOMPILED = "compiled code differs"
_NOT_DONE = "compiled code was not compared with eager: "
_SMALL = 1e-3  # of the largest gradient: what is off by less of it does not matter
# Each does what the one before does, and one part more of the compiler.
_PARTS = {"eager": "TorchDynamo", "aot_eager": "AOTAutograd", "aot_eager_decomp_partition": "a decomposition"}


def ask(subject: AskedCalls) -> Answer:
    """Whether calls give compiled what they give in eager mode. *Cost:* some twelve times the call."""
    if "torch._dynamo" not in sys.modules:
        return Answer(undone=(f"{_NOT_DONE}nothing is compiled",))
    answers = [_asked(call, subject, False) for call in subject.calls]
    return Answer([a for a in answers if isinstance(a, Alert)], [f"{_NOT_DONE}{why}" for why in answers if isinstance(why, str)])


def look_closer(subject: AskedCalls) -> Answer:
    """The same, and which part of the compiler is at fault, and which operation. *Cost:* compiles their graphs up to five times."""
    answers = [_asked(call, subject, True) for call in subject.calls]
    return Answer([a for a in answers if isinstance(a, Alert)], [f"no closer look: {why}" for why in answers if isinstance(why, str)])


def _asked(call: Call, subject: AskedCalls, closer: bool) -> Alert | str | None:
    """An alert about the call, or the reason why it was not asked; None where it is right."""
    beside, with_backward = WithShadows(call, subject), any(call.gradients)
    if (status := do_again(beside, subject.buffers, with_backward).status) not in (FINITE, FORWARD_FINITE):
        return status
    inductor = sys.modules.get("torch._inductor.config")
    if beside.shadows.drew and inductor is not None and not inductor.fallback_random:
        return "its random numbers are others than eager's (torch._inductor.config.fallback_random = True makes them the same)"

    def wrong(backend: Any) -> tuple[str, Tensor, Tensor] | str | None:
        compiled = _Compiled(call, subject.names, backend)
        status = do_again(compiled, subject.buffers, with_backward).status
        return _first(compiled, beside) if status in (FINITE, FORWARD_FINITE) else status

    found = wrong(None)
    if found is None or isinstance(found, str):
        return found
    what, compiled, own = found
    part, node, phase, line = "", None, Phase.FORWARD, ("", 0, "")
    if closer:
        name = getattr(backend := backend_of(call.module), "compiler_name", "") or getattr(backend, "__name__", "") or "inductor"
        part = next((part for backend, part in _PARTS.items() if isinstance(wrong(backend), tuple)), f"the backend {name}")
        if part in ("the backend inductor", "the backend compile_fx"):
            part, (node, phase) = "Inductor", _looked_at(wrong)
    right = beside.shadows.of(own)
    error, op = distance(compiled, right), "" if node is None else node._pretty_print_target(node.target)
    text = f"{what} is off from float64 by {share(error)} compiled{part and ' by '}{part}, by {share(distance(own, right))} in eager mode"
    if node is not None:
        line = place_of(node)
        text += f"; the first result of a graph that is wrong is that of {op} ({phase.value}){at(line)}"
    mend = f"Look at {part}" if part.startswith("the backend") else "Report it to the compiler's authors"
    advice = f"{mend}; until it is mended keep that code out of the graph, with torch.compiler.disable."
    return Alert(subject.step, MISCOMPILED, call.name, "", error, None, f"{text}.", advice, facts(op, line, part=part))


def _looked_at(run: Callable[[Any], object]) -> tuple[Node | None, Phase]:
    """The operation that Inductor gets wrong; where none is with a look at each, the first of those whose results a graph gives."""
    for looked in Looked(each=True), Looked(each=False):
        run(looked)
        if looked.found is not None:
            return looked.found[0], Phase.BACKWARD if looked.found[1] else Phase.FORWARD
    return None, Phase.FORWARD


def _first(compiled: _Compiled, beside: WithShadows) -> tuple[str, Tensor, Tensor] | None:
    """The first result that is wrong, as it is compiled and in eager mode."""
    of = beside.shadows.of
    for ((_, slot), one), (_, own) in zip(compiled.outputs, beside.outputs, strict=False):
        if own.is_floating_point() and own.numel() and one.shape == own.shape and is_worse(one, own, of(own)):
            return slot, one, own
    smallest = _SMALL * max((float(of(g).norm()) for _, g, _ in beside.found), default=0.0)
    for name, own, _ in reversed(beside.found):
        gradient = compiled.gradients.get(name)
        if gradient is not None and is_worse(gradient, own, of(own), smallest):
            return f"the gradient of {name}", gradient, own
    return None


@contextlib.contextmanager
def _compiled_by(backend: Any) -> Iterator[None]:
    with torch.compiler.set_stance("default", force_backend=backend):  # made here, since it takes effect as it is made
        yield


class _Compiled(Stages):
    """A call's forward and backward as they ran, what is compiled compiled; nothing of ours looks on.

    Args:
        backend: compiles it anew; None: what has compiled it.
    """

    seeks = False

    def __init__(self, call: Call, names: Mapping[nn.Module, str], backend: Any) -> None:
        super().__init__(call, names, has_group(), None)
        self.under = _compiled_by(backend)
        self.gradients: dict[str, Tensor] = {}

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        yield

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        self.gradients |= {name: g for (name, _), g in zip(self.parameters, gradients, strict=True) if g is not None}
