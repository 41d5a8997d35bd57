"""Ranks that train one model together have the same settings, versions and code, and random numbers of their own."""

from __future__ import annotations

import inspect
import json
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from numscope.alerts.checks.check import EVERY, FIRST, Check, Subject, is_early
from numscope.alerts.checks.model_copies import CopiesOf
from numscope.distributed.agree import spread, watch_name
from numscope.distributed.bulletin import Bulletin
from numscope.parity.snapshot import random_states
from numscope.probe.loop_calls import LoopCall
from numscope.records.faults import suppress
from numscope.records.places import file_of, is_installed
from numscope.records.words import few, named
from numscope.summary.checksum import Checksums
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable

DRAWS = "same random numbers on ranks"
MOST_TOLD = 3  # settings in a sentence
FROZEN, SUM = "what is frozen", "the checksum of the frozen weights"
NOT_SET = "not set"
FEW = 3  # calls, by which a device has summed up weights


class RankSettings(Check):
    """Compares what should be the same on all ranks of data parallelism: optimizers' settings, the norm that gradients are clipped to,
    versions, source of the script's modules, modes, what is trained, frozen weights; and the random state of the fourth step, if each step
    draws from it. A model that is frozen as a whole, as a quantizer is that makes targets, is compared at its third call.

    Of ranks that nothing says train one model, those are compared whose parameters have the same names and shapes, and it asks.

    *Cost:* on several ranks, a note of some 1 KB at the job's store at the first steps, early ones, and each hundredth; then 5 µs
    a module and 10 µs a group of an optimizer, and the source of the script's modules and a sample of the frozen weights are read at the
    first step.
    """

    name = "settings differ on ranks"
    also = (DRAWS,)
    cheap = ("enter", "end")

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._copies = CopiesOf(subject.model, subject.wrapper, subject.probe.names)
        self._bulletin: Bulletin | None = None
        self._is_assumed = False
        self._code: dict[str, str] = {}
        self._clip: dict[str, str] = {}
        self._mode = ""  # of the step's first training call
        self._states: dict[int, str] = {}  # random states as the first steps' calls began
        self._told: set[str] = set()
        self._frozen: Checksums | None = None
        self._calls = 0  # of a model that has taken no step

    @property
    def _is_due(self) -> bool:
        return spread() and (self.subject.num in (0, FIRST - 1) or self.subject.num % EVERY == 0 or is_early(self.subject.num))

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        num = self.subject.num
        if torch.is_grad_enabled() and num < FIRST and num not in self._states and spread():
            device = next((p.device.type for p in module.parameters()), "cpu")
            self._states[num] = ":".join(map(str, random_states().get("torch" if device == "cpu" else device, ())))
        if torch.is_grad_enabled() and not self._mode and self._is_due:
            modules = list(self.subject.model.modules())
            self._mode = f"{sum(m.training for m in modules)} of {len(modules)} modules"
        if num == 0 and spread():
            self._calls += 1
            if self._calls == 1:
                whole = [p for p in self.subject.model.parameters() if not p.requires_grad and type(p.data) is Tensor]  # not a shard
                with unseen(), suppress(Unsummarizable):
                    self._frozen = Checksums(whole, sample=True) if whole and not self._copies.are_pieces else None
            if self._calls == FEW and not any(p.requires_grad for p in self.subject.model.parameters()):
                self._put()
            if self._calls > FEW:
                self.last()

    def called(self, call: LoopCall) -> None:
        if call.kind == "clip" and isinstance(bound := call.kwargs.get("clip_value", call.given(1, "max_norm")), int | float):
            self._clip = {"the limit of clipping": f"{bound:g}"}

    def end(self, closing: bool) -> None:
        if not closing and self._mode and self._is_due and not self._copies.is_joined:
            self._put()
        self._mode = ""
        self.last()

    def _put(self) -> None:
        ranks, self._is_assumed = self._copies.data_ranks()
        if len(ranks) > 1 and (self._bulletin is None or self._bulletin.ranks != ranks):
            self._bulletin = Bulletin(watch_name(self.subject.model, "settings "), ranks)
        if self._bulletin is not None and len(ranks) > 1:
            shapes = crc32(repr([(name, tuple(p.shape)) for name, p in self.subject.parameters().items()]).encode())
            told = json.dumps([shapes, dict(self._settings())])
            draws = len({*self._states.values()}) == FIRST == self.subject.num + 1
            state = self._states[FIRST - 1] if draws and not self._is_assumed else ""
            self._bulletin.put(self.subject.step, f"{crc32(told.encode())} {state}", told.encode())

    def last(self) -> None:
        bulletin = self._bulletin
        for step, num_kinds in () if bulletin is None else bulletin.look():
            assert bulletin is not None
            if num_kinds > 1:
                self._compare(step, {rank: json.loads(one) for rank, one in bulletin.details(step).items()})
            self._compare_draws(step, {rank: note.partition(" ")[2] for rank, note in bulletin.notes(step).items()})

    def _settings(self) -> Iterator[tuple[str, str]]:
        """By what each is called in a sentence."""
        if not self._code:
            own = {type(m) for m in self.subject.model.modules()}
            self._code = {"the version of torch": torch.__version__, "the version of Python": platform.python_version()}
            for kind in sorted(own, key=lambda one: one.__qualname__):
                with suppress(OSError, TypeError):  # of a prompt
                    if (file := file_of(kind)) and not is_installed(file):
                        self._code[f"the source of {kind.__qualname__}"] = f"{crc32(inspect.getsource(kind).encode()):08x}"
        yield from self._code.items()
        yield from self._clip.items()
        frozen = [name for name, p in self.subject.parameters().items() if not p.requires_grad]
        more = f" ({crc32(repr(frozen).encode()):08x})" if len(frozen) > MOST_TOLD else ""
        yield FROZEN, f"{few(frozen, MOST_TOLD) or 'nothing'}{more}"
        yield "what is in train mode", self._mode
        if self._frozen is not None and self._frozen.are_here:
            yield SUM, f"{crc32(repr(self._frozen.read()).encode()):08x}"
        for optimizer in self.subject.optimizers.living:
            for i, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if key != "params" and _is_told(value):
                        whose = f"{type(optimizer).__name__}" + (f", group {i}" if len(optimizer.param_groups) > 1 else "")
                        yield f"{key} of {whose}", str(value.item() if isinstance(value, Tensor) and value.numel() == 1 else value)

    def _compare(self, step: int, told: Mapping[int, Any]) -> None:
        by_shapes: dict[int, list[int]] = defaultdict(list)
        for rank, (shapes, _) in told.items():
            by_shapes[shapes].append(rank)
        for ranks in by_shapes.values():
            settings = {rank: told[rank][1] for rank in ranks}
            sides = {key: _sides({rank: settings[rank].get(key, NOT_SET) for rank in ranks}) for own in settings.values() for key in own}
            news = {key: each for key, each in sides.items() if len(each) > 1 and key not in self._told}
            if len(sides[FROZEN]) > 1 or any(value == NOT_SET for value, _ in news.get(SUM, ())):  # a device may not have summed up yet
                news.pop(SUM, None)
            self._told.update(news)
            if news:
                parts = [f"{key} is {' and '.join(f'{value} on {named(at)}' for value, at in each)}" for key, each in news.items()]
                text = f"Ranks train one model with different settings: {few(parts, MOST_TOLD, '; ')}."
                about = {"settings": {key: {value: at for value, at in each} for key, each in news.items()}}
                advice = "Give all ranks the same: read settings once, and broadcast what is computed from a rank's own data."
                self.say(text, advice, again=True, evidence=about, asks=self._is_assumed, step=step)

    def _compare_draws(self, step: int, states: Mapping[int, str]) -> None:
        for ranks in [at for state, at in _sides(states) if state and len(at) > 1]:
            text = f"{named(ranks).capitalize()} have the same random state as step {step} begins, and draw from it in each step: "
            advice = "Seed each rank by itself once the model is made: torch.manual_seed(seed + rank)."
            self.say(
                f"{text}dropout, noise and augmentations are the same on each.",
                advice,
                rule=DRAWS,
                evidence={"ranks": ranks},
                asks=True,
                step=step,
            )


def _is_told(value: Any) -> bool:
    """Whether a setting says the same wherever it is equal; others have an address, or lie on a device."""
    if isinstance(value, Tensor):
        return value.is_cpu and value.numel() == 1
    return all(map(_is_told, value)) if isinstance(value, tuple | list) else value is None or isinstance(value, bool | int | float | str)


def _sides(values: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Each value with the ranks that have it."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        found[value].append(rank)
    return [*found.items()]
