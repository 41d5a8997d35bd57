"""Recipes: which format and scaling each operand of each GEMM has, under the names of Transformer Engine and torchao."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from numscope.precision.casting.delayed import History
from numscope.precision.casting.hadamard import Rotation
from numscope.precision.casting.scaling import MX, PER_ROW, PER_TENSOR, E8M0Rounding, How, Rounding, Scaling
from numscope.precision.gemm.plan import OPERANDS, LayerPlan
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of
from numscope.records.words import nearest

# Formats of fp8 recipes: e4m3 with e5m2 for gradients, or one for all operands.
HYBRID: Final = "hybrid"
E4M3: Final = "e4m3"
E5M2: Final = "e5m2"
_FP8_FORMATS: Final = (HYBRID, E4M3, E5M2)


class Recipe:
    """Base of all recipes, which are immutable values, and equal if their settings are."""

    __slots__ = ()

    def plan(self) -> LayerPlan:
        """The plan of a layer's GEMMs under this recipe."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name that ``recipe_of`` takes."""
        return next(name for name, recipe in RECIPES.items() if recipe is type(self))

    @property
    def is_high(self) -> bool:
        """Whether all GEMMs stay in high precision."""
        return False

    def __copy__(self) -> Recipe:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return self  # a process group can't be copied, and the copy of a model shares amaxes in the same group

    def __getstate__(self) -> dict[str, Any]:
        # A process group exists in its process only. After unpickling, set another one, or amaxes are shared with all ranks.
        return {name: None if name == "amax_group" else value for name, value in self.__dict__.items()}


class _Fp8Recipe(Recipe):
    """A recipe with one format for activations and weights and one for gradients."""

    fp8_format: str

    def __post_init__(self) -> None:
        given = self.fp8_format  # other libraries' enumerations are recognized by their members' names
        key = str(getattr(given, "name", given)).lower().removesuffix("fn")
        if key not in _FP8_FORMATS:
            hint = nearest(key, _FP8_FORMATS)
            raise UsageError(f"{type(self).__name__}: fp8_format: got {given!r}, expected one of {', '.join(_FP8_FORMATS)}.{hint}")
        object.__setattr__(self, "fp8_format", key)
        self.plan()  # raises if a setting is out of range

    def plan(self) -> LayerPlan:
        forward = format_of(E5M2 if self.fp8_format == E5M2 else E4M3)
        backward = format_of(E4M3 if self.fp8_format == E4M3 else E5M2)
        return _plan(lambda operand: self._how(operand, backward if operand == "gradient" else forward))

    def _how(self, operand: str, form: Format) -> How:
        raise NotImplementedError


@dataclass(frozen=True)
class DelayedScaling(_Fp8Recipe):
    """One scale per tensor, from the amaxes of previous steps: each operand is cast to fp8 in one pass.

    Args:
        fp8_format: ``hybrid`` (e4m3, gradients e5m2), ``e4m3`` or ``e5m2``.
        margin: scales are divided by 2 to this power.
        amax_history_len: number of steps whose amaxes count.
        amax_compute_algo: ``max``, the largest of them, or ``most_recent``.
        interval: steps from one new scale to the next.
        reduce_amax: whether ranks share amaxes at the end of a step.
        amax_group: process group to share them in; None: all ranks. It is left out of pickles.

    Raises: UsageError: a setting is out of range.

    *Source:* Micikevicius et al., "FP8 Formats for Deep Learning", 2022; defaults as in Transformer Engine's recipe of this name.
    """

    fp8_format: str = HYBRID
    margin: int = 0
    amax_history_len: int = 1024
    amax_compute_algo: Literal["max", "most_recent"] = "max"
    interval: int = 1
    reduce_amax: bool = True
    amax_group: Any = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.history(How(format_of(E4M3), margin=self.margin), "meta")  # raises if a setting is out of range

    def _how(self, operand: str, form: Format) -> How:
        return How(form, margin=self.margin, delayed=True)

    def history(self, how: How, device: Any = "cpu") -> History:
        """A new history for one operand.

        Args:
            how: how the operand is quantized; its format and margin count.
            device: of the history's tensors.
        """
        return History(how.format, self.amax_history_len, self.amax_compute_algo, how.margin, self.interval, device)


@dataclass(frozen=True)
class CurrentScaling(_Fp8Recipe):
    """One scale per tensor, from its own amax.

    Args:
        fp8_format: ``hybrid`` (e4m3, gradients e5m2), ``e4m3`` or ``e5m2``.
        margin: scales are divided by 2 to this power.
        power_of_two: round scales down to powers of two.
        reduce_amax: whether ranks share amaxes of activations and gradients, in one all-reduce per tensor.
        amax_group: process group to share them in; None: all ranks. It is left out of pickles.

    Raises: UsageError: a setting is out of range.
    """

    fp8_format: str = HYBRID
    margin: int = 0
    power_of_two: bool = False
    reduce_amax: bool = False
    amax_group: Any = dataclasses.field(default=None, compare=False)

    def _how(self, operand: str, form: Format) -> How:
        return How(form, dataclasses.replace(PER_TENSOR, power_of_two=self.power_of_two), self.margin)


@dataclass(frozen=True)
class RowwiseScaling(_Fp8Recipe):
    """One scale per row of an operand, as its GEMM takes it: per token, per output feature.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.
        power_of_two: round scales down to powers of two.

    Raises: UsageError: an unknown format.
    """

    fp8_format: str = E4M3
    power_of_two: bool = False

    def _how(self, operand: str, form: Format) -> How:
        return How(form, dataclasses.replace(PER_ROW, power_of_two=self.power_of_two))


@dataclass(frozen=True)
class BlockScaling(_Fp8Recipe):
    """One scale per 1 × 128 block of activations and gradients, and per 128 × 128 block of weights.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.
        power_of_two: round scales down to powers of two.

    Raises: UsageError: an unknown format.

    *Source:* DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.
    """

    fp8_format: str = E4M3
    power_of_two: bool = True

    def _how(self, operand: str, form: Format) -> How:
        return How(form, Scaling("block", (128, 128) if operand == "weight" else (1, 128), self.power_of_two))


@dataclass(frozen=True)
class MXFP8(_Fp8Recipe):
    """One power of two per 32 elements along the dimension that is summed over.

    Args:
        fp8_format: ``e4m3``, ``hybrid`` (gradients e5m2) or ``e5m2``.
        e8m0_rounding: ``floor``, the specification's scales, under which a block's largest elements can saturate; ``rceil``, scales
            rounded up so that nothing saturates, as in Transformer Engine and torchao's ``ScaleCalculationMode.RCEIL``.

    Raises: UsageError: an unknown format or rounding.

    *Source:* OCP Microscaling Formats 1.0; Rouhani et al., "Microscaling Data Formats for Deep Learning", 2023.
    """

    fp8_format: str = E4M3
    e8m0_rounding: E8M0Rounding = "floor"

    def _how(self, operand: str, form: Format) -> How:
        return How(form, dataclasses.replace(MX, e8m0_rounding=self.e8m0_rounding))


class _Fp4Recipe(Recipe):
    """A recipe with four bits for all operands."""

    stochastic_rounding: bool
    rotation: Rotation | None

    def __post_init__(self) -> None:
        self.plan()  # raises if a setting is out of range

    def plan(self) -> LayerPlan:
        def how(gemm: str, operand: str) -> How:
            rounding: Rounding = "stochastic" if operand == "gradient" and self.stochastic_rounding else "nearest_even"
            rotation = self.rotation if gemm == "wgrad" else None
            return How(format_of("e2m1fn"), self._scaling(operand), rounding=rounding, rotation=rotation)

        return LayerPlan({key: how(*key) for key in OPERANDS})

    def _scaling(self, operand: str) -> Scaling:
        raise NotImplementedError


@dataclass(frozen=True)
class NVFP4(_Fp4Recipe):
    """Four bits: one e4m3 scale per 16 elements (weights: 16 × 16) under one float32 scale for the tensor.

    Args:
        two_dimensional_weights: use 16 × 16 blocks for weights, the same in forward and backward; else 1 × 16.
        stochastic_rounding: round gradients stochastically, with torch's own generator. Off by default, so that runs repeat bitwise.
        rotation: of wgrad's operands, in blocks of 16: ``random_hadamard``, as in Transformer Engine, whose signs too are the same at all
            times; ``hadamard``, without random signs; None.

    Raises: UsageError: an unknown rotation.

    *Source:* NVIDIA, "Pretraining Large Language Models with NVFP4", 2025.
    """

    two_dimensional_weights: bool = True
    stochastic_rounding: bool = False
    rotation: Rotation | None = None

    def _scaling(self, operand: str) -> Scaling:
        return Scaling("block", (16, 16) if operand == "weight" and self.two_dimensional_weights else (1, 16), scale_format="e4m3fn")


@dataclass(frozen=True)
class MXFP4(_Fp4Recipe):
    """Four bits: one power of two per 32 elements along the dimension that is summed over.

    Args:
        e8m0_rounding: as for ``MXFP8``.
        stochastic_rounding: as for ``NVFP4``.
        rotation: of wgrad's operands, in blocks of 32: ``hadamard``, ``random_hadamard``, or None.

    Raises: UsageError: an unknown rounding or rotation.

    *Source:* OCP Microscaling Formats 1.0; "Pretraining Large Language Models with MXFP4 on Native FP4 Hardware", 2026 (the rotations).
    """

    e8m0_rounding: E8M0Rounding = "floor"
    stochastic_rounding: bool = False
    rotation: Rotation | None = None

    def _scaling(self, operand: str) -> Scaling:
        return dataclasses.replace(MX, e8m0_rounding=self.e8m0_rounding)


@dataclass(frozen=True)
class HighPrecision(Recipe):
    """All three GEMMs as torch computes them, until a switch or ``autocast`` changes that."""

    def plan(self) -> LayerPlan:
        return LayerPlan()

    @property
    def is_high(self) -> bool:
        return True


@dataclass(frozen=True)
class Custom(Recipe):
    """A custom plan: any format and scaling for each operand of each GEMM.

    Args:
        layer_plan: how each operand is quantized.
        delayed: settings for the amax histories of its delayed operands; None: those of ``DelayedScaling()``.
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
    "mxfp4": MXFP4,
    "nvfp4": NVFP4,
    "high_precision": HighPrecision,
    "custom": Custom,
}
_ALIASES: Final = {"mx": "mxfp8", "high": "high_precision", "block_scaling": "block", "fp8": "delayed"}


def recipe_of(recipe: Recipe | LayerPlan | str | type[Recipe] | None, where: str = "recipe") -> Recipe:
    """The recipe that a name or a plan stands for.

    Args:
        recipe: ``delayed``, ``current``, ``rowwise``, ``block``, ``mxfp8``, ``mxfp4``, ``nvfp4`` or ``high_precision``; a plan, which
            becomes a ``Custom`` recipe; a recipe, which is returned as it is; None: ``DelayedScaling()``.
        where: begins the error's message.

    Raises: UsageError: anything else.
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
