"""Lightning: a callback for its Trainer, under the package's both names, ``lightning`` and ``pytorch_lightning``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from numscope.integrations.callbacks import Watching

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _callback_classes() -> tuple[type[Any], ...]:
    """``Callback`` of the package that the process has loaded, of both where it has both; else of the one that is installed."""
    names = [name for name in _NAMES if name in sys.modules]
    names = names or [name for name in _NAMES if importlib.util.find_spec(name.partition(".")[0]) is not None][:1]
    if not names:
        raise ImportError(
            "numscope.integrations.lightning: neither lightning nor pytorch_lightning is installed. "
            "Install one of them: pip install 'numscope[lightning]'."
        )
    return tuple(importlib.import_module(name).Callback for name in names)


class NumscopeCallback(Watching, *_callback_classes()):  # type: ignore[misc]  # the classes depend on the installed packages
    """Watches the LightningModule while the Trainer fits, validates, tests or predicts.

    The watch begins once the strategy has set the model up, with the sanity check, and ends with the run, also with an exception. Steps
    have the numbers of ``trainer.global_step``. Statistics that ``config`` asks for go into ``trainer.log_dir`` unless ``log_dir`` says
    otherwise. Nothing of it is in a checkpoint.

    Options are those of ``numscope.watch``; in a YAML of LightningCLI they are ``init_args``. Raises: UsageError for a wrong one, here;
    NonFiniteError comes out of ``trainer.fit()``.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.end()  # an earlier run may have ended without teardown

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.scope is None or self.scope.closed:  # a fit's watch sees the validation inside it too
            folder = trainer.log_dir if self.options.get("config") is not None else None  # asked for on all ranks alike: it is broadcast
            self.begin(trainer.model, **({} if folder is None else {"log_dir": folder}))

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        assert self.scope is not None
        self.scope.begin_at(trainer.global_step)  # a checkpoint's state has been read since

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.end()
