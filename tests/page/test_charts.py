"""Charts in a real browser: zoom by mouse and keys, several tensors and runs in one, smoothing that keeps what is bad, both axes."""

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
from tests.page.browser import Tab, browse, needs_browser
from tests.runs.tensors import Place, write

pytestmark = needs_browser

STEPS = 40
BAD = 20  # the step whose loss is nan
TOLD = "Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"


def write_run(folder: Path, scale: float = 1.0) -> None:
    """Two layers, a loss with a nan, and the learning rates of three groups, of which two are the same."""
    seen, rates = {}, {}
    for step in range(STEPS):
        seen[Place(step, "a", "Linear", "output")] = torch.tensor([scale * 2.0 ** (step % 4)])
        seen[Place(step, "b", "Linear", "output")] = torch.tensor([scale * (1.0 + step)])
        seen[Place(step, "loss", "loss", "loss")] = torch.tensor(float("nan") if step == BAD else scale * (3.0 + step % 2))
        rates[step] = {"optimizer_lr": [0.1 * scale, 0.01 * (step + 1), 0.1 * scale], "optimizer_momentum": [0.9, 0.9, float("nan")]}
    write(folder, seen, settings=rates)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("charts")
    for name, scale in (("a", 1.0), ("b", 3.0)):
        write_run(folder / name, scale)
    a, b = (read_recorded(folder / name) for name in "ab")
    texts = {"one": render([payload_of(a)], "one"), "both": render([payload_of(a), payload_of(b)], "both", comparison_of(a, b))}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab
        assert tab.complaints == []


def series(tab: Tab, plot: str) -> dict[str, Any]:
    """A chart's lines and marks by name: points, opacity."""
    option = f"echarts.getInstanceByDom(document.querySelector('{plot}')).getOption()"
    one = "(one) => [one.name, { points: one.data.map((at) => at.value ?? at), opacity: one.lineStyle?.opacity ?? 1 }]"
    return dict(tab.js(f"{option}.series.map({one})"))


def choose(tab: Tab, name: str, value: str) -> None:
    tab.js(f"(() => {{ const at = document.getElementById('{name}'); at.value = '{value}'; at.dispatchEvent(new Event('change')); }})()")
    tab.settle()


def sight(tab: Tab) -> tuple[int, int]:
    """Columns in sight of all charts, which are those of the map."""
    axis = "(at) => { const { min, max } = echarts.getInstanceByDom(at).getOption().xAxis[0]; return `${min + 0.5} ${max - 0.5}`; }"
    (told,) = set(
        tab.js(f"[...document.querySelectorAll('.plot')].filter((at) => at.checkVisibility() && echarts.getInstanceByDom(at)).map({axis})")
    )
    first, last = map(int, told.split())
    ticks = tab.text("#map .axis").split()
    assert (int(ticks[1]), int(ticks[-1])) == (first, last)
    return first, last


def drag(tab: Tab, selector: str, begin: float, end: float) -> None:
    """The mouse draws over an element, sideways."""
    tab._place(selector, begin, 0.5)
    for kind, x in (("mousePressed", begin), ("mouseMoved", (begin + end) / 2), ("mouseMoved", end), ("mouseReleased", end)):
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **tab._place(selector, x, 0.5))
    tab.settle()


def test_a_step_that_is_out_of_sight_makes_the_page_no_wider(tab: Tab, pages: dict[str, Path]) -> None:
    tab.size(1440, 1000)
    tab.open(pages["one"], f"#step={STEPS - 1}&layer=a&tensor=output")
    drag(tab, "#map canvas.cells", 2.5 / STEPS, 9.5 / STEPS)
    assert sight(tab)[1] < STEPS - 1
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")


def test_dragging_over_steps_zooms_and_a_double_click_or_escape_shows_all(tab: Tab, pages: dict[str, Path]) -> None:
    tab.size(1440, 1000)
    tab.open(pages["one"], "#step=15&layer=a&tensor=output")
    assert sight(tab) == (0, STEPS - 1)
    drag(tab, "#map canvas.cells", 10.5 / STEPS, 29.5 / STEPS)
    assert sight(tab) == (10, 29)
    assert tab.js(TOLD)["step"] == "15"  # no click
    assert "zoomed: steps 10–29" in tab.text("#timeline")
    tab.open(pages["one"], tab.js("location.hash"))
    assert sight(tab) == (10, 29)  # a link leads to the same view
    tab.key("Escape")
    assert sight(tab) == (0, STEPS - 1)
    drag(tab, "#site .plot", 0.5, 0.9)
    first, last = sight(tab)
    assert 15 < first < last < STEPS - 1
    place = tab._place("#site .plot", 0.5, 0.5)
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=count, **place)
    tab.settle()
    assert sight(tab) == (0, STEPS - 1)


def test_keys_and_buttons_zoom_and_what_is_in_sight_follows_the_step(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["one"], "#step=20&layer=a&tensor=output")
    tab.key("+")
    first, last = sight(tab)
    assert last - first + 1 == STEPS // 2 and first <= 20 <= last
    tab.click("#closer")
    assert sight(tab)[1] - sight(tab)[0] + 1 == STEPS // 4
    tab.key("End")
    assert sight(tab) == (STEPS - 10, STEPS - 1)
    tab.key("-")
    tab.click("#all-steps")
    assert sight(tab) == (0, STEPS - 1)
    assert tab.js("document.getElementById('wider').disabled")


def test_smoothing_leaves_the_raw_line_and_what_is_bad(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["one"], "#step=5&layer=a&tensor=output")
    choose(tab, "lossScale-smooth", "0.9")
    found = series(tab, "#timeline .plot.loss")
    assert found["loss, raw"]["opacity"] < 0.5 and [x for _, x in found["loss, raw"]["points"]][:3] == [3, 4, 3]
    smooth = [x for _, x in found["loss"]["points"]]
    kept, weight, expected = 0.0, 0.0, []
    for step in range(STEPS):
        if step == BAD:
            kept = weight = 0.0  # nothing of before is mixed in behind a nan
            expected.append(None)
            continue
        kept, weight = 0.9 * kept + 0.1 * (3 + step % 2), 0.9 * weight + 0.1
        expected.append(pytest.approx(kept / weight))
    assert smooth == expected
    assert [step for step, _ in found["nan or inf"]["points"]] == [BAD]
    assert "largest magnitude, raw" in series(tab, "#site .plot")  # one choice for all charts


def test_models_that_train_together_have_a_line_each(tab: Tab, tmp_path: Path) -> None:
    seen = {}
    for step in range(4):
        seen[Place(step, "loss", "loss", "loss")] = torch.tensor(-0.5)
        seen[Place(step, "Critic.loss", "loss", "loss")] = torch.tensor(6.0 + step)
    write(tmp_path / "run", seen)
    (tmp_path / "page.html").write_text(render([payload_of(read_recorded(tmp_path / "run"))], "page"), encoding="utf-8")
    tab.open(tmp_path / "page.html")
    found = series(tab, "#timeline .plot.loss")
    assert {name: [x for _, x in found[name]["points"]] for name in ("loss", "Critic.loss")} == {
        "loss": [-0.5] * 4,
        "Critic.loss": [6, 7, 8, 9],
    }


def test_an_axis_is_linear_or_logarithmic(tab: Tab, pages: dict[str, Path]) -> None:
    plots = "[...document.querySelectorAll('#timeline .plot.loss, #site .plot')].filter((at) => at.checkVisibility())"
    kinds = f"{plots}.map((at) => echarts.getInstanceByDom(at).getOption().yAxis[0].type)"
    tab.open(pages["one"], "#layer=a&tensor=output")
    assert tab.js(kinds) == ["value", "log"]
    choose(tab, "lossScale", "log")
    choose(tab, "scale", "linear")
    assert tab.js(kinds) == ["log", "value"]
    assert (tab.js(TOLD)["lossScale"], tab.js(TOLD)["scale"]) == ("log", "linear")


def test_several_tensors_are_in_one_chart(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["one"], "#layer=a&tensor=output&step=3")
    assert not tab.js("document.querySelector('.overlay').checkVisibility()")
    tab.click("#pin")
    tab.js("location.hash = location.hash.replace('layer=a', 'layer=b')")
    tab.settle()
    tab.key("c")
    assert tab.text(".overlay .lines").split("✕")[:2] == ["a output\n", "\nb output\n"]
    found = series(tab, ".overlay .plot")
    assert [x for _, x in found["b output"]["points"]] == [1.0 + step for step in range(STEPS)]
    tab.click(".overlay .lines li:first-child .unpin")
    assert next(iter(series(tab, ".overlay .plot"))) == "b output"
    tab.click("#pin")
    assert not tab.js("document.querySelector('.overlay').checkVisibility()")


def test_both_runs_of_a_comparison_are_in_one_chart(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["both"], "#layer=b&tensor=output&step=3")
    found = series(tab, ".overlay .plot")
    for name, scale in (("A: b output", 1.0), ("B: b output", 3.0)):
        assert [x for _, x in found[name]["points"]] == [scale * (1.0 + step) for step in range(STEPS)]
    loss = series(tab, "#timeline .plot.loss")
    assert loss["B: loss"]["points"][3][1] == 3 * loss["A: loss"]["points"][3][1] == 12
    assert "A: loss" in tab.text("#timeline .lines") and "B: learning rate of group 0, 2" in tab.text("#timeline .lines")


def test_the_learning_rates_stand_below_the_loss(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["one"], "#step=3")
    found = series(tab, "#timeline .plot.rate")
    assert [x for _, x in found["learning rate of group 1"]["points"]] == pytest.approx([0.01 * (step + 1) for step in range(STEPS)])
    assert {x for _, x in found["learning rate of group 0, 2"]["points"]} == {float(torch.tensor(0.1))}
    data = json.loads(tab.js("document.getElementById('data').textContent"))["runs"][0]
    assert list(data["rates"]) == ["0, 2", "1"]
