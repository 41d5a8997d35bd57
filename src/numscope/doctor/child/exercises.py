"""Collectives with known results: whole numbers in float32, small enough that every sum is exact in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from numscope.doctor.child.desk import Wire
from numscope.doctor.child.patterns import seed

_PERIOD = 1021  # of the numbers in a payload; a prime, so that no chunk equals its neighbor


@dataclass(slots=True)
class Party:
    """A group, as the member with an index in it sees it; ``substitutes`` names what replaces a collective that the backend lacks."""

    ranks: tuple[int, ...]
    index: int
    wire: Wire
    substitutes: dict[str, str] = field(default_factory=dict)

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
    expected: Callable[[Party, int], torch.Tensor] | None = None  # makes the exact result, likewise; None if there is none
    sizes: Callable[[Sequence[int]], Sequence[int]] = lambda sizes: sizes  # chooses those of the requested sizes with which it runs
    compares_bits: bool = False  # repeated runs must return the same bits

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        """The function to time, which returns the result."""
        chunk = _chunk(party, num_bytes)
        source = self.source(party, chunk)
        return lambda: self.run(party, source, chunk)

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        """What is wrong with the result; None if nothing."""
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


def _all_reduce(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    result = source.clone()
    dist.all_reduce(result, group=party.wire.group)
    return result


def _broadcast(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    result = source.clone()
    dist.broadcast(result, group_src=party.num - 1, group=party.wire.group)
    return result


def _all_gather(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    result = torch.empty(party.num * chunk, device=source.device)
    dist.all_gather_into_tensor(result, source, group=party.wire.group)
    return result


def _reduce_scatter(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    result = torch.empty(chunk, device=source.device)
    collective = dist.reduce_scatter_tensor
    if _supported(party, "reduce_scatter", "all_reduce", lambda: collective(result, source.clone(), group=party.wire.group)):
        return result
    return _all_reduce(party, source, chunk)[party.index * chunk : (party.index + 1) * chunk].clone()


def _all_to_all(party: Party, source: torch.Tensor, chunk: int) -> torch.Tensor:
    group = party.wire.group
    result = torch.empty_like(source)
    if _supported(party, "all_to_all", "isend and irecv", lambda: dist.all_to_all_single(result, source, group=group)):
        return result
    works = []
    for index in range(party.num):
        part = slice(index * chunk, (index + 1) * chunk)
        if index == party.index:
            result[part] = source[part]
            continue
        works.append(dist.isend(source[part], group_dst=index, group=group))
        works.append(dist.irecv(result[part], group_src=index, group=group))
    for work in filter(None, works):
        work.wait()
    return result


def _supported(party: Party, name: str, substitute: str, collective: Callable[[], object]) -> bool:
    """Runs a collective; returns False if the backend lacks it, which is the same on all ranks."""
    if name in party.substitutes:
        return False
    try:
        collective()
    except (RuntimeError, NotImplementedError) as error:
        if "support" not in str(error):
            raise
        party.substitutes[name] = substitute
    return name not in party.substitutes


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
        _broadcast,
        lambda party, chunk: party.numbers(party.num * chunk, 6 + party.num),
    ),
    Exercise(
        "all_gather",
        lambda party, chunk: party.numbers(chunk, party.index),
        _all_gather,
        lambda party, chunk: torch.cat([party.numbers(chunk, index) for index in range(party.num)]),
    ),
    Exercise(
        "reduce_scatter",
        _own_numbers,
        _reduce_scatter,
        lambda party, chunk: _summed(party, party.num * chunk)[party.index * chunk : (party.index + 1) * chunk],
    ),
    Exercise(
        "all_to_all",
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(party.index, to)) for to in range(party.num)]),
        _all_to_all,
        lambda party, chunk: torch.cat([party.numbers(chunk, _letter(index, party.index)) for index in range(party.num)]),
    ),
    # Random floats, whose sum depends on the order in its last bits.
    Exercise("float_sum", _random, _all_reduce, sizes=lambda sizes: sizes[min(1, len(sizes) - 1) :][:1], compares_bits=True),
)
