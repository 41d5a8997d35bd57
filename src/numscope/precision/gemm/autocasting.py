"""Where fp8 is on: a context that decides for converted layers which recipe they run by, or none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import DelayedScaling, Recipe, recipe_of

__all__ = ["FALLBACK", "HIGH", "autocast", "numbered", "region"]

P = ParamSpec("P")
R = TypeVar("R")

HIGH: Final = LayerPlan()


FALLBACK: Final = DelayedScaling()  # within ``autocast()``, of layers whose own recipe is HighPrecision
_recipes: Final[list[Recipe]] = [FALLBACK]  # that some autocast has named, from number 1


class _Region:
    """What the innermost ``autocast`` says; one for the process, as layers of one model may run in several threads."""

    __slots__ = ("depth", "enabled", "number", "recipe")

    def __init__(self) -> None:
        self.depth = 0
        self.enabled = True
        self.recipe: Recipe | None = None
        self.number = 0  # of the recipe; 0 for none


region: Final = _Region()


def numbered(number: int) -> Recipe:
    """The recipe of a number that ``region`` had: compiled graphs know recipes by it.

    Args:
        number: from 1.
    """
    return _recipes[number - 1]


def _number_of(recipe: Recipe) -> int:
    """Of a recipe; one that shares amaxes in another process group is another, though the two are equal."""
    group = getattr(recipe, "amax_group", None)
    for number, known in enumerate(_recipes, 1):
        if known == recipe and getattr(known, "amax_group", None) is group:
            return number
    _recipes.append(recipe)
    return len(_recipes)


class autocast:
    """Within it converted layers run by a recipe; the innermost one decides. Outside each runs by what it was converted with.

    Args:
        enabled: False: converted layers compute in high precision.
        recipe: a recipe or its name; None: each layer's own, ``DelayedScaling()`` where that is ``HighPrecision()``.

    Raises:
        UsageError: of a name that no recipe has.

    It may be entered again, and decorate a function. Backward follows the forward that it belongs to.
    """

    def __init__(self, enabled: bool = True, recipe: Recipe | LayerPlan | str | None = None) -> None:
        self.enabled = bool(enabled)
        self.recipe = None if recipe is None else recipe_of(recipe, "autocast: recipe")
        self._number = 0 if self.recipe is None else _number_of(self.recipe)
        self._before: list[tuple[bool, Recipe | None, int]] = []

    def __enter__(self) -> autocast:
        self._before.append((region.enabled, region.recipe, region.number))
        region.depth += 1
        region.enabled, region.recipe, region.number = self.enabled, self.recipe, self._number
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        region.depth -= 1
        region.enabled, region.recipe, region.number = self._before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with autocast(self.enabled, self.recipe):
                return function(*args, **kwargs)

        return within
