"""A recorded run: what all its ranks have recorded, merged."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from numscope.parity.recording import RecordedRank, RecordedStep
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.fingerprint import WHOLE, Fingerprint, Sketch, TensorPrint

Which = Literal["weights", "gradients", "clipped"]


class RecordedLayout:
    """The recording of one run.

    Args:
        ranks: in ascending order, one at least.
    """

    def __init__(self, ranks: list[RecordedRank]) -> None:
        self.ranks = ranks
        self.num_steps = min(len(one.steps) for one in ranks)
        self._merged: dict[tuple[int, Which], Fingerprint] = {}

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> RecordedLayout:
        """Raises: UsageError where the folder holds no recording, or one without a step."""
        files = sorted(Path(folder).glob("rank*.json"))
        if not files:
            raise UsageError("holds no recording, expected one of numscope parity, with a file for each rank.", os.fspath(folder))
        try:
            found = cls([RecordedRank.read(file) for file in files])
        except ours(OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"can't be read ({error}), expected a recording of numscope parity.", os.fspath(folder)) from None
        for one in found.ranks:
            if one.error or not one.steps:
                why = one.error or "no torch optimizer stepped a model that was called"
                raise UsageError(f"rank {one.rank} has recorded no step: {why}.", os.fspath(folder))
        return found

    @property
    def rounding(self) -> float:
        """Of the dtype that autocast computes in; 0 without it."""
        return max((one.rounding for one in self.ranks), default=0.0)

    def steps(self, number: int) -> Iterator[tuple[int, RecordedStep]]:
        """Each rank's record of a step."""
        return ((one.rank, one.steps[number]) for one in self.ranks)

    def merged(self, step: int, which: Which) -> Mapping[str, TensorPrint]:
        """All ranks' parts; of copies the first rank's."""
        known = self._merged.get((step, which))
        if known is None:
            first, *others = (getattr(one, which) for _, one in self.steps(step))
            known = self._merged[step, which] = first.merge(*others)
        return known.tensors

    def whole(self, step: int, which: Which, name: str) -> Sketch | None:
        """A tensor's sketch, over all ranks; None without it, or where parts of it are missing."""
        one = self.merged(step, which).get(name)
        return None if one is None else one.whole

    def copies(self, step: int, which: Which, name: str) -> dict[str, dict[int, Sketch]]:
        """By place, what each rank has there."""
        found: dict[str, dict[int, Sketch]] = {}
        for rank, one in self.steps(step):
            tensor = getattr(one, which).tensors.get(name)
            for place, sketch in tensor.parts.items() if tensor is not None else ():
                found.setdefault(place, {})[rank] = sketch
        return found

    def norm(self, step: int, which: Which) -> float:
        """Of all of these tensors together."""
        found = (self.whole(step, which, name) for name in self.merged(step, which))
        return math.sqrt(math.fsum(one.square_sum for one in found if one is not None))

    def own(self, step: int, name: str) -> list[tuple[str, Sketch]]:
        """Each backward's gradient of a parameter on each rank, with words for it; equal ones of several ranks count once."""
        found: dict[tuple[float, ...], tuple[str, Sketch]] = {}
        for rank, one in self.steps(step):
            givers = [given for given in one.own if name in given.tensors]
            backwards = givers if len(givers) == one.num_batches else one.own  # those of another stage of a pipeline are left out
            for number, given in enumerate(backwards):
                tensor = given.tensors.get(name)
                sketch = None if tensor is None else tensor.parts.get(WHOLE)
                if sketch is not None:
                    backward = f"micro-batch {number + 1} of {len(backwards)}" if len(backwards) > 1 else "the batch"
                    words = f"{backward} on rank {rank}" if len(self.ranks) > 1 else backward
                    found.setdefault(tuple(float(f"{x:.5g}") for x in sketch.sums), (words, sketch))
        return list(found.values())

    @cached_property
    def order(self) -> list[str]:
        """Parameters as backward reached them; behind these the others, from the last to the first."""
        order: dict[str, None] = {}
        for one in self.ranks:
            order |= dict.fromkeys(one.order)
        for step in range(self.num_steps):
            order |= dict.fromkeys(reversed([*self.merged(step, "gradients")]))
        return list(order)

    @cached_property
    def facts(self) -> dict[str, int]:
        """Sizes by which gradients may be wrong."""
        found: dict[str, int] = {}
        for one in self.ranks:
            found |= one.facts
        own = max(one.num_batches for _, one in self.steps(0))
        rows = sum(self.rows.values())
        found |= {"number of micro-batches of a rank": own, "number of samples": rows}
        if own > 1:
            found["number of micro-batches of all ranks"] = own * found.get("data-parallel size", found.get("world size", 1))
        return {name: size for name, size in found.items() if size > 1}

    @cached_property
    def rows(self) -> Counter[tuple[str, tuple[int, ...], str]]:
        """The first step's samples: argument, shape and checksum of each row, and how often it came."""
        found: Counter[tuple[str, tuple[int, ...], str]] = Counter()
        for _, one in self.steps(0):
            for call in one.batch:
                for name, (shape, sums) in call.items():
                    found.update((name, tuple(shape), value) for value in sums)
        return found

    @property
    def is_whole(self) -> bool:
        """Whether each rank came to the end of its steps."""
        return all(one.is_whole for one in self.ranks)

    @property
    def unread(self) -> set[str]:
        return {name for one in self.ranks for name in one.unread}

    @property
    def dropout(self) -> list[str]:
        return [name for one in self.ranks for name in one.dropout]
