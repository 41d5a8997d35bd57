"""Megatron-LM: a watch on its model chunks, which the debug tool's environment variables switch on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from megatron.core import parallel_state
from torch import nn

from numscope.config.options import WatchOptions, served, switched_on
from numscope.inspect.recorder import Recorder
from numscope.inspect.unmatched import refuse_unmatched
from numscope.integrations.megatron.gemms import prepare, unprepare
from numscope.precision.gemm.layer_state import state_of
from numscope.records.errors import UsageError
from numscope.records.finding import Finding
from numscope.scope.model_watch import ModelWatch
from numscope.scope.scope import Scope


class Attached:
    """The watches on a model's chunks, ``scopes``, until ``close``. Where nothing is switched on, there are none and calls do nothing."""

    def __init__(self, watches: Sequence[ModelWatch] = (), recorder: Recorder | None = None, prepared: Sequence[nn.Module] = ()) -> None:
        self.scopes = tuple(map(Scope, watches))
        self._recorder = recorder
        self._prepared, self._closed = prepared, False

    @property
    def findings(self) -> list[Finding]:
        """Escaped findings, in order of the chunks."""
        return [finding for scope in self.scopes for finding in scope.findings]

    def step(self) -> None:
        """A training iteration is over. Needed where optimizers hold copies of the parameters, as Megatron's for fp16 and bf16 do."""
        for scope in self.scopes:
            scope.step()

    def close(self) -> None:
        """Write the step at work, remove every hook. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:  # all are closed, though one finds something at its close
            stack.callback(self._unprepare)
            if self._recorder is not None:
                stack.callback(self._recorder.close)
            for scope in reversed(self.scopes):
                stack.callback(scope.close)

    def _unprepare(self) -> None:
        """Restores the layers that our switches acted on, without those that somebody else has converted since."""
        unprepare([module for module in self._prepared if (state := state_of(module)) is None or state.recipe.is_high])

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attach(model: nn.Module | Sequence[nn.Module], **options: Any) -> Attached:
    """Watch a Megatron model: statistics by configuration, and detection where it is asked for.

    ``NV_DEBUG_TOOL_ENABLED=1`` switches it on for statistics alone, with the configuration of ``NV_DEBUG_TOOL_CONFIG`` and logs in
    ``NV_DEBUG_TOOL_LOG_DIR``. Options say the same from within the script, and more; they go before the environment. Without either
    nothing is watched; nor is it without options under ``numscope run``, which reads the same variables and watches by itself.

    Layers are called as in the whole model, ``decoder.layers.4.self_attention.linear_proj``, on each pipeline stage too. Their
    statistics merge over the tensor-, context- and data-parallel groups of ``megatron.core.parallel_state``. A configuration's precision
    switches act on column- and row-parallel layers as on any linear layer.

    Args:
        model: what Megatron's ``get_model`` returns: a chunk or a list of them, in its DDP and Float16Module or bare. All ranks attach.
        options: those of ``numscope.watch``; ``on_nonfinite`` None unless it is among them.

    Raises: UsageError for a wrong option, variable or configuration; later, with ``on_nonfinite="raise"``, NonFiniteError from a step.

    *Cost:* as of ``numscope.watch``; switched off, none.
    """
    chunks = [model] if isinstance(model, nn.Module) else list(model) if isinstance(model, list | tuple) else []
    if not chunks or not all(isinstance(chunk, nn.Module) for chunk in chunks):
        raise UsageError(f"attach: got {_described(model)}, expected a model or a list of model chunks.")
    switched = switched_on()
    if not options and (switched is None or served()):
        return Attached()
    watching = WatchOptions.of(**{"on_nonfinite": None, **(switched or {}), **options})
    if watching.config is None and watching.on_nonfinite is None and not watching.trace and watching.abort_after is None:
        return Attached()  # the default run
    if watching.raises and parallel_state.is_initialized() and parallel_state.get_pipeline_model_parallel_world_size() > 1:
        raise UsageError(
            f"attach: got on_nonfinite={watching.on_nonfinite!r} in a run of several pipeline stages, expected 'warn' or None: a stage "
            "that stopped alone would leave the others waiting."
        )
    recorder = Recorder.of(watching) if watching.config is not None else None
    watches: list[ModelWatch] = []
    prepared: list[nn.Module] = []
    try:
        if recorder is not None and recorder.plan.switches:
            prepared += [module for chunk in chunks for module in prepare(chunk)]
        watches += [ModelWatch(chunk, watching, recorder=recorder, strict=False) for chunk in chunks]
        if recorder is not None:
            refuse_unmatched(*(one.inspector.resolved.unmatched for one in watches if one.inspector is not None))
    except BaseException:
        Attached(watches, recorder, prepared).close()
        raise
    return Attached(watches, recorder, prepared)


def _described(model: object) -> str:
    if isinstance(model, list | tuple):
        return f"a {type(model).__name__} of {', '.join(sorted({type(part).__name__ for part in model})) or 'nothing'}"
    return f"a {type(model).__name__}"
