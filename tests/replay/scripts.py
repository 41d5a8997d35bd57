"""Scripts run as ``numscope run`` runs them: each models of its own, its own lines."""

from __future__ import annotations

import contextlib
import io
import runpy
import warnings
from pathlib import Path
from textwrap import dedent

import torch

from numscope.config.options import WatchOptions
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Culprit, Finding
from numscope.scope.autowatch import AutoWatch

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
LOOP = """
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for i in range(3):
    loss = step(i)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def finding_of(folder: Path, text: str) -> Finding | None:
    """The first finding of a script; None without one. ``LOOP`` at its end trains ``model`` on what ``step(i)`` returns."""
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text).replace("LOOP\n", LOOP))
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        auto, died = AutoWatch(WatchOptions()), None
        with contextlib.suppress(NonFiniteError):
            auto.__enter__()
            try:
                runpy.run_path(str(path), run_name="__main__")
            except Exception as error:
                died = error
            auto.finish(died)
    return next((finding for scope in auto.scopes for finding in scope.findings), None)


def culprit_of(folder: Path, text: str) -> Culprit:
    """The culprit of a script; its line is the one that ends with ``# FAULT``, if one does."""
    finding = finding_of(folder, text)
    assert finding is not None and finding.culprit is not None, finding
    culprit = finding.culprit
    marked = [n for n, line in enumerate((folder / "train.py").read_text().splitlines(), 1) if line.endswith("# FAULT")]
    assert [culprit.line] == marked or not marked, finding.headline()
    assert culprit.file == str(folder / "train.py") or not marked, finding.headline()
    return culprit
