"""The three GEMMs of a linear layer, their operands, and the plan that decides how each operand is quantized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from numscope.precision.casting.scaling import How
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError
from numscope.records.layer import GEMMS

OPERANDS: Final = (
    ("fprop", "activation"),
    ("fprop", "weight"),
    ("dgrad", "gradient"),
    ("dgrad", "weight"),
    ("wgrad", "gradient"),
    ("wgrad", "activation"),
)
# Operands that their GEMM takes transposed: rows and blocks that share a scale run along the first dimension, which is summed over.
COLUMNWISE: Final = frozenset({("dgrad", "weight"), ("wgrad", "gradient"), ("wgrad", "activation")})

_interned: Final[dict[How, How]] = {}  # equal ones in all plans are one object, so that GEMMs compare them by identity


class LayerPlan(Mapping[tuple[str, str], How | None]):
    """How each operand of a layer's three GEMMs is quantized. Plans are immutable values.

    Args:
        hows: (GEMM, operand) → how it is quantized. None or a missing key leaves the operand in high precision. A GEMM with two such
            operands is bitwise torch's.

    Raises: UsageError: for a key that is not in ``OPERANDS``, or a value that is neither a ``How`` nor None.
    """

    __slots__ = ("_hows", "high")

    high: bool  # all three GEMMs are torch's
    _hows: dict[tuple[str, str], How | None]

    def __init__(self, hows: Mapping[tuple[str, str], How | None] | None = None) -> None:
        hows = {} if hows is None else hows
        for key, how in hows.items():
            if key not in OPERANDS:
                raise UsageError(f"LayerPlan: got {key!r}, expected one of {', '.join(map(repr, OPERANDS))}.")
            if how is not None and not isinstance(how, How):
                raise UsageError(f"LayerPlan: {' '.join(key)}: got {how!r}, expected a How, or None for high precision.")
        found = {key: how and _interned.setdefault(how, how) for key, how in ((key, hows.get(key)) for key in OPERANDS)}
        object.__setattr__(self, "_hows", found)
        object.__setattr__(self, "high", not any(found.values()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"LayerPlan: {name}: a plan is immutable. Use replace() or with_high().")

    def __getitem__(self, key: tuple[str, str]) -> How | None:
        return self._hows[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(OPERANDS)

    def __len__(self) -> int:
        return len(OPERANDS)

    def __eq__(self, other: object) -> bool:
        return self._hows == other._hows if isinstance(other, LayerPlan) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._hows.values()))

    def __reduce__(self) -> tuple[type[LayerPlan], tuple[dict[tuple[str, str], How | None]]]:
        return LayerPlan, (self._hows,)

    def __repr__(self) -> str:
        return f"LayerPlan({self.text()})"

    def is_high(self, gemm: str) -> bool:
        """Whether a GEMM takes both of its operands in high precision.

        Args:
            gemm: one of ``GEMMS``.

        Raises: UsageError: for any other name.
        """
        check_one_of("gemms", gemm, GEMMS)
        return all(how is None for (of, _), how in self.items() if of == gemm)

    def with_high(self, gemms: Iterable[str] = GEMMS) -> LayerPlan:
        """The same plan with some GEMMs in high precision.

        Args:
            gemms: a list of names from ``GEMMS``.

        Raises: UsageError: for any other name, or for a single string.
        """
        if isinstance(gemms, str):
            raise UsageError(f"gemms: got {gemms!r}, expected a list of {', '.join(GEMMS)}, such as [{gemms!r}].")
        gemms = tuple(gemms)
        for gemm in gemms:
            check_one_of("gemms", gemm, GEMMS)
        return self.replace({key: None for key in OPERANDS if key[0] in gemms})

    def replace(self, changes: Mapping[tuple[str, str], How | None]) -> LayerPlan:
        """The same plan with some operands changed: (GEMM, operand) → how it is quantized, or None."""
        return LayerPlan({**self._hows, **changes})

    def moved_to(self, old: LayerPlan, new: LayerPlan) -> LayerPlan:
        """The changes that this plan made to one plan, applied to another: this is how a switch outlasts a change of recipe."""
        return new.replace({key: how for key, how in self.items() if how != old[key]})

    def text(self) -> str:
        """One line for logs: ``fprop e4m3fn delayed × e4m3fn delayed, dgrad high precision, …``."""
        parts = []
        for gemm in GEMMS:
            first, second = (how for (of, _), how in self.items() if of == gemm)
            parts.append(f"{gemm} {'high precision' if first is second is None else f'{_word(first)} × {_word(second)}'}")
        return ", ".join(parts)

    def rows(self) -> list[tuple[str, str, str]]:
        """GEMM, operand and format in words, in the order of ``OPERANDS``."""
        return [(gemm, operand, _word(how)) for (gemm, operand), how in self.items()]


def _word(how: How | None) -> str:
    return "high" if how is None else how.text()
