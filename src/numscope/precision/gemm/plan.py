"""The three GEMMs of a linear layer, their operands, and a plan that says how each operand is quantized."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, Final

from numscope.precision.casting.scaling import How
from numscope.records.errors import UsageError
from numscope.records.layer import GEMMS
from numscope.records.words import nearest

__all__ = ["GEMMS", "OPERANDS", "LayerPlan"]

OPERANDS: Final = (
    ("fprop", "activation"),
    ("fprop", "weight"),
    ("dgrad", "gradient"),
    ("dgrad", "weight"),
    ("wgrad", "gradient"),
    ("wgrad", "activation"),
)
# Operands that their GEMM takes transposed: rows and blocks of one scale lie along the summed dimension, which is the first one here.
COLUMNWISE: Final = frozenset({("dgrad", "weight"), ("wgrad", "gradient"), ("wgrad", "activation")})
_FIELDS: Final = tuple(f"{gemm}_{operand}" for gemm, operand in OPERANDS)


_one: Final[dict[How, How]] = {}  # equal ones of all plans are one object: GEMMs that share a cast are known without a comparison


class LayerPlan(Mapping[tuple[str, str], How | None]):
    """How a layer's three GEMMs take their operands; immutable, and equal to a plan that says the same.

    Args:
        hows: (GEMM, operand) → how it is quantized; None, or absent: it is taken as it is. A GEMM of two such operands is bitwise torch's.
    """

    __slots__ = ("_hash", "_hows", "high", *_FIELDS)

    fprop_activation: How | None
    fprop_weight: How | None
    dgrad_gradient: How | None
    dgrad_weight: How | None
    wgrad_gradient: How | None
    wgrad_activation: How | None
    high: bool  # all three GEMMs are torch's
    _hows: tuple[How | None, ...]
    _hash: int

    def __init__(self, hows: Mapping[tuple[str, str], How | None] | None = None) -> None:
        hows = {} if hows is None else hows
        for key in hows:
            if key not in OPERANDS:
                raise UsageError(f"LayerPlan: got {key!r}, expected one of {', '.join(map(repr, OPERANDS))}.")
        held = tuple(hows.get(key) for key in OPERANDS)
        for key, how in zip(OPERANDS, held, strict=True):
            if how is not None and not isinstance(how, How):
                raise UsageError(f"LayerPlan: {' '.join(key)}: got {how!r}, expected a How, or None for high precision.")
        held = tuple(how and _one.setdefault(how, how) for how in held)
        put = object.__setattr__
        put(self, "_hows", held)
        put(self, "_hash", hash(held))
        put(self, "high", not any(held))
        for field, how in zip(_FIELDS, held, strict=True):
            put(self, field, how)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"LayerPlan: {name}: a plan is immutable. Use replace() or with_high().")

    def __getitem__(self, key: tuple[str, str]) -> How | None:
        return self._hows[OPERANDS.index(key)] if key in OPERANDS else self._missing(key)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(OPERANDS)

    def __len__(self) -> int:
        return len(OPERANDS)

    def __eq__(self, other: object) -> bool:
        return self._hows == other._hows if isinstance(other, LayerPlan) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[LayerPlan], tuple[dict[tuple[str, str], How | None]]]:
        return LayerPlan, (dict(zip(OPERANDS, self._hows, strict=True)),)

    def __repr__(self) -> str:
        return f"LayerPlan({self.text()})"

    def items(self) -> ItemsView[tuple[str, str], How | None]:
        return dict(zip(OPERANDS, self._hows, strict=True)).items()

    def is_high(self, gemm: str) -> bool:
        """Whether a GEMM takes both operands as they are.

        Args:
            gemm: one of ``GEMMS``.

        Raises:
            UsageError: of another name.
        """
        _check_gemm(gemm)
        return all(how is None for (of, _), how in self.items() if of == gemm)

    def with_high(self, gemms: Iterable[str] = GEMMS) -> LayerPlan:
        """The same with some GEMMs in high precision.

        Args:
            gemms: of ``GEMMS``.

        Raises:
            UsageError: of another name.
        """
        gemms = _check_gemms(gemms)
        return self.replace({key: None for key in OPERANDS if key[0] in gemms})

    def replace(self, changes: Mapping[tuple[str, str], How | None]) -> LayerPlan:
        """The same with some operands changed.

        Args:
            changes: (GEMM, operand) → how, or None.
        """
        return LayerPlan({**dict(self.items()), **changes})

    def moved_to(self, old: LayerPlan, new: LayerPlan) -> LayerPlan:
        """What was changed of one plan, on top of another: how switches outlast a change of recipes.

        Args:
            old: what this plan was made from.
            new: what it is to be made from now.
        """
        return new.replace({key: how for key, how in self.items() if how != old[key]})

    def text(self) -> str:
        """One line for logs: ``fprop e4m3fn delayed × e4m3fn delayed, dgrad high precision, …``."""
        said = []
        for gemm in GEMMS:
            first, second = (how for (of, _), how in self.items() if of == gemm)
            said.append(f"{gemm} {'high precision' if first is second is None else f'{_word(first)} × {_word(second)}'}")
        return ", ".join(said)

    def rows(self) -> list[tuple[str, str, str]]:
        """GEMM, operand and how in words, in the order of ``OPERANDS``."""
        return [(gemm, operand, _word(how)) for (gemm, operand), how in self.items()]

    def _missing(self, key: Any) -> How | None:
        raise KeyError(key)


def _word(how: How | None) -> str:
    return "high" if how is None else how.text()


def _check_gemm(gemm: str) -> None:
    if gemm not in GEMMS:
        raise UsageError(f"gemms: got {gemm!r}, expected one of {', '.join(GEMMS)}.{nearest(str(gemm), GEMMS)}")


def _check_gemms(gemms: Iterable[str]) -> frozenset[str]:
    if isinstance(gemms, str):
        raise UsageError(f"gemms: got {gemms!r}, expected a list of {', '.join(GEMMS)}, such as [{gemms!r}].")
    gemms = tuple(gemms)
    for gemm in gemms:
        _check_gemm(gemm)
    return frozenset(gemms)
