"""``numscope precision trial``: one short run of a script for a search, in a process of its own. Not for people."""

from __future__ import annotations

import atexit
import json
import math
import os
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.import_hook import when_imported
from numscope.cli.preparing import SCRIPT_WORDS, preparation
from numscope.cli.script import Target, Watch, launch
from numscope.config.options import WatchOptions
from numscope.precision.search.sections import WHOLE
from numscope.precision.search.trials import AUTOCAST, Spec
from numscope.records.files import write_atomically
from numscope.records.finding import plain
from numscope.records.layer import GEMMS, Layer

if TYPE_CHECKING:
    from torch import nn

    from numscope.precision.gemm.layer_state import LayerState
    from numscope.precision.search.measuring import LossRecorder, WhatIf

_SUSPECT_STEPS = 8  # suspects come from the casts of so many steps: a run that diverges soon clips everywhere


class TrialOver(SystemExit):
    """The steps are over. ``except Exception`` does not stop it."""


class TrialWatch(Watch):
    """Seeds, converts, records, and ends the script after its steps."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._owner = os.getpid()
        self._parent = os.getppid()
        self._open = ExitStack()
        self._models: list[nn.Module] = []
        self._layers: dict[str, tuple[str, ...]] = {}
        self._suspects: dict[str, float] = {}
        self._losses: LossRecorder | None = None
        self._what_if: WhatIf | None = None
        self._over = False

    def arm(self) -> None:
        if self._spec.seed is not None:
            seed_python(self._spec.seed)
        when_imported("torch", self._enter)

    def finish(self, error: BaseException | None) -> int | None:
        self._open.close()
        if self._losses is not None:
            self._write()
        return None

    # ---- in the script's process, once torch is there

    def _enter(self) -> None:
        if os.getpid() != self._owner:
            return
        from numscope.precision.search.measuring import LossRecorder
        from numscope.scope.autowatch import AutoWatch

        spec = self._spec
        if spec.seed is not None:
            seed_torch(spec.seed)
        if not spec.autocast:
            _turn_off_autocast()
        self._prepare = None if spec.what_if else preparation(spec.recipe, spec.config, spec.features)
        options = WatchOptions(
            on_nonfinite=None, config=spec.config, features=spec.features, default_logging=False, log_dir=f"{spec.result}.logs"
        )
        if spec.what_if:
            from numscope.precision.gemm.recipes import DelayedScaling, recipe_of
            from numscope.precision.search.measuring import WhatIf

            recipe = recipe_of(spec.recipe)
            delayed = recipe if isinstance(recipe, DelayedScaling) else DelayedScaling()
            self._what_if = WhatIf(recipe.plan(), delayed.history)
            self._open.callback(self._what_if.close)
        self._open.enter_context(AutoWatch(options, prepare=self._met))
        self._losses = LossRecorder(self._step_over)
        self._losses.open()
        self._open.callback(self._losses.close)

    def _met(self, model: nn.Module) -> None:
        if self._prepare is not None:
            self._prepare(model)
        if self._what_if is not None:
            self._what_if.add(model)
        self._models.append(model)

    def _step_over(self, step: int, loss: float) -> None:
        if self._over:
            return
        if os.getppid() != self._parent:  # the search was killed, and asks for nothing any more
            os._exit(1)
        if not self._layers and not self._what_if:
            self._layers = self._low_layers()
        if self._what_if is None and self._spec.recipe != AUTOCAST:
            if step == 0:
                self._count_casts()
            if step < _SUSPECT_STEPS:
                self._suspects = self._shares()
        if step + 1 >= self._spec.steps or not (math.isfinite(loss) or self._what_if):
            self._over = True
            self._write()
            raise TrialOver(0)

    # ---- results

    def _states(self) -> Iterator[tuple[Layer, nn.Module, LayerState | None]]:
        """Each layer of the models, with its state if it is converted."""
        from numscope.precision.gemm.layer_state import state_of
        from numscope.probe.layer_names import layers_of

        for model in self._models:
            for module, layer in layers_of(model).items():
                yield layer, module, state_of(module)

    def _low_layers(self) -> dict[str, tuple[str, ...]]:
        """Each layer's GEMMs that were in low precision in the step that is just over."""
        found: dict[str, tuple[str, ...]] = {}
        for layer, module, state in self._states():
            if state is not None:
                low = tuple(gemm for gemm in GEMMS if not state.plan.is_high(gemm))
                if low:
                    found.setdefault(layer.name, low)
            elif self._spec.recipe == AUTOCAST and layer.weights and "forward" not in module.__dict__:
                found.setdefault(layer.name, (WHOLE,))
        return found

    def _count_casts(self) -> None:
        """Let converted layers count what their casts clip and flush, where nobody does so already."""
        from numscope.precision.casting.cast import empty_cells
        from numscope.precision.casting.scaling import FAMILIES
        from numscope.precision.gemm.plan import OPERANDS

        for _, _, state in self._states():
            if state is not None and state.cells is None:
                state.cells = {(*key, family): empty_cells(state.device()) for key in OPERANDS for family in FAMILIES}

    def _shares(self) -> dict[str, float]:
        """By layer, the share of elements that its casts clip and flush."""
        shares: dict[str, float] = {}
        for layer, _, state in self._states():
            if state is not None:
                told = [cells.tolist() for cells in (state.cells or {}).values()]
                shares[layer.name] = max(((one[1] + one[2]) / one[0] for one in told if one[0]), default=0.0)
        return shares

    def _write(self) -> None:
        from numscope.distributed.agree import rank

        losses = self._losses.losses if self._losses is not None else []
        told = {
            "losses": losses,
            "layers": self._layers,
            "suspects": self._suspects,
            "what_if": None if self._what_if is None else {**self._what_if.numbers(), "num_steps": len(losses)},
        }
        write_atomically(f"{self._spec.result}.rank{rank():05d}.json", json.dumps(plain(told)))


def seed_python(seed: int) -> None:
    """Before a script's first line, so that its runs repeat."""
    random.seed(seed)
    when_imported("numpy", lambda: sys.modules["numpy"].random.seed(seed))


def seed_torch(seed: int) -> None:
    """Once torch is there."""
    import torch

    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _turn_off_autocast() -> None:
    """For the rest of the process: each ``torch.autocast`` of the script does nothing."""
    from numscope.precision.without_autocast import without_autocast

    off = without_autocast()
    off.__enter__()
    atexit.register(off.__exit__, None, None, None)  # keeps it until then


@click.command(hidden=True, context_settings={**SCRIPT_WORDS, "ignore_unknown_options": True})
@click.argument("spec")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def trial(spec: str, words: tuple[str, ...]) -> Any:
    """Run one trial of a search; the words are those of ``Script.words``."""
    is_module = words[0] == "-m"
    name, *args = words[is_module:]
    return partial(launch, Target(name, tuple(args), is_module), TrialWatch(Spec.read(spec)))
