"""Remedies that stay on (``on_nonfinite="heal"``): a module that a trial has cured computes in float32 from then on, on all ranks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from numscope.config.options import WatchOptions
from numscope.detect.evidence import Evidence
from numscope.distributed.agree import Ranks
from numscope.precision.high_precision import HighPrecisionForward, high_precision
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.finding import Finding
from numscope.records.words import escape
from numscope.replay.reasons.case import attribute

log = logging.getLogger("numscope")

PRECISION = "numscope.high_precision("
FILE = "heal.json"  # in the run's folder


def remedy_of(name: str, output: torch.dtype | None = None) -> str:
    """What a script writes for one module in float32."""
    return f"{PRECISION}{attribute(name)}{'' if output is None else f', output_dtype={output}'})"


class Healing:
    """Keeps the remedies of one model on until ``close``.

    Args:
        ranks: that train the model together.

    Attributes:
        asked: for by the options.
        texts: of the remedies that are on, in order.
    """

    def __init__(self, evidence: Evidence, options: WatchOptions, ranks: Ranks) -> None:
        self.asked = options.on_nonfinite == "heal"
        self.texts: list[str] = []
        self._evidence, self._ranks = evidence, ranks
        self._handles: list[HighPrecisionForward] = []
        local = options.log_dir is not None and "://" not in options.log_dir
        self._file = Path(options.log_dir or "", FILE) if local else None
        if self.asked and self._file is not None and self._file.is_file():  # the run goes on
            for text in _read(self._file):
                self._apply(text)

    def heal(self, finding: Finding | None) -> str:
        """A step is left out, on all ranks. Returns: the remedy that stays on from now on; "" if there is none.

        Args:
            finding: what this rank knows of it, with what was tried.
        """
        if not self.asked or self._ranks.have_to_be_asked:  # weights that are sharded can't be cast
            return ""
        culprit = None if finding is None else finding.culprit
        mine = next((t.remedy for t in culprit.tried if t.worked and t.remedy in self._known()), None) if culprit is not None else None
        texts = self._ranks.share("a remedy", mine)
        text = str(texts[0]) if texts else ""
        if text in self.texts or not self._apply(text):
            return ""
        if self._file is not None and self._evidence.rank == 0:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(json.dumps(self.texts), encoding="utf-8")
            except ours(OSError) as error:
                log.warning("numscope: %s can't be written (%s): a run that goes on from here begins unhealed.", self._file, error)
        log.warning("numscope: step %d: %s stays on from now on.", self._evidence.step, escape(text))
        return text

    def _known(self) -> Mapping[str, Callable[[], HighPrecisionForward]]:
        """What can stay on, by its text: nothing that is read or received is executed."""
        names = {name: module for module, name in self._evidence.names.items() if not isinstance(module, nn.ModuleList | nn.ModuleDict)}
        return {
            remedy_of(name, output): partial(high_precision, module, output_dtype=output)
            for name, module in names.items()
            for output in (None, torch.float32)
        }

    def _apply(self, text: str) -> bool:
        make = self._known().get(text)
        if make is None:
            return False
        try:
            self._handles.append(make())
        except ours(UsageError) as error:
            log.warning("numscope: %s can't stay on: %s", escape(text), error)
            return False
        self.texts.append(text)
        return True

    def close(self) -> None:
        """The modules compute as they did. Safe to call twice."""
        while self._handles:
            self._handles.pop().remove()


def _read(file: Path) -> list[str]:
    """Texts of remedies; none from a file that holds something else."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except ours(OSError, ValueError):
        return []
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
