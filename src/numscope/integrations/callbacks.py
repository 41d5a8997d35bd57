"""The base of all training frameworks' callbacks."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.scope.scope import Scope
from numscope.scope.watching import watch


class Watching:
    """A watch that a framework's callback opens when a run begins and closes when it ends.

    Attributes:
        options: those of ``numscope.watch`` that are not what they are by default: a framework that reads options from a file gives all.
        scope: the watch at work or the last one; None before the first.

    Raises: UsageError for a wrong option, here and not when the run begins.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        usual = WatchOptions()
        WatchOptions.of(**options)
        self.options = {name: value for name, value in options.items() if value != getattr(usual, name)}
        self.scope: Scope | None = None

    @property
    def findings(self) -> list[Finding]:
        """Escaped findings, in order."""
        return [] if self.scope is None else self.scope.findings

    @property
    def contained(self) -> list[Finding]:
        """Contained findings: non-finite values that reached no training."""
        return [] if self.scope is None else self.scope.contained

    @property
    def alerts(self) -> list[Alert]:
        """Alerts about what is about to go wrong, and what goes wrong in silence."""
        return [] if self.scope is None else self.scope.alerts

    def begin(self, model: nn.Module, *, optimizer: Optimizer | None = None, **defaults: Any) -> Scope:
        """Watch a model, after the watch of an earlier run has ended. ``defaults``: options; the user's go before them."""
        self.end()
        self.scope = watch(model, optimizer=optimizer, **{**defaults, **self.options})
        return self.scope

    def end(self, error: BaseException | None = None) -> None:
        """End the watch; its findings stay. Safe to call twice. ``error``: with which the run is ending."""
        if self.scope is not None:
            self.scope.close(error)

    def close(self) -> None:
        """End the watch; its findings stay."""
        self.end()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or another, has the options and no watch: hooks of a model can't be copied."""
        return {**self.__dict__, "scope": None}

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)
