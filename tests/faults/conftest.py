"""What tests of planted faults share."""

from __future__ import annotations

import pytest

from numscope.detect import diagnosis


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No remedy is tried: of one fault that is found in several ways, what its remedies do is the same each time."""
    monkeypatch.setattr(diagnosis, "with_trials", lambda finding, evidence, replay: finding)
