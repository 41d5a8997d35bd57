"""A finished observation: what sinks write, rules read and runs keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TENSORS = ("activation", "weight", "gradient", "output", "wgrad", "dgrad")

# A summary's stored fields, in the order of its row.
COUNTS = ("numel", "num_nan", "num_pos_inf", "num_neg_inf", "num_zero", "num_subnormal")
EXTREMA = ("min", "max", "abs_min", "abs_max")
SUMS = ("sum", "abs_sum", "square_sum", "cube_sum", "fourth_sum")
FIELDS = (*COUNTS, *EXTREMA, *SUMS)

Value = float | int | None
Histogram = Sequence[float]


@dataclass(frozen=True, slots=True)
class Observation:
    """One site's numbers of one step, merged over its calls, micro-batches and, where they were reduced, ranks.

    Args:
        step: training step, counted from 0 (or from where the run said that it begins).
        layer: its name: the one that was given to it, else its qualified name.
        cls: the layer's class; "" where several layers were merged.
        tensor: one of ``TENSORS``; ``weight[in_proj_weight]`` where a layer's weight has another name.
        dtype: of the tensor, as ``float32``; "" where several were merged.
        order: place in the step: sites in the order in which they were seen first; -1 where that says nothing.
        rank: this process's global rank.
        ranks: how many ranks' parts it holds.
        calls: how many tensors were merged on this rank.
        fields: a summary's stored fields by name; they merge by the summary's laws.
        extras: further columns that merge, by name; see ``summary/extras.py``. Plug-ins' numbers are among them as they are.
        values: the statistics asked for, under the names that were asked; a histogram is a sequence of counts.
        mine: whether this rank is the one that writes it to files; the other ranks that it was merged over have it too, for their loggers.
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
    extras: Mapping[str, float | Histogram] = field(default_factory=dict)
    values: Mapping[str, Value | Histogram] = field(default_factory=dict)
    mine: bool = True

    @property
    def name(self) -> str:
        """``<layer>_<tensor>``, to which logs add the statistic's name."""
        return f"{self.layer}_{self.tensor}"
