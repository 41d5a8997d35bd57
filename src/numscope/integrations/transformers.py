"""Hugging Face Trainer: a callback, and numscope in the place of ``--debug underflow_overflow``."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import nn

try:
    from transformers import Trainer, TrainerCallback
    from transformers import trainer as trainer_module
except ImportError as error:
    raise ImportError(
        f"numscope.integrations.transformers: {error}. Install transformers and accelerate: pip install 'numscope[transformers]'."
    ) from error

from numscope.config.options import WatchOptions
from numscope.integrations.callbacks import Watching
from numscope.records.errors import UsageError
from numscope.scope.scope import Scope
from numscope.scope.watching import watch

_NAME = "DebugUnderflowOverflow"  # what transformers.trainer calls with the model when --debug underflow_overflow is given


class NumscopeCallback(Watching, TrainerCallback):  # type: ignore[misc]  # transformers is not read by the type checker
    """Watches the Trainer's model while it trains.

    The watch begins with training and ends with it. After an exception out of ``train()``, which Trainer does not report to callbacks,
    it ends at ``close()``, at the end of a ``with`` block around ``train()``, or when ``train()`` is called again.

    Options are those of ``numscope.watch``. Raises: UsageError for a wrong one, here; NonFiniteError comes out of ``trainer.train()``.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module | None = None, optimizer: Any = None, **_: Any) -> None:
        self.end()
        if model is not None:  # not step 0 where training goes on from a checkpoint
            self.begin(model, optimizer=_bare(optimizer), first_step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end()


class _DebugOption:
    """Stands where transformers.trainer has its debug class: called with the model as training begins."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        self.original = original
        self.options = options
        self._callbacks: weakref.WeakKeyDictionary[Any, NumscopeCallback] = weakref.WeakKeyDictionary()
        self._scopes: list[Scope] = []

    def __call__(self, model: nn.Module) -> Any:
        # Trainer gives only the bare model, and this before it is sharded; its callbacks are called later, also at the end.
        trainer = sys._getframe(1).f_locals.get("self")
        if not isinstance(trainer, Trainer):
            self._scopes.append(watch(model, **self.options))
            return self._scopes[-1]
        if trainer not in self._callbacks:
            self._callbacks[trainer] = NumscopeCallback(**self.options)
            trainer.add_callback(self._callbacks[trainer])
        return self._callbacks[trainer]

    def close(self) -> None:
        for trainer, callback in self._callbacks.items():
            callback.close()
            trainer.remove_callback(callback)
        for scope in self._scopes:
            scope.close()


def enable_debug_option(**options: Any) -> None:
    """From now on ``--debug underflow_overflow`` and ``TrainingArguments(debug="underflow_overflow")`` use numscope.

    Instead of transformers' class a Scope watches the model: it sees the loss, backward and the optimizer too and names the operation and
    its line. It raises NonFiniteError, a ValueError as before. The watch ends with training, as ``NumscopeCallback``'s does. For the known
    text and nothing else, there is ``numscope.compat.underflow_overflow``.

    Options are those of ``numscope.watch``. A second call replaces the options of the first. Raises: UsageError for a wrong option.
    """
    options.setdefault("frames", 21)  # as many as transformers' class prints
    WatchOptions.of(**options)
    disable_debug_option()
    original = getattr(trainer_module, _NAME, None)
    if original is None:
        import transformers

        raise UsageError(
            f"enable_debug_option: got transformers {transformers.__version__}, whose transformers.trainer has no {_NAME}, expected one "
            "that has, as 5.23. Pass NumscopeCallback() to the Trainer instead."
        )
    setattr(trainer_module, _NAME, _DebugOption(original, options))


def disable_debug_option() -> None:
    """Undo ``enable_debug_option``: transformers' own class is back, and what was watched through the option is watched no more."""
    current = getattr(trainer_module, _NAME, None)
    if isinstance(current, _DebugOption):
        setattr(trainer_module, _NAME, current.original)
        current.close()


def _bare(optimizer: Any) -> torch.optim.Optimizer | None:
    """The torch optimizer within accelerate's: the one whose hooks fire."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return inner if isinstance(inner, torch.optim.Optimizer) else None
