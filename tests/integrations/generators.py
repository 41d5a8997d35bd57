"""Whether an integration moves a global generator as it is imported, where its framework, which does, has been imported before."""

from __future__ import annotations

import importlib
import random
import sys

import numpy
import pytest
import torch


def moves_none(name: str) -> bool:
    def state() -> tuple[object, ...]:
        return random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()

    before = state()
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, name)
        importlib.import_module(name)
    return state() == before
