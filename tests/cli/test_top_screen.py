"""``numscope top``'s screen, line by line."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from numscope.cli.top_screen import screen
from numscope.page.health import cells_of, scale_of, spark
from numscope.page.overview import Overview, overview_of, stamp_of
from numscope.page.recorded import AlertOfRanks
from numscope.records.alert import parse_alert
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, write

GOLDEN = Path(__file__).parent / "golden"
CULPRIT = {
    "op": "aten.sqrt", "phase": "forward", "module": "", "file": "train.py", "line": 13, "code": "return torch.sqrt(x)",
    "reason": "unknown", "detail": "", "advice": "", "inputs": [], "outputs": [], "stack": [],
}  # fmt: skip
HOSTILE = "a[red]b[/]\x1b[31m\x1b]0;title\x07\u202e\n:warning:"


def growing(layer: str = "decoder.layers.0.mlp.fc1") -> dict[Place, torch.Tensor]:
    seen: dict[Place, torch.Tensor] = {}
    for step in range(16):
        last = float("inf") if step == 15 else 2.0**step
        seen[Place(step, layer, "Linear", "output")] = torch.tensor([last, 1.0], dtype=torch.float16)
        seen[Place(step, "decoder.layers.0.norm", "LayerNorm", "activation")] = torch.tensor([1.5 + step / 100])
        seen[Place(step, "head", "Linear", "wgrad")] = torch.tensor([20000.0 + step], dtype=torch.float16)
        seen[Place(step, "loss", "loss", "loss")] = torch.tensor(10.0 - step / 2)
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("screen") / "run"
    write(made, growing(), part_rows=1000)
    site = {**FINDING["site"], "module": "decoder.layers.0.mlp.fc1"}
    findings = [{**FINDING, "step": 15, "site": site, "culprit": CULPRIT}, {**FINDING, "contained": True}]
    (made / "findings-rank0.json").write_text(document(*findings, steps=16, events=[[i, "GradScaler skipped the step"] for i in range(7)]))
    return made


@pytest.fixture(scope="module")
def overview(folder: Path) -> Overview:
    return overview_of(str(folder))


def text_of(overview: Overview, width: int, height: int | None = None, age_s: float = 12.0) -> str:
    console = Console(width=width, height=height or 100, highlight=False, markup=False, emoji=False, color_system=None)
    with console.capture() as capture:
        console.print(screen(overview, age_s, width, height, "q quits" if height else ""))
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


@pytest.mark.parametrize(("width", "height"), [(120, None), (80, None), (80, 14), (40, 8)])
def test_screen_is_the_golden_one(overview: Overview, width: int, height: int | None) -> None:
    got = text_of(overview, width, height)
    golden = GOLDEN / f"screen-{width}x{height or 'all'}.txt"
    if not golden.exists():
        golden.write_text(got, encoding="utf-8")
        pytest.fail(f"{golden.name} was not there and is written: look at it, then commit it")
    assert got == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("height", range(1, 30, 4))
@pytest.mark.parametrize("width", [1, 9, 20, 60, 100, 300])
def test_screen_fits_every_terminal(overview: Overview, width: int, height: int) -> None:
    alert = AlertOfRanks(parse_alert({**ALERT, "text": "It grows, " * 40}), (0,))
    overview = replace(overview, recorded=replace(overview.recorded, alerts=(alert,), num_alerts=1))
    lines = text_of(overview, width, height).rstrip("\n").split("\n")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [30, 44])
def test_numbers_of_a_narrow_terminal_are_whole(overview: Overview, width: int) -> None:
    assert "✖ 1.64e+04\n" in text_of(overview, width)


def test_hostile_names_neither_color_nor_turn_nor_end_a_line(tmp_path: Path) -> None:
    write(tmp_path, growing(HOSTILE), part_rows=1000)
    finding = {
        **FINDING,
        "site": {**FINDING["site"], "module": HOSTILE},
        "culprit": CULPRIT | {"op": HOSTILE, "file": HOSTILE, "code": HOSTILE},
    }
    alert = {**ALERT, "rule": HOSTILE, "layer": HOSTILE, "text": HOSTILE}
    (tmp_path / "findings-rank0.json").write_text(document(finding, model=HOSTILE, events=[[0, HOSTILE]], alerts=[alert]))
    text = text_of(overview_of(str(tmp_path)), 250)
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    shown = r"a[red]b[/]\x1b[31m\x1b]0;title\x07\u202e\n:warning:"
    assert text.count(shown) >= 9


def test_alerts_are_shown_the_last_ones_first(tmp_path: Path) -> None:
    for rank in range(6):
        alerts = [{**ALERT, "rank": rank}, {**ALERT, "step": 100 + 60 * rank, "layer": "", "tensor": "", "rank": rank}]
        (tmp_path / f"findings-rank{rank}.json").write_text(document(alerts=alerts, rank=rank, events=[]))
    text = text_of(overview_of(str(tmp_path)), 120)
    assert "7 alerts, the last ones:\n⚑ step 400, rank 5: overflow ahead: It grows.\n⚑ step 340, rank 4: " in text
    (tmp_path / "findings-rank5.json").unlink()
    text = text_of(overview_of(str(tmp_path)), 120)
    assert "⚑ step 100: overflow ahead: It grows.\n⚑ step 1, ranks 0, 1, 2, 3 and 1 more: overflow ahead: decoder." in text


def test_run_of_detection_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(events=[]))
    text = text_of(overview_of(str(tmp_path)), 80)
    assert "No finding\n" in text
    assert "No statistics of tensors yet" in text


def test_statistics_without_findings_leave_open_whether_there_are_any(tmp_path: Path) -> None:
    write(tmp_path, growing(), part_rows=1000)
    assert "No findings written: there are none so far, or detection is off" in text_of(overview_of(str(tmp_path)), 80)


@pytest.mark.parametrize(
    ("age_s", "text"), [(-3.0, "0 s ago"), (119.0, "119 s ago"), (150.0, "2 minutes ago"), (86400.0 * 3, "3 days ago")]
)
def test_age_of_the_last_record_is_shown(overview: Overview, age_s: float, text: str) -> None:
    assert f"last record {text}" in text_of(overview, 80, age_s=age_s)


def test_stamp_changes_with_each_record(tmp_path: Path) -> None:
    assert stamp_of(str(tmp_path)) == {}
    (tmp_path / "findings-rank0.json").write_text(document())
    first = stamp_of(str(tmp_path))
    (tmp_path / ".findings-rank0.json.tmp").write_text("half")
    (tmp_path / "report.html").write_text("a page")
    assert stamp_of(str(tmp_path)) == first
    write(tmp_path, growing(), part_rows=1000)
    assert len(stamp_of(str(tmp_path))) > len(first)


# ---- sparklines


def line(sizes: list[float], dtype: str) -> str:
    cells = [(x, False) for x in sizes]
    return spark(cells, *scale_of(cells, dtype))


def test_line_ends_at_the_dtypes_limit_where_that_is_in_sight() -> None:
    assert line([1.0, 256.0, 65504.0], "float16") == "▁▅█"
    assert line([20000.0, 20001.0], "float16") == "██"
    assert line([1.0, 1.1], "float32") == "▄▅", "its limit is far out of sight"
    assert line([1.0, 1e37], "float32") == "▁█"


@pytest.mark.parametrize(
    "cells", [[], [(None, False)], [(0.0, False)], [(3.0, False)] * 2, [(float(np.float32(1e-45)), False), (3e38, True)]]
)
@pytest.mark.parametrize("dtype", ["float32", "no dtype", "float8_e4m3fn"])
def test_line_of_odd_numbers_is_one(cells: list[tuple[float | None, bool]], dtype: str) -> None:
    assert len(spark(cells, *scale_of(cells, dtype))) == len(cells)


def test_cells_keep_each_spike_and_each_bad_step() -> None:
    amax, bad = np.ones(1000, dtype=np.float32), np.zeros(1000)
    amax[500], amax[3], bad[777] = 9.0, math.nan, 2
    found = cells_of(amax, bad, 10)
    assert [x for x, _ in found] == [1, 1, 1, 1, 1, 9, 1, 1, 1, 1]
    assert [i for i, (_, is_bad) in enumerate(found) if is_bad] == [7]
    assert cells_of(amax[:3], bad[:3], 10) == [(1.0, False)] * 3
