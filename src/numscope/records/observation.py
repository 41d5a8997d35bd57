"""Observations, which sinks write, rules read and runs store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

TENSORS = ("activation", "weight", "gradient", "output", "wgrad", "dgrad")
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")  # a weight's, by the optimizer's names; any other one is ``state.<name>``
SEEN_IN_CALLS = ("local_wgrad", "attention")  # a weight's gradient of one backward on this rank; probabilities that a module returns
PREFIX = "state."  # before any other state's name
PRECISION = "precision_"  # before columns of what low precision does to a gradient

# A summary's stored fields, in the order of its row.
COUNTS = ("numel", "num_nan", "num_pos_inf", "num_neg_inf", "num_zero", "num_subnormal")
EXTREMA = {"min": "min", "max": "max", "abs_min": "min", "abs_max": "max"}  # each with how two of them merge
SUMS = ("dev_sum", "abs_sum", "dev_square_sum", "dev_cube_sum", "dev_fourth_sum")  # sums of powers of x - center; abs_sum: the sum of |x|
FIELDS = (*COUNTS, *EXTREMA, *SUMS, "center")

Names = Literal["grouped", "te"]  # of statistics in TensorBoard, W&B and MLflow: by statistic, or as in text logs
NAMES: tuple[Names, ...] = get_args(Names)

Value = float | int | None
Histogram = Sequence[float]


class Observation(NamedTuple):  # made in a sixth of a frozen dataclass's time
    """One site's numbers of one step, merged over its calls, micro-batches and, if reduced, ranks.

    Args:
        step: training step, counted from 0 or the run's first step.
        layer: its given name, else its qualified name.
        cls: the layer's class; "" if several layers were merged.
        tensor: one of ``TENSORS``, ``STATES`` or ``SEEN_IN_CALLS``, or ``state.<name>``; ``weight[in_proj_weight]`` if a layer's weight has
            another name.
        dtype: of the tensor, such as ``float32``; "" if several were merged.
        order: place in the step: sites in the order in which they were seen first; -1 if undefined.
        rank: this process's global rank.
        ranks: number of ranks merged.
        calls: number of tensors merged on this rank.
        fields: a summary's stored fields by name, merged by the summary's laws.
        extras: further mergeable columns by name, see ``summary/extras.py``, and plug-ins' numbers.
        values: the requested statistics by their requested names; a histogram is a sequence of counts.
        mine: whether this rank writes it to files; the other merged ranks have it too, for their loggers.
    """

    step: int
    layer: str
    cls: str
    tensor: str
    dtype: str
    order: int
    rank: int
    ranks: int
    calls: int
    fields: Mapping[str, Value]
    extras: Mapping[str, float | Histogram] = MappingProxyType({})
    values: Mapping[str, Value | Histogram] = MappingProxyType({})
    mine: bool = True

    @property
    def name(self) -> str:
        """``<layer>_<tensor>``, to which logs append the statistic's name."""
        return f"{self.layer}_{self.tensor}"

    def named(self, label: str, names: Names) -> str:
        """A statistic's name in a dashboard: ``<tensor>.<stat>/<layer>``, so that it shows one group per statistic, one chart per layer.

        Args:
            label: the statistic's requested name.
            names: ``te``: as in text logs and in Transformer Engine's debug tool, ``<layer>_<tensor>_<stat>``.
        """
        return f"{self.tensor}.{label}/{self.layer}" if names == "grouped" else f"{self.layer}_{self.tensor}_{label}"
