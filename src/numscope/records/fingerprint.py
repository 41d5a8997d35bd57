"""Fingerprints: small values by which tensors are compared that live in different shapes, on different ranks or at different times."""

from __future__ import annotations

import base64
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import read_json, write_atomically

NUM_SUMS = 32
REPEATS = 4  # sums that an element is part of; mirrors csrc/sketch.cpp
WHOLE = ""  # the place of a tensor that is in one piece
LOW = ("bfloat16", "float16")  # dtypes that a fingerprint knows its tensor's rounding to
VERSION = 1
_MASK = (1 << 64) - 1
_LAYOUT = f"<{3 + len(LOW)}Q{2 + NUM_SUMS}d"


@dataclass(frozen=True, slots=True)
class Sketch:
    """Some elements of a tensor in 312 bytes. Sketches of parts add up to that of the whole.

    Args:
        numel: how many elements.
        num_nonfinite: how many of these are nan or infinite; they count as 0 in what follows.
        checksum: of their bits, as of ``numscope.summary.checksum``.
        sum, square_sum: of the elements, in float64.
        sums: 32 signed sums; ``numscope.summary.sketch`` says which.
        rounded: checksums of the elements rounded to each dtype of ``LOW``; 0 where none was taken.
    """

    numel: int = 0
    num_nonfinite: int = 0
    checksum: int = 0
    sum: float = 0.0
    square_sum: float = 0.0
    sums: tuple[float, ...] = (0.0,) * NUM_SUMS
    rounded: tuple[int, ...] = (0,) * len(LOW)

    def merge(self, other: Sketch) -> Sketch:
        """The sketch of both parts."""
        return Sketch(
            self.numel + other.numel,
            self.num_nonfinite + other.num_nonfinite,
            (self.checksum + other.checksum) & _MASK,
            self.sum + other.sum,
            self.square_sum + other.square_sum,
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple((a + b) & _MASK for a, b in zip(self.rounded, other.rounded, strict=True)),
        )

    @property
    def norm(self) -> float:
        """The Euclidean norm, of the elements themselves."""
        return math.sqrt(self.square_sum)


@dataclass(frozen=True, slots=True)
class TensorPrint:
    """A tensor's fingerprint.

    Args:
        shape: the whole tensor's.
        dtype: torch's name for it, such as ``float32``.
        parts: a sketch for each place within the whole that was seen: ``""`` is all of it, ``[0:8, 4:8]`` a shard.
        merged: the sketch with its adapter merged into it, where a low-rank adapter is beside it.
    """

    shape: tuple[int, ...]
    dtype: str
    parts: Mapping[str, Sketch]
    merged: Sketch | None = None

    @property
    def whole(self) -> Sketch | None:
        """The sketch of all elements; None while parts are missing."""
        found = Sketch()
        for part in self.parts.values():
            found = found.merge(part)
        return found if found.numel == math.prod(self.shape) else None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprints of a model's or a state dict's tensors, by name; of what this rank has of them."""

    tensors: Mapping[str, TensorPrint] = field(default_factory=dict)

    def merge(self, *others: Fingerprint) -> Fingerprint:
        """The fingerprint of all ranks' parts together. A part that several ranks hold counts once, as the first of them has it."""
        tensors = dict(self.tensors)
        for other in others:
            for name, one in other.tensors.items():
                mine = tensors.get(name)
                tensors[name] = one if mine is None else replace(mine, parts={**one.parts, **mine.parts}, merged=mine.merged or one.merged)
        return Fingerprint(tensors)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file as JSON, some 600 bytes a tensor."""
        import json

        write_atomically(os.fspath(path), json.dumps({"fingerprint": VERSION, "tensors": self.document()}))

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> Fingerprint:
        """Read it from a file, or from those of several ranks, whose parts are merged.

        Raises: UsageError where a file is none of ``save``.
        """
        found = cls()
        for path in paths:
            try:
                told = read_json(path)
                if told["fingerprint"] != VERSION:
                    raise ValueError(f"version {told['fingerprint']}")
                found = found.merge(cls.of(told["tensors"]))
            except ours(OSError, ValueError, KeyError, TypeError, struct.error) as error:
                raise UsageError(f"can't be read ({error}), expected a file that Fingerprint.save has written.", os.fspath(path)) from None
        return found

    def document(self) -> dict[str, Any]:
        return {name: _told(one) for name, one in self.tensors.items()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Fingerprint:
        """From ``document``. Raises: ValueError, KeyError or TypeError where it is none."""
        return cls({str(name): _read(one) for name, one in document.items()})


def merge_all(sketches: Iterable[Sketch]) -> Sketch:
    found = Sketch()
    for one in sketches:
        found = found.merge(one)
    return found


def packed(sketch: Sketch) -> str:
    """A sketch as text: its numbers in 64 bits each, in base64."""
    numbers = (sketch.numel, sketch.num_nonfinite, sketch.checksum, *sketch.rounded, sketch.sum, sketch.square_sum, *sketch.sums)
    return base64.b64encode(struct.pack(_LAYOUT, *numbers)).decode()


def unpacked(text: str) -> Sketch:
    """Raises: ValueError or struct.error where it is no sketch."""
    numel, num_nonfinite, checksum, *rest = struct.unpack(_LAYOUT, base64.b64decode(text, validate=True))
    rounded, (total, square_sum, *sums) = rest[: len(LOW)], rest[len(LOW) :]
    return Sketch(numel, num_nonfinite, checksum, total, square_sum, tuple(sums), tuple(rounded))


def _told(one: TensorPrint) -> dict[str, Any]:
    told = {"shape": list(one.shape), "dtype": one.dtype, "parts": {place: packed(sketch) for place, sketch in one.parts.items()}}
    return told if one.merged is None else {**told, "merged": packed(one.merged)}


def _read(told: Mapping[str, Any]) -> TensorPrint:
    merged = told.get("merged")
    parts = {str(place): unpacked(text) for place, text in told["parts"].items()}
    return TensorPrint(tuple(map(int, told["shape"])), str(told["dtype"]), parts, None if merged is None else unpacked(merged))
