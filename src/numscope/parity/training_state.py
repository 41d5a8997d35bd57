"""Training states: what a run goes on from, as checksums and numbers, to tell what a resumed run has lost."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from numscope.records.faults import ours
from numscope.records.files import read_bytes, replacing
from numscope.records.fingerprint import WHOLE

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FOLDER = "resume"  # in a run's folder
VERSION = 1
KEPT = 32  # files of a rank of one process; earlier ones are removed
MOST_READ = 512

_MASK = (1 << 64) - 1
_NAME = re.compile(r"(\d{20})-rank(\d+)-step\d+\.json")


@dataclass(frozen=True, slots=True)
class Bits:
    """Checksums of a tensor's bits.

    Args:
        dtype: torch's name for it, such as ``float32``.
        numel: elements of the whole tensor.
        parts: number of elements and checksum of each place within the whole that was seen, as in a ``TensorPrint``.
    """

    dtype: str
    numel: int
    parts: Mapping[str, tuple[int, int]]

    def at(self, place: str) -> int | None:
        """The checksum of what lies at a place; None where parts of it were not seen, or can't be told apart."""
        if place in self.parts:
            return self.parts[place][1]
        within = [part for known, part in self.parts.items() if place == WHOLE or _is_within(known, place)]
        numel = self.numel if place == WHOLE else _numel(place)
        return sum(value for _, value in within) & _MASK if sum(num for num, _ in within) == numel else None

    def equals(self, before: Bits) -> bool | None:
        """Whether the parts here have the bits that they had before; None where that can't be known."""
        if (self.dtype, self.numel) != (before.dtype, before.numel):
            return False
        known = {place: before.at(place) for place in self.parts}
        return None if None in known.values() or not known else all(self.parts[place][1] == value for place, value in known.items())

    @property
    def is_zero(self) -> bool:
        """Whether all that is here is 0; a checksum of 0 has no other cause that comes about by itself."""
        return all(value == 0 for _, value in self.parts.values())


def _bounds(place: str) -> list[tuple[int, int]] | None:
    """Where a block begins and ends along each dimension; None of a place that is in several stretches."""
    found = re.findall(r"(\d+):(\d+)", place)
    return None if "+" in place else [(int(begin), int(end)) for begin, end in found]


def _is_within(place: str, other: str) -> bool:
    inner, outer = _bounds(place), _bounds(other)
    if not inner or not outer or len(inner) != len(outer):
        return False
    return all(a <= begin and end <= b for (begin, end), (a, b) in zip(inner, outer, strict=True))


def _numel(place: str) -> int:
    num = 1
    for begin, end in _bounds(place) or [(0, 0)]:
        num *= end - begin
    return num


@dataclass
class Moment:
    """The part of a training's state that changes from call to call.

    Args:
        random: by generator (``python``, ``numpy``, ``torch``, ``cuda:0``) the block of random numbers that it is in, and its place there.
        settings: the optimizers', as columns (``optimizer_lr``), a number for each group.
        schedulers: each one's class and step.
        epochs: each distributed sampler's class and epoch.
        scale: GradScaler's; None without one.
    """

    random: dict[str, tuple[str, int]] = field(default_factory=dict)
    settings: dict[str, list[float]] = field(default_factory=dict)
    schedulers: list[tuple[str, int]] = field(default_factory=list)
    epochs: list[tuple[str, int]] = field(default_factory=list)
    scale: float | None = None


@dataclass
class TrainingState:
    """The state of one model's training on one rank.

    Args:
        process: tells the processes of a run apart.
        step: optimizer steps before it.
        first: at the first call of this process.
        draws: generators from which training draws; of torch's those from which a step does, as each epoch of a loader draws from them too.
        moment: as the state was taken.
        following: at the next training call; None where none came.
        weights: parameters and buffers by name.
        trained: names of parameters that need gradients.
        optimizers: their classes.
        states: optimizers' states, such as ``exp_avg``, by parameter.
        counts: those that are single numbers, such as ``step``, by parameter.
        averages: class and checksum of each averaged copy of the model.
        batches: step and checksum of the last ones; one of each step.
        next_batches: of those that came next.
        is_late: another thread has saved it, so that it may be of a step before; its random numbers are not compared.
        places: for each loader that is at work, how many batches of how many it has given; for each that shuffles, its length twice.
    """

    model: str = ""
    rank: int = 0
    world: int = 1
    process: str = ""
    step: int = 0
    first: Moment = field(default_factory=Moment)
    moment: Moment = field(default_factory=Moment)
    following: Moment | None = None
    draws: list[str] = field(default_factory=list)
    weights: dict[str, Bits] = field(default_factory=dict)
    trained: list[str] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    states: dict[str, dict[str, Bits]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    averages: list[tuple[str, str]] = field(default_factory=list)
    batches: list[tuple[int, str]] = field(default_factory=list)
    next_batches: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    is_late: bool = False

    def write(self, folder: str, name: str) -> None:
        """Write it into a run's folder. Raises: OSError."""
        place = os.path.join(folder, FOLDER)
        os.makedirs(place, exist_ok=True)
        with replacing(os.path.join(place, name)) as aside, open(aside, "x", encoding="utf-8") as file:
            json.dump({"version": VERSION, "state": asdict(self)}, file, separators=(",", ":"))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TrainingState:
        """Raises: OSError, ValueError, KeyError, TypeError or RecursionError where it is none."""
        told = json.loads(read_bytes(path))
        if told["version"] != VERSION:
            raise ValueError("another version's")
        try:
            return _adapter().validate_python(told["state"])
        except ValueError as error:  # pydantic's own has no arguments, as one from another thread
            raise ValueError(str(error)) from None

    def with_parts_of(self, others: Iterable[TrainingState]) -> TrainingState:
        """With what other ranks have of spread tensors."""
        merged = replace(self)
        for other in others:
            merged.weights = _merge(merged.weights, other.weights)
            merged.states = {
                key: _merge(merged.states.get(key, {}), other.states.get(key, {})) for key in {**merged.states, **other.states}
            }
            merged.counts = {key: {**other.counts.get(key, {}), **merged.counts.get(key, {})} for key in {**merged.counts, **other.counts}}
        return merged


def name_of(time_ns: int, rank: int, step: int) -> str:
    """The name of a file; names are in the order of time."""
    return f"{time_ns:020d}-rank{rank}-step{step}.json"


def read_states(folder: str, ranks: set[int] | None = None) -> list[TrainingState]:
    """The latest states in a run's folder, the earliest first, of some ranks or of all. What is damaged, or no state, is left out."""
    place = os.path.join(folder, FOLDER)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    matches = [found for found in map(_NAME.fullmatch, names) if found and (ranks is None or int(found[2]) in ranks)]
    states = []
    for found in matches[-MOST_READ:]:
        try:
            states.append(TrainingState.read(os.path.join(place, found[0])))
        except ours(OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return states


def _merge(mine: Mapping[str, Bits], theirs: Mapping[str, Bits]) -> dict[str, Bits]:
    found = dict(mine)
    for name, one in theirs.items():
        known = found.get(name)
        found[name] = one if known is None else Bits(known.dtype, known.numel, {**one.parts, **known.parts})
    return found


@cache
def _adapter() -> TypeAdapter[TrainingState]:
    from pydantic import TypeAdapter  # a run that goes on from no state has no use for it

    return TypeAdapter(TrainingState)
