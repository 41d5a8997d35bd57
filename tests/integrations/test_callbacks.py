"""What the callbacks of all frameworks share."""

from __future__ import annotations

import copy
import pickle

import torch

from numscope.integrations.callbacks import Watching


def test_copy_has_the_options_and_no_watch() -> None:
    with Watching(on_nonfinite="warn") as callback:
        scope = callback.begin(torch.nn.Linear(2, 2))
        for one in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
            assert one.options == {"on_nonfinite": "warn"} and one.scope is None and one.findings == []
        assert callback.scope is scope and not scope.closed
