"""Where fp8 is on: a context that decides for converted layers which recipe they run by, or none."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from numscope.precision.gemms import LayerPlan
from numscope.precision.recipes import DelayedScaling, Recipe, recipe_of

__all__ = ["HIGH", "Region", "autocast", "region"]

HIGH: Final = LayerPlan()


class Region:
    """What the innermost ``autocast`` says; one for the process, as layers of one model may run in several threads."""

    __slots__ = ("depth", "enabled", "recipe")

    def __init__(self) -> None:
        self.depth = 0
        self.enabled = True
        self.recipe: Recipe | None = None


region: Final = Region()
FALLBACK: Final = DelayedScaling()  # of layers without a recipe of their own within ``autocast()``


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
        self._before: list[tuple[bool, Recipe | None]] = []

    def __enter__(self) -> autocast:
        self._before.append((region.enabled, region.recipe))
        region.depth += 1
        region.enabled, region.recipe = self.enabled, self.recipe
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        region.depth -= 1
        region.enabled, region.recipe = self._before.pop()

    def __call__(self, function):  # type: ignore[no-untyped-def]
        import functools

        @functools.wraps(function)
        def within(*args, **kwargs):  # type: ignore[no-untyped-def]
            with autocast(self.enabled, self.recipe):
                return function(*args, **kwargs)

        return within
