"""Compares two fingerprints: which tensors correspond, and how each pair differs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from numscope.parity.fused import layers_of_fused
from numscope.parity.likeness import ROUNDING, Likeness, likeness
from numscope.records.fingerprint import Fingerprint, TensorPrint, merge_all
from numscope.records.words import escape
from numscope.runs.align import ObservedLayer, align

Given = Fingerprint | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_MOST = 20  # tensors that the text lists


@dataclass(frozen=True, slots=True)
class TensorPair:
    """Two tensors that correspond.

    Args:
        a, b: their names.
        likeness: how b differs from a; None where parts of one are missing or the shapes differ, as ``why`` says.
        adapter: of which side the adapter was merged into the weight, since the other side has none; ``a`` or ``b``.
    """

    a: str
    b: str
    likeness: Likeness | None
    adapter: str = ""
    why: str = ""

    @property
    def differs(self) -> bool:
        return self.likeness is None or not (self.likeness.equal or self.likeness.difference <= ROUNDING)

    def text(self) -> str:
        """A line."""
        names = self.a if self.a == self.b else f"{self.a} and {self.b}"
        told = [] if self.likeness is None else [self.likeness.text()]
        told += [f"with the adapter of {self.adapter} merged"] if self.adapter else []
        return f"{names}: {', '.join([*told, self.why] if self.why else told)}"


@dataclass(frozen=True, slots=True)
class FingerprintComparison:
    """What came of comparing two fingerprints; true where nothing differs and nothing is missing.

    Args:
        pairs: the tensors that both have, in a's order.
        only_a, only_b: names of those that one has alone.
    """

    pairs: tuple[TensorPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def differing(self) -> tuple[TensorPair, ...]:
        """The pairs that differ."""
        return tuple(pair for pair in self.pairs if pair.differs)

    def __bool__(self) -> bool:
        return not (self.differing or self.only_a or self.only_b)

    def __str__(self) -> str:
        differing = self.differing
        lines = [f"{len(self.pairs) - len(differing)} of {len(self.pairs)} tensors are equal"]
        for what, found in (("", [pair.text() for pair in differing]), ("only in a: ", self.only_a), ("only in b: ", self.only_b)):
            lines += [f"  {what}{escape(one)}" for one in found[:_MOST]]
            if len(found) > _MOST:
                lines.append(f"  {what}{len(found) - _MOST} more")
        return "\n".join(lines)


def compare(a: Given, b: Given) -> FingerprintComparison:
    """Which tensors two fingerprints share, and how each pair differs: bits, relative difference, cosine, factor, with their bounds.

    Tensors correspond by name; by name without the segments of wrappers; by a prefix that one side has, or that was renamed; and equal ones
    whatever their names. Of a tied weight one name is enough. A fused layer counts as its parts where the other side has these, and a
    weight with an adapter beside it as merged where the other side has no adapter.

    Args:
        a, b: fingerprints, files of ``Fingerprint.save``, or lists of files, one for each rank.

    Raises: UsageError where a file can't be read.
    """
    return _compared(*(one if isinstance(one, Fingerprint) else _loaded(one) for one in (a, b)))


def _loaded(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Fingerprint:
    return Fingerprint.load(*([given] if isinstance(given, str | os.PathLike) else given))


def _compared(a: Fingerprint, b: Fingerprint) -> FingerprintComparison:
    aligned = align(*([ObservedLayer(name, "", frozenset()) for name in one.tensors] for one in (a, b)))
    mates = {pair.a: pair.b for pair in aligned.pairs}
    keys = {_key(b.tensors[name]): name for name in reversed(aligned.only_b)}
    keys.pop(None, None)
    for name in aligned.only_a:
        mate = keys.pop(_key(a.tensors[name]), None)
        mates |= {} if mate is None else {name: mate}
    fused = {layer for name in mates for layer in layers_of_fused(name)}  # is compared as it is
    pairs = [_pair(name, one, mates[name], b.tensors[mates[name]]) for name, one in a.tensors.items() if name in mates.keys() - fused]
    only = [_without_twins(one, taken) for one, taken in ((a, set(mates)), (b, set(mates.values())))]
    return FingerprintComparison(tuple(pairs), tuple(only[0]), tuple(only[1]))


def _key(one: TensorPrint) -> tuple[object, ...] | None:
    whole = one.whole
    return None if whole is None or not whole.square_sum else (one.shape, one.dtype, whole.checksum)


def _without_twins(one: Fingerprint, taken: set[str]) -> list[str]:
    """Names without a mate, apart from those of tied tensors, of a fused layer whose parts have mates, of such parts, and of adapters."""
    twins = {_key(one.tensors[name]) for name in taken} - {None}
    known = set(one.tensors)
    parts = {layer: name for name in known for layer in layers_of_fused(name) if layer in known}
    covered = {name for layer, name in parts.items() if layer in taken}
    merged = any(tensor.merged is not None for tensor in one.tensors.values())
    return [
        name
        for name in one.tensors
        if name not in taken
        and _key(one.tensors[name]) not in twins
        and name not in covered
        and name not in parts
        and not (merged and ".lora_" in name)
    ]


def _pair(name: str, a: TensorPrint, mate: str, b: TensorPrint) -> TensorPair:
    if a.shape != b.shape:
        return TensorPair(name, mate, None, why=f"shapes {list(a.shape)} and {list(b.shape)}")
    left, right = a.whole, b.whole
    if left is None or right is None:
        if set(a.parts) != set(b.parts):
            return TensorPair(name, mate, None, why=f"parts of {'a' if left is None else 'b'} are missing: load the files of all ranks")
        return TensorPair(name, mate, likeness(merge_all(a.parts.values()), merge_all(b.parts.values()), a.dtype == b.dtype))
    same_type = a.dtype == b.dtype
    found = likeness(left, right, same_type)
    if (a.merged is None) == (b.merged is None):
        return TensorPair(name, mate, found)
    side = "a" if b.merged is None else "b"
    merged = likeness(a.merged or left, b.merged or right, same_type)
    why = f"and without it {found.text()}" if found.difference <= ROUNDING < merged.difference else ""
    return TensorPair(name, mate, merged, side, why)
