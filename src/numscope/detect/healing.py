"""Remedies that stay on (``on_nonfinite="heal"``), on all ranks: a module that a trial has cured computes in float32 from then on, or one
of its lines gives a function another operand."""

from __future__ import annotations

import json
import linecache
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from numscope.config.options import WatchOptions
from numscope.detect.at_line import AtLine, known, stay
from numscope.detect.cures import remedy_of, tried_together
from numscope.detect.evidence import Evidence
from numscope.detect.written_remedy import in_own_words
from numscope.distributed.agree import Ranks
from numscope.precision.high_precision import HighPrecisionForward, high_precision
from numscope.probe.hook import can_be_hooked
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import MAX_JSON_BYTES, read_json
from numscope.records.finding import Culprit, Finding
from numscope.records.places import place
from numscope.records.words import escape
from numscope.replay.tape import plain_name

log = logging.getLogger("numscope")

FILE = "heal.json"  # in the run's folder


@dataclass(frozen=True, slots=True)
class KeptRemedy:
    """A remedy as it is written to the file, and sent to other ranks.

    Args:
        remedy: what a script writes.
        module: at fault, where the remedy is one on an operand; it is for all modules of its class, as an edit of the line is.
        file, line, code: the line; if other code stands there, the script is another one.
    """

    remedy: str
    module: str = ""
    file: str = ""
    line: int = 0
    code: str = ""

    @classmethod
    def read(cls, value: Any) -> KeptRemedy | None:
        """Of what came from a file or another rank; None if that is something else."""
        fields = {"remedy": value} if isinstance(value, str) else value
        if not isinstance(fields, dict) or fields.keys() - cls.__slots__ or type(fields.get("remedy")) is not str:
            return None
        return cls(**fields) if all(type(value) is (int if name == "line" else str) for name, value in fields.items()) else None

    def __str__(self) -> str:
        return f"{self.remedy} at {place(self.file, self.line)}" if self.file else self.remedy

    @property
    def written(self) -> str | dict[str, Any]:
        return asdict(self) if self.file else self.remedy


class Healing:
    """Keeps the remedies of one model on until ``close``.

    Args:
        ranks: that train the model together.

    Attributes:
        asked: for by the options.
        on: the remedies that are on, in order.
    """

    def __init__(self, evidence: Evidence, options: WatchOptions, ranks: Ranks) -> None:
        self.asked = options.on_nonfinite == "heal"
        self.on: dict[KeptRemedy, Callable[[], None]] = {}  # with what takes each off
        self._evidence, self._ranks = evidence, ranks
        self._unhealed: set[str] = set()
        self._step = -1  # the last at which all ranks have tried
        local = options.log_dir is not None and "://" not in options.log_dir
        self._file = Path(options.log_dir or "", FILE) if local else None
        if self.asked and self._file is not None and self._file.is_file():  # the run goes on
            for kept in _read(self._file):
                if self._apply(kept):
                    log.warning("numscope: %s is on from the first step, as %s says.", escape(str(kept)), self._file)
            if not self.on:
                log.warning("numscope: nothing of %s is on: it holds no remedy for this model and script.", self._file)

    def heal(self, finding: Finding | None) -> str:
        """A step is left out, on all ranks. Returns: the remedy that stays on from now on; "" if there is none.

        Args:
            finding: what this rank knows of it, with what was tried.
        """
        if not self.asked:
            return ""
        kept = self._of_all() if self._ranks.have_to_be_asked else self._shared(finding)
        if kept is None or kept in self.on:
            if kept is None and finding is not None and finding.culprit is not None and not self._ranks.have_to_be_asked:
                self._tell_none(finding.culprit)
            return ""
        applied = self._apply(kept)
        if not all(self._ranks.share("whether a remedy can stay on", applied)) and applied:
            self.on.pop(kept)()
            log.warning("numscope: %s can't stay on: not on all ranks", escape(str(kept)))
        if kept not in self.on:
            return ""
        if self._file is not None and self._evidence.rank == 0:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(json.dumps([one.written for one in self.on]), encoding="utf-8")
            except ours(OSError) as error:
                log.warning("numscope: %s can't be written (%s): a run that goes on from here begins unhealed.", self._file, error)
        log.warning("numscope: step %d: %s stays on from now on.", self._evidence.step, escape(str(kept)))
        return str(kept)

    def _tell_none(self, culprit: Culprit) -> None:
        """Once of each line."""
        at = f"{culprit.op} at {place(culprit.file, culprit.line)}" if culprit.file else culprit.op
        if at not in self._unhealed:
            self._unhealed.add(at)
            why = (
                "none that was tried works and can be put on from outside (a function that writes in place can't be given another operand)"
            )
            log.warning("numscope: step %d: no remedy stays on for %s: %s.", self._evidence.step, escape(at), why)

    def _shared(self, finding: Finding | None) -> KeptRemedy | None:
        """The remedy that ranks which average their gradients have found, one of them for all."""
        culprit = None if finding is None else finding.culprit
        mine = None if culprit is None else self._chosen(culprit)
        shared = self._ranks.share("a remedy", None if mine is None else mine.written)
        return KeptRemedy.read(shared[0]) if shared else None

    def _of_all(self) -> KeptRemedy | None:
        """The remedy that ranks of sharded weights find together."""
        evidence = self._evidence
        if self._step == evidence.step or not (evidence.trials and evidence.replays):  # another optimizer of the step; enough was tried
            return None
        self._step = evidence.step
        text = tried_together(evidence, self._ranks)
        if not text:
            why = "weights are sharded, and no module in float32 makes the step's calls finite on all ranks"
            log.warning("numscope: step %d: no remedy stays on: %s.", self._step, why)
        return KeptRemedy(text) if text else None

    def _chosen(self, culprit: Culprit) -> KeptRemedy | None:
        """The first remedy that has worked and can stay on; before those on an operand, which change what is computed, one in float32."""
        worked = [trial.remedy for trial in culprit.tried if trial.worked]
        wide = next((text for text in worked if text in self._in_float32()), None)
        if wide is not None:
            return KeptRemedy(wide)
        at = culprit.file, culprit.line
        texts = {in_own_words(text, plain_name(culprit.op), *at): text for text in known()}  # as a trial's is written
        moved = next((texts[text] for text in worked if text in texts), None)
        return None if moved is None else KeptRemedy(moved, culprit.module, *at, culprit.code)

    def _modules(self) -> dict[str, nn.Module]:
        return {name: module for module, name in self._evidence.names.items() if not isinstance(module, nn.ModuleList | nn.ModuleDict)}

    def _in_float32(self) -> Mapping[str, Callable[[], HighPrecisionForward]]:
        return {
            remedy_of(name, output): partial(high_precision, module, output_dtype=output)
            for name, module in self._modules().items()
            for output in (None, torch.float32)
        }

    def _apply(self, kept: KeptRemedy) -> bool:
        """Nothing that is read or received is executed: it is looked up."""
        try:
            if kept.file:
                self._at_line(kept)
            elif (make := self._in_float32().get(kept.remedy)) is not None:
                self.on[kept] = make().remove
        except ours(UsageError, OSError) as error:
            log.warning("numscope: %s can't stay on: %s", escape(str(kept)), escape(str(error)))
        return kept in self.on

    def _at_line(self, kept: KeptRemedy) -> None:
        """Put on what moves an operand, in the place of a milder one. Raises: UsageError: it can't stay on."""
        modules = self._modules()
        remedy, module = known().get(kept.remedy), modules.get(kept.module)
        if remedy is None or module is None:
            raise UsageError("the model has no such module, or there is no such remedy")
        if not kept.code or _code_at(kept.file, kept.line) != kept.code:
            raise UsageError(f"another code stands at {place(kept.file, kept.line)}")
        if self._evidence.probe.in_graphs:
            raise UsageError("the model is compiled")
        for other in [one for one in self.on if (one.file, one.line) == (kept.file, kept.line)]:
            if type(modules[other.module]) is type(module):
                self.on.pop(other)()
        alike = [one for one in modules.values() if type(one) is type(module) and can_be_hooked(one)]
        self.on[kept] = stay(alike, partial(AtLine, kept.file, kept.line, remedy, stays=True))

    def close(self) -> None:
        """The modules compute as they did. Safe to call twice."""
        while self.on:
            self.on.popitem()[1]()


def _code_at(file: str, line: int) -> str:
    """The code of a line; "" where nothing is known of it, or the file is none that a script would be: a pipe, a large one."""
    is_source = file in linecache.cache or (os.path.isfile(file) and os.path.getsize(file) <= MAX_JSON_BYTES)
    return linecache.getline(file, line).strip() if is_source else ""


def _read(file: Path) -> list[KeptRemedy]:
    """Remedies; none from a file that holds something else."""
    try:
        found = read_json(file)
    except ours(OSError, ValueError):
        return []
    return [kept for one in found if (kept := KeptRemedy.read(one)) is not None] if isinstance(found, list) else []
