"""The pane of precision in a real browser: which format each operand of a layer could take, by the casts that a run has measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import numscope
from numscope.page.document import render
from numscope.page.payload import payload_of
from numscope.page.recorded import read_recorded
from tests.page.browser import Tab, browse, needs_browser

pytestmark = needs_browser
CASTS = ["e4m3_sqnr_db", "e4m3_underflows_pct", "e5m2_sqnr_db", "e5m2_underflows_pct", "bf16_sqnr_db", "bf16_underflows_pct"]


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab


def page(folder: Path, stats: list[str]) -> Path:
    """Of a run of two layers: ``ones``' operands fit into anything, ``wide``'s weight into nothing of 8 bits."""
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("ones", nn.Linear(16, 16))
    model.add_module("wide", nn.Linear(16, 16))
    with torch.no_grad():
        model.wide.weight.copy_(2.0 ** torch.linspace(-60, 4, 256).view(16, 16))
        model.ones.weight.fill_(0.5)
    config = {"casts": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"},
              "statistics": {"enabled": True, "stats": stats, "tensors": ["activation", "weight", "gradient"], "freq": 1}}}  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with numscope.watch(model, config=config, log_dir=folder, on_nonfinite=None):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 16)).mean().backward()
            optimizer.step()
    made = folder / "page.html"
    made.write_text(render([payload_of(read_recorded(folder))], "casts"), encoding="utf-8")
    return made


def test_each_operand_has_the_cheapest_format_that_holds_it(tab: Tab, tmp_path: Path) -> None:
    tab.open(page(tmp_path, CASTS))
    rows = tab.js("[...document.querySelectorAll('#precision tr')].map((row) => [...row.children].map((cell) => cell.innerText.trim()))")
    assert rows[0] == ["layer", "activation", "weight", "gradient"]
    told = {row[0]: row[1:] for row in rows[1:]}
    assert {*told} == {"ones", "wide"}
    assert told["ones"][1].startswith("e4m3") and "nothing lost" not in told["wide"][1]
    assert told["wide"][1].startswith("bf16")
    tab.click("#precision tr:nth-child(3) td:nth-child(3) button")
    assert tab.js("new URLSearchParams(location.hash.slice(1)).get('layer')") == "wide"
    assert tab.js("document.querySelectorAll('#precision td.chosen').length") == 1


def test_a_run_that_measured_no_casts_has_no_such_pane(tab: Tab, tmp_path: Path) -> None:
    tab.open(page(tmp_path, ["max", "rms"]))
    assert tab.js("document.getElementById('precision').hidden") is True
