"""The past of a model's sites, for rules: how large each tensor was, step by step, in binary logarithms.

A step's sites are kept at fixed places, so that a rule looks at all of them with a few NumPy operations. Levels of eight steps are kept as
they are, and of each eight their median every fourth step, which no single outlier moves. A site that is not seen in a step, or has no
finite element in it other than zero, keeps the level that it had: a gradient that is zero until the first reward comes does not explode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numscope.config.options import how_to_set
from numscope.records.alert import Alert
from numscope.records.formats import format_of

Floats = npt.NDArray[np.float64]

RECENT = 8  # steps, whose median is a site's level
TICK = 4  # steps between two medians that are kept
PAST = 33  # medians kept: 128 steps
LOSSES = 128  # kept
REST = 32  # steps without any change, after which a weight that moves begins anew


class SiteKind(IntEnum):
    OUTPUT = 0
    MATRIX = 1  # a parameter of two or more dimensions
    VECTOR = 2  # any other parameter
    GRADIENT = 3  # of an output
    WEIGHT_GRADIENT = 4
    DATA = 5  # what the model is called with


WEIGHTS = SiteKind.MATRIX, SiteKind.VECTOR


class SitePlace(NamedTuple):
    """A site as rules know it."""

    layer: str  # qualified name of the module; "" is the model
    cls: str
    tensor: str  # as observations name it: ``output``, ``weight``, ``wgrad[bias]``
    dtype: str  # such as ``float16``
    kind: SiteKind
    usual: float = -math.inf  # level at which a matrix usually begins, that of 1 / sqrt(inputs). Growth up to it is none


class Spike(NamedTuple):
    """A loss above its band."""

    step: int  # at which it was told
    limit: float
    median: float
    highest: float


class Board:
    """Levels of sites, and how they have grown. Arrays have an element for each site, in the order of ``places``.

    *Cost:* 350 bytes a site, and about 50 µs a step for 500 sites.
    """

    def __init__(self) -> None:
        self.step = 0  # number of the last step
        self.num_steps = 0  # that were added
        self.losses: deque[float] = deque(maxlen=LOSSES)  # of the last steps; nan where there was none, or none of one element
        self.first_loss = math.nan  # the median magnitude of the first eight that are not zero
        self.is_scaled = False  # losses are divided by a GradScaler's scale, which doubles now and then
        self.quiet_until = 0  # a step: before it losses may be of other targets, which a module that was loaded gives
        self.rates: deque[float] = deque(maxlen=PAST)  # the highest learning rate at each tick; nan where none is known
        # Of losses above their band: the last step, the height above the median.
        self.rises: deque[tuple[int, float]] = deque(maxlen=LOSSES)
        self.spike: Spike | None = None  # that was told, and has not come down
        self._first_losses: list[float] = []
        self.places: list[SitePlace] = []  # in the order in which they were seen first
        self.named: dict[str, tuple[int, int]] = {}  # by rule, the site that it named last, and the step
        self.kinds = np.zeros(0, np.int8)  # numbers of ``SiteKind``
        self.limits = np.zeros(0)  # log2 of the largest number of each site's dtype
        self._usual = np.zeros(0)
        self.moved = np.zeros(0, bool)  # its level has ever changed
        self.from_zero = np.zeros(0, bool)  # all its elements were zero at first
        self.level = np.zeros(0)  # of the last step, log2 of the largest finite magnitude
        self._index: dict[tuple[str, str], int] = {}
        self._of: dict[tuple[SiteKind, ...], npt.NDArray[np.int64]] = {}
        self._is_weight = np.zeros(0, bool)
        self._born = np.zeros(0, np.int64)
        self._last_move = np.zeros(0, np.int64)
        self._recent = np.zeros((RECENT, 0))
        self._past = np.zeros((PAST, 0))  # a ring: the newest is at ``_num_ticks - 1``
        self._peaks = np.zeros((PAST, 0))  # the same: the largest median up to there
        self._num_ticks = 0
        self._pairs: tuple[list[SitePlace], npt.NDArray[np.int64]] = [], np.zeros((0, 2), np.int64)

    def forget_losses(self) -> None:
        """Begin a new row of losses: another task is trained now."""
        self.spike = None
        self.losses.clear()
        self.rises.clear()
        self._first_losses.clear()
        self.first_loss = math.nan

    def indexes(self, places: Sequence[SitePlace]) -> npt.NDArray[np.int64]:
        """Where sites are on the board; new ones get a place."""
        for place in places:
            key = place.layer, place.tensor
            if key not in self._index:
                self._index[key] = len(self.places)
                self.places.append(place)
        count = len(self.places) - len(self.level)
        if count:
            self._of.clear()
            self.kinds = np.array([place.kind for place in self.places], np.int8)
            self._is_weight = np.isin(self.kinds, WEIGHTS)
            self.limits = np.array([1024.0 if p.dtype == "float64" else math.log2(format_of(p.dtype).max) for p in self.places])
            self._usual = np.array([place.usual for place in self.places])
            self.from_zero = np.concatenate([self.from_zero, np.zeros(count, bool)])
            self.moved = np.concatenate([self.moved, np.zeros(count, bool)])
            self._last_move = np.concatenate([self._last_move, np.full(count, self.num_steps)])
            self.level = np.concatenate([self.level, np.full(count, np.nan)])
            self._born = np.concatenate([self._born, np.full(count, self.num_steps)])
            self._recent = np.concatenate([self._recent, np.full((RECENT, count), np.nan)], 1)
            self._past = np.concatenate([self._past, np.full((PAST, count), np.nan)], 1)
            self._peaks = np.concatenate([self._peaks, np.full((PAST, count), np.nan)], 1)
        return np.array([self._index[place.layer, place.tensor] for place in places], np.int64)

    def add(self, step: int, at: npt.NDArray[np.int64], amax: Floats, loss: float = math.nan) -> None:
        """A step's largest finite magnitudes: nan or negative where there is no finite element.

        Args:
            at: the sites' indexes, each once.
            loss: what backward was called on, if it was one number.
        """
        self.step = step
        self.losses.append(loss)
        if len(self._first_losses) < RECENT and loss and math.isfinite(loss):
            self._first_losses.append(abs(loss))
            self.first_loss = float(median(np.array(self._first_losses))) if len(self._first_losses) == RECENT else math.nan
        seen = amax > 0
        if not seen.all():
            self.from_zero[at[(amax == 0) & np.isnan(self.level[at])]] = True
            at, amax = at[seen], amax[seen]
        are_some_first = self._set(at, np.log2(amax))
        if self.num_steps == 0:
            self._recent[:] = self.level
        self._recent[self.num_steps % RECENT] = self.level
        self.num_steps += 1
        if are_some_first:
            fresh = np.isnan(self._recent).any(0)
            self._recent[:, fresh] = self.level[fresh]
        if self.ticks:
            here, before = self._num_ticks % PAST, (self._num_ticks - 1) % PAST
            self._past[here] = median(self._recent)
            self._peaks[here] = np.fmax(self._peaks[before], self._past[here])
            self._num_ticks += 1

    def _set(self, at: npt.NDArray[np.int64], levels: Floats) -> bool:
        """Returns: whether some sites had no level before."""
        before = self.level[at]
        self.level[at] = levels
        is_first, changed = np.isnan(before), levels != before
        are_some_first, moved = bool(is_first.any()), at if changed.all() else at[changed]
        if are_some_first or (self._last_move[moved] < self.num_steps - REST).any():
            rested = self.num_steps - self._last_move[at] > REST
            self._born[at[is_first | (changed & rested & self._is_weight[at])]] = self.num_steps
        self._last_move[moved] = self.num_steps
        self.moved[at[changed & ~is_first] if are_some_first else moved] = True
        return are_some_first

    @property
    def ticks(self) -> bool:
        """Whether the last step is one at which medians are taken, and rules that look at growth are asked."""
        return self.num_steps % TICK == 0

    @property
    def ages(self) -> npt.NDArray[np.int64]:
        """Steps since a site was first seen with an element other than zero; a weight's also since it moved again after a rest."""
        return self.num_steps - self._born

    def smooth(self, ago: int = 0) -> Floats:
        """The median level of the eight steps up to ``ago`` steps ago, a multiple of ``TICK``; nan where a site was not yet seen."""
        return self._at(self._past, ago)

    def _at(self, ring: Floats, ago: int) -> Floats:
        back = ago // TICK
        if back >= min(self._num_ticks, PAST):
            return np.full(len(self.places), np.nan)
        found: Floats = ring[(self._num_ticks - 1 - back) % PAST]
        return found

    def jump(self) -> Floats:
        """By how many bits the last step is above the median of the eight steps that end with it."""
        found: Floats = self.level - median(self._recent)
        return found

    def trail(self, steps: int) -> Floats:
        """``smooth`` of the last steps, oldest first: an array of steps / TICK + 1 × sites."""
        return np.stack([self.smooth(ago) for ago in range(steps, -1, -TICK)])

    def window(self, most: int, least: int = 32) -> int:
        """The steps back to which growth is looked at: a tick's multiple, leaving out the first quarter of what was seen; 0: too early."""
        steps = min(most, self.num_steps * 3 // 4 // TICK * TICK)
        return steps if steps >= least else 0

    def growth(self, steps: int, record: bool = True) -> tuple[Floats, Floats]:
        """How sites' levels have grown in the last steps.

        Args:
            record: above the highest that they had had up to then, and above what is usual: what swings does not grow.

        Returns: bits, and the exponent p of magnitude ~ t^p that this is: 1 where a tensor grows as fast as it can by steps of one size,
        more where the steps grow too. nan where a site is younger.
        """
        before = np.maximum(self._at(self._peaks, steps), self._usual) if record else self._at(self._past, steps)
        bits = self.smooth() - before
        ages = self.ages - (self.num_steps % TICK + (RECENT - 1) / 2)  # at the middle of the median's steps
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = bits / np.log2(np.maximum(ages, 1) / np.maximum(ages - steps, 1))
        exponent[self.ages <= steps * 5 / 4] = np.nan
        return bits, exponent

    def matrices_with_gradients(self) -> npt.NDArray[np.int64]:
        """Indexes of (gradient, matrix), in the model's order: an array of their number × 2."""
        if len(self._pairs[0]) != len(self.places):
            places = [(i, self._index.get((place.layer, place.tensor.replace("wgrad", "weight")))) for i, place in enumerate(self.places)]
            ours = [(i, w) for i, w in places if w is not None and w != i and self.kinds[w] == SiteKind.MATRIX]
            self._pairs = self.places.copy(), np.array(ours, np.int64).reshape(-1, 2)
        return self._pairs[1]

    def alert(
        self, rule: str, at: int, value: float, limit: float, text: str, advice: str, *, asks: bool = False, **evidence: Any
    ) -> Alert:
        """An alert of the last step about a site."""
        place = self.places[at]
        advice = question(rule, advice) if asks else advice
        return Alert(self.step, rule, place.layer, place.tensor, value, limit, text, advice, evidence, asks=asks)

    def of(self, *kinds: SiteKind) -> npt.NDArray[np.int64]:
        """Indexes of the sites of some kinds."""
        if kinds not in self._of:
            self._of[kinds] = np.flatnonzero(np.isin(self.kinds, kinds))
        return self._of[kinds]


def median(values: Floats) -> Any:
    """``np.median`` along the first dimension, to the bit, of columns without nan.

    NumPy's takes 40 µs of looks before it begins, and imports a module as it is first called, where an exception that a signal's handler
    raises is lost.
    """
    ordered, (half, is_odd) = np.sort(values, 0), divmod(len(values), 2)
    return ordered[half] if is_odd else (ordered[half - 1] + ordered[half]) / 2


def question(rule: str, advice: str) -> str:
    """The advice of an alert that asks: with the sentence that switches it off."""
    return f"{advice} If this is intended, switch it off: {how_to_set(rule, False)}.".lstrip()


def magnitude(level: float) -> float:
    """Of a level, for texts."""
    return float(2.0**level)
