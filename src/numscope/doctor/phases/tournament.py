"""A round-robin tournament: every pair meets once, and the pairs of a round are disjoint (circle method)."""

from __future__ import annotations


def num_rounds(num: int) -> int:
    """Rounds until all of ``num`` have met each other."""
    return num - 1 + num % 2 if num > 1 else 0


def opponent(index: int, round_: int, num: int) -> int | None:
    """Whom number ``index`` of ``num`` meets in a round; None if it pauses, as one does in each round of an odd number."""
    circle = num - 1 + num % 2  # all but the one in the center, which is absent for an odd number
    center = circle if num % 2 == 0 else None
    if index == center:
        return round_ % circle
    other = (2 * round_ - index) % circle
    return center if other == index else other


def rounds_to_play(num: int, quick: bool) -> list[int]:
    """All rounds; with ``quick`` and more than 16, only 0, 1, 2, 4, 8, …"""
    rounds = num_rounds(num)
    if quick and num > 16:
        return [0, *(1 << power for power in range(rounds.bit_length()) if 1 << power < rounds)]
    return list(range(rounds))
