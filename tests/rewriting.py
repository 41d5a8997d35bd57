"""pytest's compiled tests, with their assertions rewritten, made before the workers want them.

In a fresh checkout each worker would rewrite all files: 9 s of processor time each, of 15 s that it collects for.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_all(config: pytest.Config) -> None:
    """Makes what is missing or out of date in a thread, while the workers wait for what they import."""
    if not sys.dont_write_bytecode:
        threading.Thread(target=_rewrite, args=(config,), daemon=True).start()


def _rewrite(config: pytest.Config) -> None:
    state = config.stash[rewrite.assertstate_key]
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        cache = rewrite.get_cache_dir(path)
        made = cache / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite.try_makedirs(cache) and rewrite._read_pyc(path, made) is None:
            with contextlib.suppress(SyntaxError):  # the workers show it
                source, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(state, code, source, made)
