"""Some GEMMs of converted layers in high precision for a while, whatever recipes, switches and contexts say."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from numscope.precision.gemm.layer_state import LayerState
from numscope.precision.gemm.switching import RESULTS
from numscope.records.layer import GEMMS


@contextlib.contextmanager
def raised(states: Collection[LayerState], gemms: Collection[str] = GEMMS) -> Iterator[None]:
    """Run some GEMMs in high precision, and leave the casts out that switches make of their results. Afterwards all is as it was."""
    before = [(state, state.raised, state.results, state.kept_weights) for state in states]
    try:
        for state in states:
            state.raised = tuple(gemms)
            state.results = {name: how for name, how in (state.results or {}).items() if RESULTS[name] not in gemms} or None
            state.put_plan()
        yield
    finally:
        for state, gemms_before, results, kept in before:
            state.raised, state.results = gemms_before, results
            state.put_plan()
            state.kept_weights = kept
