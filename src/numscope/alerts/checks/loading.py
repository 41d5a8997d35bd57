"""A module loads tensors, they reach it, and what else a checkpoint has is loaded too."""

from __future__ import annotations

import gc
import itertools
import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from numscope.alerts.checks.check import OCCASIONS, Check, ScriptLine, Subject, current_line
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.loop_calls import LoopCall

OWN = "own tensors loaded"
MOST_WALKS = 8  # in search of checkpoints: they are loaded at first, and target networks again and again

log = logging.getLogger("numscope")


class _Verdict(NamedTuple):
    rule: str
    text: str
    advice: str
    line: ScriptLine
    asks: bool


_walks = itertools.count()
# Of checkpoints whose tensors were loaded, by what else they hold and the module that got tensors: its key, a scaler's scale, and the line.
saved: dict[tuple[str, weakref.ref[nn.Module]], tuple[str, float, ScriptLine]] = {}
_verdicts: dict[tuple[str, str], _Verdict | None] = {}  # by text and line, of this process: the first check that is asked says it


class Loads(optimizer_probe.StepListener):
    """Judges each ``load_state_dict``, of modules that nobody watches too: a checkpoint is mostly loaded before the first step.

    An error of its own ends it, and never reaches the script.

    *Cost:* about 1 µs a tensor that is loaded.
    """

    closed = False
    _in_place = False  # a checkpoint was loaded into tensors, which a module may be given then

    def failed(self, error: Exception) -> None:
        self.closed = True
        log.error("numscope: loads are looked at no more, after an error of its own: %s: %s", type(error).__name__, error)

    @optimizer_probe.guarded()
    def called(self, call: LoopCall) -> None:
        if call.kind != "load":
            return
        given, result = call.args
        module = call.target
        self._in_place = self._in_place or module is None
        if not isinstance(given, Mapping):
            return
        _hold(given, module)
        here = {name: tensor for tensors in (module.named_parameters(), module.named_buffers()) for name, tensor in tensors}
        missing, unexpected = ({*getattr(result, names, ())} for names in ("missing_keys", "unexpected_keys"))
        name = f"{type(module).__name__}.load_state_dict"
        if missing and (unexpected or not given):  # a filter of keys that match may leave none
            self._judge_names(name, here, given, [key for key in here if key in missing], unexpected)
        elif not (call.kwargs.get("assign") or self._in_place) and (loaded := [key for key in given if key in here and here[key].numel()]):
            if all(isinstance(given[key], Tensor) and _is_same(given[key], here[key]) for key in loaded):
                line = current_line()
                text = f"{name}{line.at()} is given the module's own tensors: nothing changes."
                advice = "state_dict() does not copy: keep {k: v.clone() for k, v in m.state_dict().items()}, or give the other module's."
                _note(OWN, text, advice, line, asks=True)

    def _judge_names(
        self,
        name: str,
        here: Mapping[str, Tensor],
        given: Mapping[str, Any],
        missing: Sequence[str],
        unexpected: set[str],
    ) -> None:
        others: dict[str, str] = {end: key for key in unexpected for end in _ends(key)}
        pairs = [(key, other) for key in missing for other in [next((others[end] for end in _ends(key) if end in others), "")]
                 if other and getattr(given[other], "shape", None) == here[key].shape]  # fmt: skip
        is_empty = len(missing) == len(here) or not given
        if (not is_empty and 2 * len(pairs) < len(missing)) or not missing:
            return
        line = current_line()
        text = f"{name}{line.at()} has loaded {len(here) - len(missing)} of {len(here)} tensors"
        if pairs:
            text += f": {len(pairs)} of the others are there under other names, such as {pairs[0][1]} for {pairs[0][0]}."
            advice = "Rename the keys before loading; strict=True refuses keys that do not match."
        else:
            inner = next((key for key, value in given.items() if isinstance(value, Mapping)), "")
            names = f"no key matches, such as {min(map(str, unexpected))} where {missing[0]} is wanted" if unexpected else "none was given"
            text += f": {names}."
            advice = f"Load what is in {inner!r}." if inner else "strict=True refuses keys that do not match."
        _note(Loading.name, text, advice, line, asks=not is_empty)


class Loading(Check):
    """Says what ``Loads`` has found.

    *Cost:* a look at an empty dictionary at each call.
    """

    name = "nothing is loaded"
    also = (OWN,)
    cheap = OCCASIONS

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._loads = Loads()
        optimizer_probe.listen(self._loads)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for key in [key for key, verdict in _verdicts.items() if verdict is not None]:
            verdict, _verdicts[key] = _verdicts[key], None
            assert verdict is not None
            self.say(verdict.text, verdict.advice, rule=verdict.rule, line=verdict.line, asks=verdict.asks, again=True)

    def last(self) -> None:
        self.enter(self.subject.model, (), {})

    def close(self) -> None:
        optimizer_probe.unlisten(self._loads)


def _hold(given: Mapping[str, Any], module: nn.Module) -> None:
    """Notes what else is in a checkpoint that holds what is loaded. *Cost:* a walk over all objects, at the first ``MOST_WALKS`` loads."""
    for held in gc.get_referrers(given) if next(_walks) < MOST_WALKS else ():
        if type(held) is dict:
            states = [(str(key), each) for key, each in held.items() if isinstance(each, Mapping)]
            keys = {"optimizer": [key for key, each in states if "param_groups" in each and each.get("state")]}
            keys["scheduler"] = [key for key, each in states if "_step_count" in each and each.get("last_epoch")]
            scales = {key: each["scale"] for key, each in states if "growth_factor" in each and isinstance(each.get("scale"), float)}
            keys["scaler"], scale = [*scales], next(iter(scales.values()), 0.0)
            saved.update({(kind, weakref.ref(module)): (found[0], scale, current_line()) for kind, found in keys.items() if found})


def _note(rule: str, text: str, advice: str, line: ScriptLine, asks: bool) -> None:
    _verdicts.setdefault((text, line.short), _Verdict(rule, text, advice, line, asks))


def _ends(key: str) -> Iterable[str]:
    """``a.b.weight``, ``b.weight``: the ends of a name, of two parts at least."""
    parts = str(key).split(".")
    return [".".join(parts[first:]) for first in range(max(len(parts) - 1, 1))]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.device.type != "meta" and one.device == other.device and one.data_ptr() == other.data_ptr() != 0)
