"""Data-parallel ranks that get the same data."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import nn

from numscope.alerts.checks.check import EVERY, Check, Subject
from numscope.alerts.checks.model_copies import CopiesOf
from numscope.distributed.agree import spread, watch_name
from numscope.distributed.bulletin import Bulletin
from numscope.probe.naming import named_state
from numscope.records.words import few
from numscope.summary.checksum import Checksums, merged
from numscope.summary.unwrap import Unsummarizable

STEPS = 3  # looked at in a row, with the same data on the same ranks


class SameDataOnRanks(Check):
    """Compares the checksums of the first training call's arguments over data-parallel ranks.

    Ranks of tensor parallelism get the same data on purpose, and are not compared. Where the script averages gradients by itself, all ranks
    are compared as long as their weights are the same.

    *Cost:* at thorough steps, with several ranks, a note of some 40 bytes at the job's store.
    """

    name = "same data on ranks"
    cheap = ("end",)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._copies = CopiesOf(subject.model, subject.wrapper, subject.probe.names)
        self._bulletin: Bulletin | None = None
        self._due: dict[int, Checksums] = {}  # steps that are to be noted, with the sum of a sample of the weights
        self._streaks: dict[tuple[int, ...], list[int]] = {}  # steps at which these ranks had the same data

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if spread():
            self.subject.inputs.see(self.subject.num, self.subject.step, args, kwargs)

    def end(self, closing: bool) -> None:
        if self.subject.thorough and spread() and not self._copies.is_joined:
            self._find()
        if self._due:
            self._put()
        self.last()

    def last(self) -> None:
        bulletin = self._bulletin
        for step, num_kinds in () if bulletin is None else bulletin.look():
            self._compare(step, {} if bulletin is None or num_kinds == len(bulletin.ranks) else bulletin.notes(step))

    def _find(self) -> None:
        """Which ranks to compare at this step."""
        ranks, assumed = self._copies.data_ranks()
        if len(ranks) < 2:
            return
        if self._bulletin is None or self._bulletin.ranks != ranks:
            self._bulletin = Bulletin(watch_name(self.subject.model, "data "), ranks)
        # Ranks of which nothing is known but that they exist may split a model, or train several.
        weights = [t for _, _, t in named_state(self.subject.probe.names, buffers=False)] if assumed else []
        with contextlib.suppress(Unsummarizable):
            self._due[self.subject.num] = Checksums(weights, sample=True)

    def _put(self) -> None:
        """Leave notes of the steps whose sums have come."""
        inputs = self.subject.inputs
        inputs.settle()
        for batch in inputs.since(inputs.num_batches - EVERY):
            weights = self._due.get(batch.num)
            if weights is not None and weights.are_here and self._bulletin is not None:
                del self._due[batch.num]
                self._bulletin.put(batch.step, f"{batch.sum} {merged(weights.read())}")
        self._due = {num: sums for num, sums in self._due.items() if self.subject.num - num < EVERY}

    def _compare(self, step: int, notes: dict[int, str]) -> None:
        by_data: dict[str, list[int]] = defaultdict(list)
        for rank, note in notes.items():
            by_data[note.partition(" ")[0]].append(rank)
        alike = len({note.partition(" ")[2] for note in notes.values()}) == 1
        same = [tuple(ranks) for ranks in by_data.values() if len(ranks) > 1] if alike else []
        self._streaks = {ranks: [*self._streaks.get(ranks, []), step] for ranks in same}
        for ranks, steps in self._streaks.items():
            if len(steps) >= STEPS:
                text = (
                    f"Ranks {few([*map(str, ranks)], 8)} got the same input at steps {', '.join(map(str, steps))}: they compute the same "
                )
                advice = "Give the DataLoader a DistributedSampler, or each rank a seed of its own."
                about = {"ranks": [*ranks], "steps": steps}
                num = float(len(ranks))
                self.say(text + "gradients.", advice, tensor="input", value=num, limit=1.0, evidence=about, asks=True, step=step)
