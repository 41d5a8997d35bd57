"""Keras on torch: a callback for ``model.fit``."""

from __future__ import annotations

import logging
from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError(f"numscope.integrations.keras: {error}. Install it: pip install keras.") from error

from numscope.integrations.callbacks import Watching
from numscope.records.errors import UsageError

log = logging.getLogger("numscope")


class NumscopeCallback(Watching, keras.callbacks.Callback):  # type: ignore[misc]  # Keras is not read by the type checker
    """Watches the model while ``fit``, ``evaluate`` or ``predict`` runs. Layers have the names that Keras has for them.

    Keras does not report exceptions to callbacks: after one, the watch ends at ``close()``, at the end of a ``with`` block, or when
    the callback is used again.

    Options are those of ``numscope.watch``. Raises: UsageError for a wrong one, or a backend other than torch, here; NonFiniteError comes
    out of ``model.fit()``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if keras.backend.backend() != "torch":
            raise UsageError(
                f"NumscopeCallback: got Keras on {keras.backend.backend()}, expected torch. Set KERAS_BACKEND=torch before importing it."
            )
        self._in_fit = False

    def set_model(self, model: Any) -> None:
        """Called as a fit, an evaluation or a prediction begins, and not for the validation inside a fit."""
        super().set_model(model)
        self._in_fit = False
        self.end()  # an earlier run may have ended with an exception

    def on_train_begin(self, logs: Any = None) -> None:
        self._in_fit = True
        self._begin()

    def on_train_end(self, logs: Any = None) -> None:
        self._in_fit = False
        self.end()

    def on_test_begin(self, logs: Any = None) -> None:
        if not self._in_fit:  # a fit's watch sees its validation too
            self._begin()

    def on_test_end(self, logs: Any = None) -> None:
        if not self._in_fit:
            self.end()

    on_predict_begin, on_predict_end = on_test_begin, on_test_end

    def _begin(self) -> None:
        if self.model.jit_compile:  # hooks cut Keras's graph into others, which differ in the last bits and lose gradients under float16
            log.warning("%s is not watched: Keras compiles its whole step. Use jit_compile=False in model.compile().", self.model.name)
        else:
            self.begin(self.model)
