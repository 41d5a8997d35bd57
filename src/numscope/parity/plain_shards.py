"""Plain tensors that are shards of another run's: where each lies in the whole, found by its bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from numscope.records.fingerprint import TensorPrint
from numscope.summary.checksum import Checksums
from numscope.summary.sketch import Piece, part_of
from numscope.summary.unseen import unseen

_SHARES = (2, 3, 4, 6, 8)  # ranks that a plain tensor may be spread over


def shares(parameters: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Of each parameter, checksums of its equal parts along its first two dimensions, by dimension, number of parts and index."""
    with unseen():
        for name, parameter in parameters:
            part = part_of(parameter)
            own = part.tensor
            dims = [] if part.place or part.unflat else [*range(min(own.dim(), 2))]
            cuts = [(d, n) for d in dims for n in _SHARES if own.shape[d] % n == 0]
            pieces = [(f"{d}/{n}/{i}", piece) for d, n in cuts for i, piece in enumerate(own.chunk(n, d))]
            yield name, dict(zip([key for key, _ in pieces], sums([piece for _, piece in pieces]), strict=True))


@dataclass(slots=True)
class PlainShards:
    """Of this rank's plain shards.

    Args:
        found: by name, the whole's shape, and which share of it.
    """

    found: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def find(
        self, parameters: Iterable[tuple[str, Tensor]], wholes: Mapping[str, TensorPrint], known: Mapping[str, Mapping[str, str]]
    ) -> None:
        """By bits; of those with equal bits (zeros) by the share that this rank has of others.

        Args:
            wholes: the other run's.
            known: what ``shares`` gave there.
        """
        likely = dict[str, list[str]]()
        for name, parameter in parameters:
            part, whole = part_of(parameter), wholes.get(name)
            if whole is not None and not part.place and part.unflat is None and whole.shape != part.shape:
                own = sums([part.tensor])[0]
                alike = [key for key, one in known.get(name, {}).items() if one == own]
                likely[name] = [key for key in alike if _cut(whole.shape, key) == part.shape]
        sure = {keys[0].partition("/")[2] for keys in likely.values() if len(keys) == 1}
        for name, keys in likely.items():
            left = [key for key in keys if key.partition("/")[2] in sure]
            if len(left) == 1:
                self.found[name] = wholes[name].shape, left[0]

    def placed(self, name: str, part: Piece) -> Piece:
        """The part, with its place in the whole where that is known."""
        if name not in self.found or part.place or part.unflat is not None:
            return part
        shape, key = self.found[name]
        along, _, index = map(int, key.split("/"))
        return Piece.at(part.tensor, shape, [index * n if d == along else 0 for d, n in enumerate(part.shape)])


def _cut(shape: tuple[int, ...], key: str) -> tuple[int, ...]:
    along, num, _ = map(int, key.split("/"))
    return tuple(n // num if d == along else n for d, n in enumerate(shape))


def sums(tensors: list[Tensor]) -> list[str]:
    """Checksums as text: numbers of 64 bits do not survive JSON everywhere."""
    return [f"{value:016x}" for value in Checksums(tensors).read()]
