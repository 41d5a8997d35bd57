"""The page for people who see little, or use no mouse: contrast of what is shown (WCAG AA), keys, focus, names of controls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from numscope.page.document import render
from numscope.page.payload import comparison_of, payload_of
from numscope.page.recorded import read_recorded
from numscope.summary.extras import EXPONENTS
from numscope.summary.operand_casts import PAPER_EXTRAS
from tests.page.browser import Tab, browse, needs_browser
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, two_layers, write

pytestmark = needs_browser

CULPRIT = {
    "op": "aten.sqrt", "phase": "backward", "module": "decoder.layers.1.mlp.fc1", "file": "model.py", "line": 48, "code": "x.sqrt()",
    "reason": "division by zero", "detail": "0 / 0.", "advice": "Add a small eps to it.", "stack": [["train.py", 3, "main", "step()"]] * 2,
    "inputs": [{"name": "self", "numbers": None, "value": "2"}], "outputs": [{"name": "", "numbers": None, "value": "3"}],
}  # fmt: skip
VIEWS = (
    "#finding=0&from=2&to=9",
    "#alert=1&search=fc&smooth=0.9&lossScale=log&layer=decoder.layers.0.mlp.fc1&tensor=gradient",
    "#finding=1&search=nowhere&layer=decoder.layers.1.mlp.fc2&tensor=weight&pins=decoder.layers.1.mlp.fc2%09weight%0Aloss%09loss",
    "#run=1&finding=-1&layer=loss&tensor=loss&scale=linear&search=%2F(%2F",
)

# The contrast of each visible text and mark with what is below it, mixed from all backgrounds. Texts in a canvas are asked of the chart.
SHOWN = """(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parse = (color) => {
    if (!known.has(color)) {
      pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; known.set(color, [r, g, b, a / 255]);
    }
    return [...known.get(color)];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (at) => at === null ? [255, 255, 255, 1] : over(parse(getComputedStyle(at).backgroundColor), behind(at.parentElement));
  const opacity = (at) => at === null ? 1 : Number(getComputedStyle(at).opacity) * opacity(at.parentElement);
  const light = (color) => color.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (front, ground) => {
    const [a, b] = [light(over(front, ground)), light(ground)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05);
  };
  const found = { texts: [], marks: [] };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const at = node.parentElement, style = getComputedStyle(at), range = document.createRange();
    range.selectNode(node);
    if (!node.data.trim() || !range.getBoundingClientRect().width || style.visibility !== "visible") continue;
    if (at.closest("script, style, option, :disabled")) continue;
    const color = parse(style.color), size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    color[3] *= opacity(at);
    found.texts.push([node.data.trim().slice(0, 60), ratio(color, behind(at)), isLarge ? 3 : 4.5]);
  }
  for (const at of document.querySelectorAll("input, select")) {
    const style = getComputedStyle(at);
    if (!at.getBoundingClientRect().width) continue;
    if (at.type !== "checkbox") found.marks.push([`border of ${at.id}`, ratio(parse(style.borderTopColor), behind(at.parentElement))]);
    if (at.type !== "checkbox") found.texts.push([`in ${at.id}`, ratio(parse(style.color), behind(at)), 4.5]);
    if (at.placeholder) found.texts.push([at.placeholder, ratio(parse(getComputedStyle(at, "::placeholder").color), behind(at)), 4.5]);
  }
  for (const at of document.querySelectorAll(".bar, .band, .zone, .key, .cursor, .swatch")) {
    const style = getComputedStyle(at), box = at.getBoundingClientRect();
    if (!box.width && !box.height) continue;
    const edge = at.matches(".cursor") ? "borderLeftColor" : at.matches(".key:not(.zone)") ? "borderTopColor" : "backgroundColor";
    const color = parse(style[edge]);
    color[3] *= opacity(at);
    if (color[3]) found.marks.push([at.className, ratio(color, behind(at.parentElement))]);
  }
  for (const at of document.querySelectorAll(".plot")) {
    const chart = window.echarts.getInstanceByDom(at);
    if (!chart || !at.getBoundingClientRect().width) continue;
    const ground = behind(at);
    for (const one of chart.getZr().storage.getDisplayList()) {
      const { text, fill, stroke, opacity, lineWidth } = one.style;
      if (one.ignore || one.invisible) continue;
      if (text && fill) found.texts.push([`chart: ${text}`, ratio(parse(fill), ground), 4.5]);
      const isLine = stroke && stroke !== "none" && lineWidth > 0 && one.type === "ec-polyline";
      if (isLine && (opacity ?? 1) === 1) // not a raw line behind a smooth one
        found.marks.push([`line of ${at.className}`, ratio(parse(stroke), ground)]);
    }
  }
  return found;
})()"""


def told(step: int, **more: Any) -> dict[str, Any]:
    return {**FINDING, "step": step, **more}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with all that a page can show: findings with and without a culprit, alerts, events, ranks, casts, a nan in the loss."""
    folder = tmp_path_factory.mktemp("access")
    for name, scale in (("a", 1.0), ("b", 3.0)):
        seen = {place: value * scale for place, value in two_layers(12).items()}
        for step in range(12):
            seen[Place(step, "loss", "loss", "loss")] = torch.tensor(float("nan") if step == 7 else 3.0 - step / 10)
            seen[Place(step, "decoder.layers.1.mlp.fc1", "Linear", "activation", 1)] = torch.full((9,), 2.0**step)
        write(folder / name, seen, (EXPONENTS, PAPER_EXTRAS["e4m3"]))
        alerts = [{**ALERT, "step": 4}, {**ALERT, "step": 9, "asks": True, "layer": "decoder.layers.0.mlp.fc2", "tensor": "weight"}]
        findings = [
            told(2, culprit=CULPRIT, frames=[{"module": "a", "cls": "A", "phase": "forward", "lines": []}] * 2),
            told(3, contained=True, note="once"),
        ]
        (folder / name / "findings-rank0.json").write_text(document(*findings, alerts=alerts, ended=False))
    a, b = (read_recorded(folder / name) for name in "ab")
    made = folder / "both.html"
    made.write_text(render([payload_of(a), payload_of(b)], "both", comparison_of(a, b)), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_have_the_contrast_of_wcag_aa(tab: Tab, page: Path, dark: bool) -> None:
    tab.size(1440, 1000, dark)
    seen, pale = 0, []
    for view in VIEWS:
        tab.open(page, view)
        tab.js("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        shown = tab.js(SHOWN)
        seen += len(shown["texts"]) * bool(shown["marks"])
        pale += [(view, *one) for one in shown["texts"] if one[1] < one[2]] + [(view, *one) for one in shown["marks"] if one[1] < 3]
    assert pale == []
    assert seen > 600
    assert tab.complaints == []


def test_every_control_has_a_name_is_reached_by_tab_and_shows_its_focus(tab: Tab, page: Path) -> None:
    tab.size(1440, 1000)
    tab.open(page, VIEWS[2])
    every = "[...document.querySelectorAll('button, a, select, input, summary, [tabindex]')]"
    controls = f"{every}.filter((one) => !one.disabled && one.checkVisibility())"
    nameless = "(one) => !(one.innerText?.trim() || one.getAttribute('aria-label') || one.labels?.length)"
    assert tab.js(f"{controls}.filter({nameless}).map((one) => one.outerHTML)") == []
    pictures = "[...document.querySelectorAll('canvas.cells, canvas.rank-cells, .plot')]"
    assert tab.js(f"{pictures}.every((one) => one.role && one.ariaLabel)")
    assert tab.js("[...document.querySelectorAll('[id]')].map((one) => one.id).filter((id, i, all) => all.indexOf(id) !== i)") == []
    num = tab.js(f"{controls}.length")
    tab.js("window.reached = new Set(); document.activeElement.blur()")
    for _ in range(num + 20):  # what scrolls is reached too
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        tab.js("reached.add(document.activeElement)")
    assert tab.js(f"{controls}.filter((one) => !reached.has(one)).map((one) => one.outerHTML)") == []
    style = (
        "(one) => { one.focus(); const { outlineStyle, outlineWidth } = getComputedStyle(one); return `${outlineStyle} ${outlineWidth}`; }"
    )
    assert tab.js(f"[...new Set([...reached].filter((one) => one !== document.body).map({style}))]") == ["solid 2px"]


def test_every_color_of_lines_is_told_apart_by_its_dash_too(tab: Tab, page: Path) -> None:
    names = [f"decoder.layers.{i}.mlp.{layer}\tweight" for i in (0, 1) for layer in ("fc1", "fc2")]
    tab.open(page, "#pins=" + json.dumps("\n".join(names))[1:-1].replace("\\t", "%09").replace("\\n", "%0A"))
    series = "echarts.getInstanceByDom(document.querySelector('.overlay .plot')).getOption().series.filter((one) => one.type === 'line')"
    looks = tab.js(f"{series}.map((one) => [one.lineStyle.color, String(one.lineStyle.type)])")
    assert len(looks) == 6 and len({color for color, _ in looks}) == len({dash for _, dash in looks}) == 6  # three tensors of two runs
