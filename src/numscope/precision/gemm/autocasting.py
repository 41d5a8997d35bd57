"""``autocast``: a context that decides which recipe converted layers run by, or that they compute in high precision."""

from __future__ import annotations

from contextlib import ContextDecorator
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import DelayedScaling, Recipe, recipe_of

HIGH: Final = LayerPlan()
FALLBACK: Final = DelayedScaling()  # within ``autocast()``, for layers whose own recipe is HighPrecision
_recipes: Final[list[Recipe]] = [FALLBACK]  # those that an autocast has named, by number, from 1


@dataclass(slots=True, eq=False)
class _Region:
    """The settings of the innermost ``autocast``. There is one per process, as layers of one model may run in several threads."""

    depth: int = 0
    enabled: bool = True
    recipe: Recipe | None = None
    number: int = 0  # the recipe's number, 0 without one


region: Final = _Region()


def numbered(number: int) -> Recipe:
    """The recipe that ``region`` had with a number, from 1: compiled graphs store recipes as numbers."""
    return _recipes[number - 1]


def _number_of(recipe: Recipe) -> int:
    """A recipe's number. Equal recipes that share amaxes in different process groups have different numbers."""
    group = getattr(recipe, "amax_group", None)
    for number, known in enumerate(_recipes, 1):
        if known == recipe and getattr(known, "amax_group", None) is group:
            return number
    _recipes.append(recipe)
    return len(_recipes)


class autocast(ContextDecorator):
    """A context in which converted layers run by a recipe. Contexts nest; the innermost one decides.

    Outside, each layer runs by the recipe that it was converted with. A backward runs as its forward did. A context can be entered again,
    and it can decorate a function.

    Args:
        enabled: False: converted layers compute in high precision.
        recipe: a recipe or its name; None: each layer's own, or ``DelayedScaling()`` if that is ``HighPrecision()``.

    Raises: UsageError: an unknown recipe.
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

    def _recreate_cm(self) -> autocast:
        """The context of one call of a decorated function."""
        return autocast(self.enabled, self.recipe)
