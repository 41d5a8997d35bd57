"""The pictures in the documents: each pane of a real run, made anew by

NUMSCOPE_PICTURES=docs ./dev test tests/page/test_pictures.py
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from numscope.page.document import render
from numscope.page.payload import comparison_of, payload_of
from numscope.page.recorded import read_recorded
from tests.docs.blocks import read
from tests.page.browser import Tab, browse, needs_browser
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import Place, write

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ASKED = os.environ.get("NUMSCOPE_PICTURES", "")
MOST_BYTES = 100_000
CONFIG = """\
all:
  enabled: true
  layers:
    layer_name_regex_pattern: ".*"
  statistics:
    enabled: true
    stats:
      - max
      - min
      - rms
      - kurtosis
      - exponent_histogram
      - zero_pct
      - e4m3_underflows_pct
      - fp16_overflows_pct
      - e4m3_sqnr_db
      - e5m2_sqnr_db
      - bf16_sqnr_db
    tensors: [activation, output, gradient, weight, wgrad]
    freq: 1
"""
WO = "layer=encoder.block.2.layer.1.DenseReluDense.wo&tensor=output"


@dataclass(frozen=True)
class Picture:
    """A pane of a page.

    Args:
        run: t5, ranks or both.
        address: what it shows.
        element: what is cut out.
        width: of the window.
        most_tall: what is below is cut off.
    """

    run: str
    address: str
    element: str
    width: int = 1200
    most_tall: int = 900
    dark: bool = False


PICTURES = {
    "page-nan": Picture("nan", "", "main", most_tall=1000),
    "page-findings": Picture("ranks", "#finding=0", "#findings"),
    "page-alerts": Picture("ranks", "#alert=1", "#alerts"),
    "page-timeline": Picture("ranks", "#finding=0", "#timeline"),
    "page-map": Picture("t5", f"#{WO}", "#map"),
    "page-tree": Picture("t5", "#search=%2Fblock.%5B12%5D.*%28wo%7Cdropout%29%20output%2F", "#map", dark=True),
    "page-culprit": Picture("t5", "", "#culprit"),
    "page-tensor": Picture("t5", f"#{WO}", "#site"),
    "page-formats": Picture("t5", f"#{WO}&step=30", "#site .formats"),
    "page-precision": Picture("t5", f"#{WO}", "#precision", most_tall=420),
    "page-ranks": Picture("ranks", "#finding=0", "#site .ranks"),
    "page-compare": Picture("both", "", "#compare"),
}


def test_pictures_of_the_documents_are_those_made_here() -> None:
    named = {
        name
        for file in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for name in re.findall(r"\((?:docs/|\.\./)?(page[\w-]*)\.png\)", file.read_text())
    }
    assert {path.stem for path in DOCS.glob("page*.png")} == named == set(PICTURES)
    assert [path.name for path in DOCS.glob("*.png") if path.stat().st_size > MOST_BYTES] == []


def train(folder: Path, *words: str) -> Path:
    """The run of the demo's script in a folder."""
    folder.mkdir(parents=True)
    (folder / "all.yaml").write_text(CONFIG)
    (folder / "train_t5.py").write_text((ROOT / "examples" / "train_t5.py").read_text())
    command = [sys.executable, "-m", "numscope", "run", "--config", "all.yaml", "--log-dir", folder.name, "train_t5.py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    told = folder / folder.name / "run.json"
    told.write_text(told.read_text().replace(sys.executable, "python"))
    return folder / folder.name


def tutorial(folder: Path) -> Path:
    """The run of the first tutorial."""
    folder.mkdir(parents=True)
    script = next(block.code for block in read(DOCS / "tutorials/nan.md").blocks if block.title == "train.py")
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "numscope", "run", "--log-dir", "logs", "train.py"]
    assert subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 3
    return folder / "logs"


def ranks(folder: Path) -> Path:
    """A run of four ranks and two attempts: one rank's gradient grows until it is nan."""
    made = torch.Generator().manual_seed(0)
    for steps in (range(40), range(36, 61)):
        seen: dict[Place, torch.Tensor] = {}
        for step in steps:
            for rank in range(4):
                size = 1.0 if rank != 2 or step < 40 else 2.0 ** (step - 40)
                value = torch.randn(64, generator=made) * size
                if rank == 2 and step == 60:
                    value[3] = float("nan")
                seen[Place(step, "decoder.layers.3.mlp.fc1", "Linear", "gradient", rank)] = value
                seen[Place(step, "decoder.layers.3.mlp.fc1", "Linear", "weight", rank)] = torch.full((64,), 0.5)
            seen[Place(step, "loss", "loss", "loss")] = torch.tensor(
                2 + 4 * math.exp(-step / 15) + 0.1 * float(torch.randn(1, generator=made))
            )
        rates = {step: {"optimizer_lr": [3e-4 * min(1.0, (step + 1) / 20), 1e-4]} for step in steps}
        write(folder, seen, part_rows=2000, settings=rates)
    site = {"module": "decoder.layers.3.mlp.fc1", "cls": "Linear", "phase": "backward", "slot": "grad output"}
    found = {**FINDING, "step": 60, "rank": 2, "phase": "backward", "site": site}
    found["culprit"] = {
        "op": "aten.div", "phase": "backward", "module": "decoder.layers.3.mlp", "file": "model.py", "line": 48, "code": "x / x.norm()",
        "reason": "division by zero", "detail": "0 / 0.", "advice": "Add a small eps to it.", "inputs": [], "outputs": [], "stack": [],
    }  # fmt: skip
    skipped = [[step, "GradScaler skipped the step"] for step in (3, 4, 21, 47)]
    grows = {
        "step": 51, "rule": "divergence ahead", "layer": "decoder.layers.3.mlp.fc1", "tensor": "gradient", "value": 11.0, "limit": 10.0,
        "text": "It grew 2,048-fold in 11 steps, by 1 bit a step.", "advice": "Clip gradients; lower the learning rate.",
        "evidence": {"steps": [40, 51], "bits": 11.0}, "rank": 2, "asks": False,
    }  # fmt: skip
    frozen = {
        **grows, "step": 2, "rule": "parameter without gradient", "layer": "decoder.layers.3.adapter", "tensor": "weight", "value": None,
        "limit": None, "text": "No gradient came in 3 steps.", "asks": True, "evidence": {},
        "advice": 'If this is intended: alerts: {"parameter without gradient": off}.',
    }  # fmt: skip
    for rank, alerts in ((0, [frozen]), (1, [frozen]), (2, [frozen, grows]), (3, [frozen])):
        own = [found, {**FINDING, "step": 12, "contained": True}] if rank == 2 else []
        events = skipped if rank == 2 else []
        alerts = [{**one, "rank": rank} for one in alerts]
        (folder / f"findings-rank{rank}.json").write_text(document(*own, alerts=alerts, events=events, steps=61, rank=rank))
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    hot, mild = (train(folder / name, "--lr", lr, "--batch", "1") for name, lr in (("lr-0.6", "0.6"), ("lr-0.5", "0.5")))
    a, b, c = (read_recorded(one) for one in (hot, mild, ranks(folder / "four-ranks")))
    told = payload_of(a)
    nan = payload_of(read_recorded(tutorial(folder / "tutorial")))
    made = {
        "t5": render([told], "T5"),
        "nan": render([nan], "a nan"),
        "ranks": render([payload_of(c)], "ranks"),
        "both": render([told, payload_of(b)], "both", comparison_of(a, b)),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab


@needs_browser
@pytest.mark.skipif(not ASKED, reason="pictures are made when asked for: NUMSCOPE_PICTURES=docs")
@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_made(tab: Tab, pages: dict[str, Path], name: str) -> None:
    picture = PICTURES[name]
    tab.size(picture.width, 1000, picture.dark)
    tab.open(pages[picture.run], picture.address)
    tab.settle()
    from PIL import Image  # with TensorBoard

    path = ROOT / ASKED / f"{name}.png"
    tab.screenshot(path, picture.element, picture.most_tall)
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    assert 1000 < path.stat().st_size <= MOST_BYTES
    assert tab.complaints == []
