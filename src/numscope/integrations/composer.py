"""MosaicML's Composer: a callback for its Trainer."""

from __future__ import annotations

from typing import Any

try:
    from composer.core import Callback
except ImportError as error:
    raise ImportError(f"numscope.integrations.composer: {error}. Install it: pip install mosaicml.") from error

from numscope.integrations.callbacks import Watching


class NumscopeCallback(Watching, Callback):  # type: ignore[misc]  # Composer is not read by the type checker
    """Watches the ComposerModel while the Trainer fits, evaluates or predicts.

    The watch ends with the run. Composer does not report exceptions to callbacks; after one, the watch ends when the Trainer is closed: by
    ``trainer.close()`` or as the process ends. Steps have the numbers of the timestamp's batches.

    Options are those of ``numscope.watch``. Raises: UsageError for a wrong one, here; NonFiniteError comes out of ``trainer.fit()``.
    """

    def fit_start(self, state: Any, logger: Any) -> None:
        self.begin(state.model, first_step=int(state.timestamp.batch))

    def fit_end(self, state: Any, logger: Any) -> None:
        self.end()

    eval_standalone_start = predict_start = fit_start
    eval_standalone_end = predict_end = fit_end

    def close(self, state: Any = None, logger: Any = None) -> None:
        """End the watch; its findings stay."""
        self.end()
