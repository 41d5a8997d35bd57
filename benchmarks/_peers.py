"""Peers that only benchmarks need: each in a folder of its own, installed without what it depends on, torch above all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parent.parent / ".bench"


def peer(requirement: str) -> None:
    """Make a pinned package importable, after those of the environment; installs it the first time.

    Args:
        requirement: such as ``torchao==0.18.0``.
    """
    folder = HOME / requirement.replace("==", "-")
    if not folder.is_dir():
        aside = folder.with_suffix(".part")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(aside), requirement]
        subprocess.run(pip, check=True)
        aside.rename(folder)
    sys.path.append(str(folder))
