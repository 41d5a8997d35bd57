"""fp8 out of range: too many elements of an operand become zero, or lie beyond the format's largest number.

Read from statistics' columns, so it speaks where a configuration counts casts, those that GEMMs make or those on paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numscope.records.alert import Alert
from numscope.records.observation import Observation

NAME = "fp8 out of range"
IN_A_ROW = 2  # scheduled steps of a site
_WIDE = ("fp16", "bf16", "fp32")  # formats that are no fp8
_ENDS = {"num_underflow": "underflow", "num_overflow": "overflow"}


class OutOfRange:
    """Counts, for each site and cast, the scheduled steps in a row beyond a bound."""

    def __init__(self) -> None:
        self._beyond: dict[tuple[str, str, str], int] = {}

    def read(self, observation: Observation, settings: Mapping[str, Any]) -> Iterator[Alert]:
        """What is to be said of one site's casts in a step."""
        for column, count in observation.extras.items():
            what = next((kind for end, kind in _ENDS.items() if column.endswith(f"_{end}")), "")
            cast = column.removesuffix(f"_num_{what}")
            if not what or cast.startswith(_WIDE) or not isinstance(count, int | float):
                continue
            whole = observation.extras.get(f"{cast}_numel", observation.fields.get("numel"))
            if not isinstance(whole, int | float) or not whole:
                continue
            share, limit = 100 * count / whole, settings[f"{what}_pct"]
            key = observation.layer, observation.tensor, column
            self._beyond[key] = self._beyond.get(key, 0) + 1 if share > limit else 0
            if self._beyond[key] >= IN_A_ROW:
                yield _alert(observation, cast, what, share, limit)


def _alert(observation: Observation, cast: str, what: str, share: float, limit: float) -> Alert:
    is_operand = cast.startswith("operand")
    where = "the GEMM's cast" if is_operand else f"a cast ({cast})"
    if what == "underflow":
        text = f"{share:.3g}% of the elements become zero in {where} (limit {limit:g}%)."
        advice = "Scale smaller blocks (mxfp8, fp8_block_scaling), use e5m2 for this operand, or keep this layer in high precision."
    else:
        stale = ": its scale is older than its values, as where delayed scaling's history is stale" if is_operand else ""
        text = f"{share:.3g}% of the elements lie beyond the format's largest number in {where}{stale} (limit {limit:g}%)."
        advice = "Use current scaling or a shorter history of amaxes, or keep this layer in high precision."
    evidence = {"cast": cast, "steps_in_a_row": IN_A_ROW}
    return Alert(observation.step, NAME, observation.layer, observation.tensor, share, limit, text, advice, evidence, observation.rank)
