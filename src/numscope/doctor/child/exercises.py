"""Collectives with known results: whole numbers in float32, small enough that every sum is exact in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from numscope.doctor.child.desk import Wire
from numscope.doctor.child.patterns import seed

_PERIOD = 1021  # of the numbers in a payload; a prime, so that no chunk equals its neighbor


@dataclass(slots=True)
class Party:
    """A group, as one of its members sees it.

    Args:
        index: of this rank in the group.
        substitutes: filled with what replaces a collective that the backend lacks.
    """

    ranks: tuple[int, ...]
    index: int
    wire: Wire
    substitutes: dict[str, str] = field(default_factory=dict)

    @property
    def num(self) -> int:
        return len(self.ranks)

    def slowest(self, seconds: float) -> float:
        """The maximum over all ranks."""
        import torch.distributed as dist

        value = torch.tensor([seconds], dtype=torch.float64, device=self.wire.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.wire.group)
        return float(value.item())

    def numbers(self, num: int, offset: int) -> torch.Tensor:
        """offset + 0, 1, 2, … up to the period, repeated; float32 [num]."""
        period = torch.arange(offset, offset + _PERIOD, dtype=torch.float32)
        return period.repeat(-(-num // _PERIOD))[:num].to(self.wire.device)


class Exercise(Protocol):
    """A collective and its expected result.

    ``compares_bits``: repeated runs must return the same bits.
    """

    @property
    def name(self) -> str: ...

    @property
    def compares_bits(self) -> bool: ...

    def sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        """The requested sizes with which it runs."""
        ...

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        """The function to time, which returns the result."""
        ...

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        """What is wrong with the result; None if nothing."""
        ...


@dataclass(frozen=True, slots=True)
class _Exact:
    """A collective with an exact result.

    Args:
        run: makes the function to time, from the group and the number of elements per rank.
        expected: makes the result, likewise.
    """

    name: str
    run: Callable[[Party, int], Callable[[], torch.Tensor]]
    expected: Callable[[Party, int], torch.Tensor]
    compares_bits: bool = False

    def sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        return sizes

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        return self.run(party, _chunk(party, num_bytes))

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        expected = self.expected(party, _chunk(party, num_bytes))
        if torch.equal(result, expected):
            return None
        where = (result != expected).nonzero().view(-1)
        first = int(where[0])
        got, right = float(result[first].item()), float(expected[first].item())
        return {"index": first, "got": got, "expected": right, "num_wrong": len(where), "num_elements": len(result)}


class _FloatSum:
    """A sum of random floats, whose last bits depend on the order."""

    name = "float_sum"
    compares_bits = True

    def sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        return sizes[min(1, len(sizes) - 1) :][:1]

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        import torch.distributed as dist

        generator = torch.Generator().manual_seed(seed("sum", party.ranks[party.index]))
        source = torch.randn(party.num * _chunk(party, num_bytes), generator=generator).to(party.wire.device)

        def run() -> torch.Tensor:
            result = source.clone()
            dist.all_reduce(result, group=party.wire.group)
            return result

        return run

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        return None


class _Barrier:
    name = "barrier"
    compares_bits = False

    def sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        return (0,)

    def prepare(self, party: Party, num_bytes: int) -> Callable[[], torch.Tensor | None]:
        import torch.distributed as dist

        return lambda: dist.barrier(group=party.wire.group)

    def check(self, party: Party, num_bytes: int, result: torch.Tensor) -> dict[str, Any] | None:
        return None


def _chunk(party: Party, num_bytes: int) -> int:
    """Elements in one rank's part of a payload."""
    return max(1, num_bytes // 4 // party.num)


def _all_reduce(party: Party, chunk: int) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist

    source = party.numbers(party.num * chunk, party.index)

    def run() -> torch.Tensor:
        result = source.clone()
        dist.all_reduce(result, group=party.wire.group)
        return result

    return run


def _summed(party: Party, num: int) -> torch.Tensor:
    return party.num * party.numbers(num, 0) + party.num * (party.num - 1) // 2


def _broadcast(party: Party, chunk: int) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist

    source = party.numbers(party.num * chunk, 7 + party.index)

    def run() -> torch.Tensor:
        result = source.clone()
        dist.broadcast(result, group_src=party.num - 1, group=party.wire.group)
        return result

    return run


def _all_gather(party: Party, chunk: int) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist

    source = party.numbers(chunk, party.index)

    def run() -> torch.Tensor:
        result = torch.empty(party.num * chunk, device=source.device)
        dist.all_gather_into_tensor(result, source, group=party.wire.group)
        return result

    return run


def _gathered(party: Party, chunk: int) -> torch.Tensor:
    return torch.cat([party.numbers(chunk, index) for index in range(party.num)])


def _reduce_scatter(party: Party, chunk: int) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist

    source = party.numbers(party.num * chunk, party.index)

    def run() -> torch.Tensor:
        result = torch.empty(chunk, device=source.device)
        if "reduce_scatter" not in party.substitutes:
            try:
                dist.reduce_scatter_tensor(result, source.clone(), group=party.wire.group)
                return result
            except (RuntimeError, NotImplementedError) as error:
                if "support" not in str(error):
                    raise
                party.substitutes["reduce_scatter"] = "all_reduce"  # the same on all ranks
        whole = source.clone()
        dist.all_reduce(whole, group=party.wire.group)
        return whole[party.index * chunk : (party.index + 1) * chunk].clone()

    return run


def _scattered(party: Party, chunk: int) -> torch.Tensor:
    return _summed(party, party.num * chunk)[party.index * chunk : (party.index + 1) * chunk]


def _all_to_all(party: Party, chunk: int) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist

    source = torch.cat([party.numbers(chunk, _letter(party.index, to)) for to in range(party.num)])

    def run() -> torch.Tensor:
        result = torch.empty_like(source)
        if "all_to_all" not in party.substitutes:
            try:
                dist.all_to_all_single(result, source, group=party.wire.group)
                return result
            except (RuntimeError, NotImplementedError) as error:
                if "support" not in str(error):
                    raise
                party.substitutes["all_to_all"] = "isend and irecv"
        works = []
        for index in range(party.num):
            part = slice(index * chunk, (index + 1) * chunk)
            if index == party.index:
                result[part] = source[part]
                continue
            works.append(dist.isend(source[part], group_dst=index, group=party.wire.group))
            works.append(dist.irecv(result[part], group_src=index, group=party.wire.group))
        for work in works:
            if work is not None:
                work.wait()
        return result

    return run


def _delivered(party: Party, chunk: int) -> torch.Tensor:
    return torch.cat([party.numbers(chunk, _letter(index, party.index)) for index in range(party.num)])


def _letter(sender: int, to: int) -> int:
    return (31 * sender + 17 * to) % 8191


EXERCISES: tuple[Exercise, ...] = (
    _Barrier(),
    _Exact("all_reduce", _all_reduce, lambda party, chunk: _summed(party, party.num * chunk)),
    _Exact("broadcast", _broadcast, lambda party, chunk: party.numbers(party.num * chunk, 6 + party.num)),
    _Exact("all_gather", _all_gather, _gathered),
    _Exact("reduce_scatter", _reduce_scatter, _scattered),
    _Exact("all_to_all", _all_to_all, _delivered),
    _FloatSum(),
)
