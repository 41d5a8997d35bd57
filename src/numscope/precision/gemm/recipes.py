"""Recipes: which format and scaling each operand of each GEMM has, by the names that Transformer Engine and torchao gave them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from numscope.precision.casting.delayed import History
from numscope.precision.casting.scaling import PER_ROW, PER_TENSOR, How, Scaling
from numscope.precision.gemm.plan import OPERANDS, LayerPlan
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of
from numscope.records.words import nearest

__all__ = [
    "E4M3",
    "E5M2",
    "HYBRID",
    "MXFP8",
    "NVFP4",
    "RECIPES",
    "BlockScaling",
    "CurrentScaling",
    "Custom",
    "DelayedScaling",
    "HighPrecision",
    "Recipe",
    "RowwiseScaling",
    "recipe_of",
]

# Formats of fp8 recipes: e4m3 forward with e5m2 gradients, or one for all.
HYBRID: Final = "hybrid"
E4M3: Final = "e4m3"
E5M2: Final = "e5m2"
_FP8_FORMATS: Final = (HYBRID, E4M3, E5M2)


class Recipe:
    """What all recipes can do. Recipes are immutable values; two that say the same are equal."""

    __slots__ = ()

    def plan(self) -> LayerPlan:
        """What a layer's GEMMs do under it."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """As ``recipe_of`` takes it."""
        return next(name for name, recipe in RECIPES.items() if recipe is type(self))

    @property
    def is_high(self) -> bool:
        """Whether all GEMMs stay in high precision."""
        return False

    def __copy__(self) -> Recipe:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return self  # immutable; its process group can't be copied, and a copy of a model shares amaxes in the same one

    def __getstate__(self) -> dict[str, Any]:
        # A process group is its process's own: whoever loads a pickle gives another, or shares with all ranks.
        return {name: None if name == "amax_group" else value for name, value in self.__dict__.items()}


@dataclass(frozen=True)
class DelayedScaling(Recipe):
    """One scale a tensor, from the amaxes of the steps before; fp8 in one pass over each operand.

    Args:
        fp8_format: ``hybrid`` (e4m3, gradients e5m2), ``e4m3`` or ``e5m2``.
        margin: scales are divided by 2 to this power.
        amax_history_len: steps whose amaxes count.
        amax_compute_algo: the largest of them, or the last.
        interval: steps from one new scale to the next.
        reduce_amax: whether ranks share amaxes at the end of a step.
        amax_group: process group to share them in; None: all ranks. A pickle leaves it out.

    *Source:* Micikevicius et al., "FP8 Formats for Deep Learning", 2022; defaults as Transformer Engine's recipe of this name.
    """

    fp8_format: str = HYBRID
    margin: int = 0
    amax_history_len: int = 1024
    amax_compute_algo: Literal["max", "most_recent"] = "max"
    interval: int = 1
    reduce_amax: bool = True
    amax_group: Any = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        _take_fp8_format(self)
        self.history(How(format_of(E4M3), margin=self.margin), "meta")  # refuses what is out of range

    def plan(self) -> LayerPlan:
        forward, backward = _formats(self.fp8_format)
        return _plan(lambda operand: How(backward if operand == "gradient" else forward, margin=self.margin, delayed=True))

    def history(self, how: How, device: Any = "cpu") -> History:
        """A fresh history of one operand.

        Args:
            how: the operand's; its margin counts.
            device: of its tensors.
        """
        return History(how.format, self.amax_history_len, self.amax_compute_algo, how.margin, self.interval, device)


@dataclass(frozen=True)
class CurrentScaling(Recipe):
    """One scale a tensor, from its own amax.

    Args:
        fp8_format: ``hybrid`` (e4m3, gradients e5m2), ``e4m3`` or ``e5m2``.
        margin: scales are divided by 2 to this power.
        power_of_two: scales are rounded down to powers of two.
        reduce_amax: whether ranks share amaxes of activations and gradients; one all-reduce a tensor.
        amax_group: process group to share them in; None: all ranks. A pickle leaves it out.
    """

    fp8_format: str = HYBRID
    margin: int = 0
    power_of_two: bool = False
    reduce_amax: bool = False
    amax_group: Any = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        _take_fp8_format(self)
        self.plan()

    def plan(self) -> LayerPlan:
        forward, backward = _formats(self.fp8_format)
        scaling = dataclasses.replace(PER_TENSOR, power_of_two=self.power_of_two)
        return _plan(lambda operand: How(backward if operand == "gradient" else forward, scaling, self.margin))


@dataclass(frozen=True)
class RowwiseScaling(Recipe):
    """A scale for each row of what a GEMM takes: each token, each output feature.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.
        power_of_two: scales are rounded down to powers of two.
    """

    fp8_format: str = E4M3
    power_of_two: bool = False

    def __post_init__(self) -> None:
        _take_fp8_format(self)

    def plan(self) -> LayerPlan:
        forward, backward = _formats(self.fp8_format)
        scaling = dataclasses.replace(PER_ROW, power_of_two=self.power_of_two)
        return _plan(lambda operand: How(backward if operand == "gradient" else forward, scaling))


@dataclass(frozen=True)
class BlockScaling(Recipe):
    """A scale for each 1 × 128 of activations and gradients and for each 128 × 128 of weights.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.
        power_of_two: scales are rounded down to powers of two.

    *Source:* DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.
    """

    fp8_format: str = E4M3
    power_of_two: bool = True

    def __post_init__(self) -> None:
        _take_fp8_format(self)

    def plan(self) -> LayerPlan:
        forward, backward = _formats(self.fp8_format)
        return _plan(
            lambda operand: How(
                backward if operand == "gradient" else forward,
                Scaling("block", (128, 128) if operand == "weight" else (1, 128), self.power_of_two),
            )
        )


@dataclass(frozen=True)
class MXFP8(Recipe):
    """A power of two for each 32 elements along the summed dimension.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.

    *Source:* OCP Microscaling Formats 1.0; Rouhani et al., "Microscaling Data Formats for Deep Learning", 2023.
    """

    fp8_format: str = E4M3

    def __post_init__(self) -> None:
        _take_fp8_format(self)

    def plan(self) -> LayerPlan:
        forward, backward = _formats(self.fp8_format)
        scaling = Scaling("block", (1, 32), power_of_two=True, scale_format="e8m0")
        return _plan(lambda operand: How(backward if operand == "gradient" else forward, scaling))


@dataclass(frozen=True)
class NVFP4(Recipe):
    """Four bits: an e4m3 scale for each 16 elements (weights: 16 × 16) under one float32 scale of the tensor.

    Args:
        two_dimensional_weights: blocks of weights are 16 × 16, the same in forward and backward; else 1 × 16.
        stochastic_rounding: of gradients, from torch's own generator. Off, so that a run can be done again bitwise.

    *Source:* NVIDIA, "Pretraining Large Language Models with NVFP4", 2025; without its random Hadamard transform.
    """

    two_dimensional_weights: bool = True
    stochastic_rounding: bool = False

    def plan(self) -> LayerPlan:
        def how(operand: str) -> How:
            block = (16, 16) if operand == "weight" and self.two_dimensional_weights else (1, 16)
            rounding: Literal["nearest_even", "stochastic"] = (
                "stochastic" if operand == "gradient" and self.stochastic_rounding else "nearest_even"
            )
            return How(format_of("e2m1fn"), Scaling("block", block, scale_format="e4m3fn"), rounding=rounding)

        return _plan(how)


@dataclass(frozen=True)
class HighPrecision(Recipe):
    """All three GEMMs as torch has them: what switches and ``autocast`` begin from."""

    def plan(self) -> LayerPlan:
        return LayerPlan()

    @property
    def is_high(self) -> bool:
        return True


@dataclass(frozen=True)
class Custom(Recipe):
    """A plan of one's own: any format and scaling for each operand of each GEMM.

    Args:
        layer_plan: how each operand is quantized.
        delayed: what amax histories of its delayed operands are like; None: as ``DelayedScaling()``.
    """

    layer_plan: LayerPlan
    delayed: DelayedScaling | None = None

    def plan(self) -> LayerPlan:
        return self.layer_plan

    @property
    def is_high(self) -> bool:
        return self.layer_plan.high


RECIPES: Final[dict[str, type[Recipe]]] = {
    "delayed": DelayedScaling,
    "current": CurrentScaling,
    "rowwise": RowwiseScaling,
    "block": BlockScaling,
    "mxfp8": MXFP8,
    "nvfp4": NVFP4,
    "high_precision": HighPrecision,
    "custom": Custom,
}
_ALIASES: Final = {"mx": "mxfp8", "high": "high_precision", "block_scaling": "block", "fp8": "delayed"}


def recipe_of(recipe: Recipe | LayerPlan | str | type[Recipe] | None, where: str = "recipe") -> Recipe:
    """The recipe of a name.

    Args:
        recipe: ``delayed``, ``current``, ``rowwise``, ``block``, ``mxfp8``, ``nvfp4`` or ``high_precision``; a recipe is returned as it is;
            a plan becomes a recipe of its own; None: ``DelayedScaling()``.
        where: begins the error's message.

    Raises:
        UsageError: of a name that no recipe has.
    """
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is None:
        return DelayedScaling()
    if isinstance(recipe, LayerPlan):
        return Custom(recipe)
    names = [name for name in RECIPES if name != "custom"]
    key = recipe.lower().replace("-", "_") if isinstance(recipe, str) else ""
    key = _ALIASES.get(key, key).removesuffix("_scaling")
    if key not in names:
        if isinstance(recipe, type):
            raise UsageError(f"{where}: got the class {recipe.__name__}, expected a recipe, such as {recipe.__name__}().")
        raise UsageError(f"{where}: got {recipe!r}, expected a recipe, or one of {', '.join(names)}.{nearest(key, names)}")
    return RECIPES[key]()


def _plan(how: Callable[[str], How]) -> LayerPlan:
    return LayerPlan({(gemm, operand): how(operand) for gemm, operand in OPERANDS})


def _take_fp8_format(recipe: Any) -> None:
    """Bring it into our spelling; other libraries' enumerations are known by their members' names."""
    given = recipe.fp8_format
    key = str(getattr(given, "name", given)).lower().removesuffix("fn")
    if key not in _FP8_FORMATS:
        raise UsageError(
            f"{type(recipe).__name__}: fp8_format: got {given!r}, expected one of {', '.join(_FP8_FORMATS)}.{nearest(key, _FP8_FORMATS)}"
        )
    object.__setattr__(recipe, "fp8_format", key)


def _formats(fp8_format: str) -> tuple[Format, Format]:
    """Of activations and weights, of gradients."""
    return format_of(E5M2 if fp8_format == E5M2 else E4M3), format_of(E4M3 if fp8_format == E4M3 else E5M2)
