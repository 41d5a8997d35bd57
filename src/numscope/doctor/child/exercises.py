"""Data whose right values all ranks know: random bits from a seed, and collectives of whole numbers.

Whole numbers in float32 are small enough that every sum is exact in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from numscope.doctor.child.session import Wire

_PERIOD = 1021  # after which the numbers in a payload repeat; a prime, so that no chunk equals its neighbor


def seed(*words: object) -> int:
    """A number that is the same on all ranks for the same words."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "little") >> 1


def pattern(num_bytes: int, *words: object) -> torch.Tensor:
    """Random bytes, uint8 [num_bytes], the same on all ranks for the same words."""
    generator = torch.Generator().manual_seed(seed(*words))
    words64 = torch.empty(-(-num_bytes // 8), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return words64.view(torch.uint8)[:num_bytes]


def difference(got: torch.Tensor, expected: torch.Tensor) -> dict[str, int] | None:
    """Compares two uint8 tensors: the first offset in bytes, the number of bytes and of bits; None if they are equal.

    *Cost:* one comparison; more only if they differ.
    """
    if torch.equal(got, expected):
        return None
    bits = got ^ expected
    where = bits.nonzero().view(-1)
    wrong = bits[where]
    num_bits = sum(int(((wrong >> shift) & 1).sum()) for shift in range(8))
    return {"first_offset": int(where[0]), "num_bytes": len(where), "num_bits": num_bits}


def digest(tensor: torch.Tensor) -> str:
    """A fingerprint of a tensor's bits."""
    return hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:16]


@dataclass(slots=True)
class Party:
    """A group, as the member with an index in it sees it."""

    ranks: tuple[int, ...]
    index: int
    wire: Wire

    @property
    def num(self) -> int:
        return len(self.ranks)

    def slowest(self, seconds: float) -> float:
        """The maximum over all ranks."""
        value = torch.tensor([seconds], dtype=torch.float64, device=self.wire.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.wire.group)
        return float(value.item())

    def numbers(self, num: int, offset: int) -> torch.Tensor:
        """offset + 0, 1, 2, … up to the period, repeated; float32 [num]."""
        period = torch.arange(offset, offset + _PERIOD, dtype=torch.float32)
        return period.repeat(-(-num // _PERIOD))[:num].to(self.wire.device)


@dataclass(frozen=True, slots=True)
class Exercise:
    """A collective and its expected result."""

    name: str
    source: Callable[[Party, int], torch.Tensor]  # makes this rank's input, from the group and the number of elements per rank
    # the function to time, from the group, the input and the number of elements per rank
    run: Callable[[Party, torch.Tensor, int], torch.Tensor | None]
    expected: Callable[[Party, int], torch.Tensor] | None = None  # makes the exact result in the same way; None if there is none
    sizes: Callable[[Sequence[int]], Sequence[int]] = lambda sizes: sizes  # chooses those of the requested sizes with which it runs
    compares_bits: bool = False  # repeated runs must return the same bits

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        """The function to time, which returns the result."""
        chunk = _chunk(party, num_bytes)
        source = self.source(party, chunk)
        return lambda: self.run(party, source, chunk)

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        """Describes the wrong elements of the result; None if there are none."""
        expected = result if self.expected is None else self.expected(party, _chunk(party, num_bytes))
        if torch.equal(result, expected) or self.expected is None:
            return None
        where = (result != expected).nonzero().view(-1)
        first = int(where[0])
        got, right = float(result[first].item()), float(expected[first].item())
        return {"index": first, "got": got, "expected": right, "num_wrong": len(where), "num_elements": len(result)}


def _chunk(party: Party, num_bytes: int) -> int:
    """Elements in one rank's part of a payload."""
    return max(1, num_bytes // 4 // party.num)


def _filled(result: torch.Tensor, collective: Callable[..., object], party: Party, *source: torch.Tensor, **how: int) -> torch.Tensor:
    """The result, into which a collective writes."""
    collective(result, *source, group=party.wire.group, **how)
    return result


def _all_reduce(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    return _filled(source.clone(), dist.all_reduce, party)


def _summed(party: Party, num: int) -> torch.Tensor:
    return party.num * party.numbers(num, 0) + party.num * (party.num - 1) // 2


def _own_numbers(party: Party, chunk: int) -> torch.Tensor:
    return party.numbers(party.num * chunk, party.index)


def _random(party: Party, chunk: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed("sum", party.ranks[party.index]))
    return torch.randn(party.num * chunk, generator=generator).to(party.wire.device)


def _letter(sender: int, to: int) -> int:
    return (31 * sender + 17 * to) % 8191


EXERCISES = (
    Exercise(
        "barrier",
        lambda party, chunk: torch.empty(0),
        lambda party, source, chunk: dist.barrier(group=party.wire.group),
        sizes=lambda sizes: (0,),
    ),
    Exercise("all_reduce", _own_numbers, _all_reduce, lambda party, chunk: _summed(party, party.num * chunk)),
    Exercise(
        "broadcast",
        lambda party, chunk: party.numbers(party.num * chunk, 7 + party.index),
        lambda party, source, chunk: _filled(source.clone(), dist.broadcast, party, group_src=party.num - 1),
        lambda party, chunk: party.numbers(party.num * chunk, 6 + party.num),
    ),
    Exercise(
        "all_gather",
        lambda party, chunk: party.numbers(chunk, party.index),
        lambda party, source, chunk: _filled(source.new_empty(party.num * chunk), dist.all_gather_into_tensor, party, source),
        lambda party, chunk: torch.cat([party.numbers(chunk, index) for index in range(party.num)]),
    ),
    Exercise(
        "reduce_scatter",
        _own_numbers,
        lambda party, source, chunk: _filled(source.new_empty(chunk), dist.reduce_scatter_tensor, party, source.clone()),
        lambda party, chunk: _summed(party, party.num * chunk)[party.index * chunk : (party.index + 1) * chunk],
    ),
    Exercise(
        "all_to_all",
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(party.index, to)) for to in range(party.num)]),
        lambda party, source, chunk: _filled(torch.empty_like(source), dist.all_to_all_single, party, source),
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(index, party.index)) for index in range(party.num)]),
    ),
    # Random floats, whose sum depends on the order in its last bits.
    Exercise("float_sum", _random, _all_reduce, sizes=lambda sizes: sizes[min(1, len(sizes) - 1) :][:1], compares_bits=True),
)
