"""The page in a real browser: from an alarm to its line, what hostile names do, keys, addresses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from numscope.page.document import render
from numscope.page.payload import comparison_of, payload_of
from numscope.page.recorded import read_recorded
from numscope.summary.extras import EXPONENTS
from numscope.summary.operand_casts import PAPER_EXTRAS
from tests.page.browser import Tab, browse, needs_browser
from tests.page.test_health import finding, run_with
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, two_layers, write

pytestmark = needs_browser

SCRIPT = """\
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        score = self.head(torch.relu(self.up(x)))
        return torch.sqrt(score)  # the line at fault


torch.manual_seed(0)
model = Scorer()
with torch.no_grad():
    model.head.bias.fill_(2.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(60):
    loss = model(torch.rand(16, 8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LINE = 1 + SCRIPT.split("\n").index("        return torch.sqrt(score)  # the line at fault")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab


@pytest.fixture(autouse=True)
def no_complaints(tab: Tab) -> Iterator[None]:
    tab.complaints.clear()
    tab.requests.clear()
    yield
    assert tab.complaints == []
    assert [request for request in tab.requests if not request.startswith("file:")] == []


def make(folder: Path) -> Path:
    page = folder / "report.html"
    page.write_text(render([payload_of(read_recorded(folder))], folder.name), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run that stopped at a finding, made by the command."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "train.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "-m", "numscope", "run", "--log-dir", "logs", "train.py"], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 3, ran.stderr
    made = subprocess.run([sys.executable, "-m", "numscope", "report", "logs"], cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    page = folder / "logs" / "report.html"
    assert made.stdout.strip() == page.as_uri()
    return page


def test_from_the_alarm_to_its_line(tab: Tab, failing: Path) -> None:
    tab.open(failing, "#finding=-1")
    assert "Choose a finding" in tab.text("#culprit")
    tab.click("#findings .finding")
    line = tab.text("#culprit .culprit-line")
    assert re.fullmatch(rf"➤ {LINE}\s+return torch\.sqrt\(score\)  # the line at fault\s*", line), line
    assert "aten.sqrt" in tab.text("#culprit .headline")
    assert "neighbors were read when this page was made" in tab.text("#culprit")
    assert "numscope run --log-dir logs train.py" in tab.text("#culprit .command")
    finding = json.loads(failing.with_name("findings-rank0.json").read_text())["findings"][0]
    assert tab.js("new URLSearchParams(location.hash.slice(1)).get('step')") == str(finding["step"])


def test_the_line_stands_beside_the_finding(tab: Tab, failing: Path) -> None:
    tab.size(1440, 900)
    tab.open(failing, "#finding=-1")
    tab.click("#findings .finding")
    assert "➤" in tab.text("#culprit .culprit-line")
    place = "document.querySelector('#culprit .culprit-line').getBoundingClientRect()"
    assert tab.js("scrollY") == 0 and tab.js(f"{place}.bottom") < 900
    assert tab.js(f"{place}.left > document.querySelector('#findings').getBoundingClientRect().right")
    tab.size(390, 844)  # a phone: below it
    edge = "document.querySelector('{}').getBoundingClientRect().{}"
    assert tab.js(f"{edge.format('#culprit', 'top')} >= {edge.format('#findings', 'bottom')}")
    tab.size(1440, 1000)


def test_origin_and_what_it_has_spoiled_look_different(tab: Tab, tmp_path: Path) -> None:
    run_with(tmp_path, {"a": 3, "b": 3, "c": 4}, [finding("b", 3)])
    tab.open(make(tmp_path))
    mark = "(one) => [one.querySelector('.name').textContent, one.lastChild.textContent.trim()]"
    told = tab.js(f"Object.fromEntries([...document.querySelectorAll('#map .label')].map({mark}))")
    assert (told["a"], told["b"], told["c"], told["near"]) == ("○", "✖", "○", "▲")
    choose = "(value) => { const one = document.getElementById('shown'); one.value = value; one.dispatchEvent(new Event('change')); }"
    layers = "[...document.querySelectorAll('#map .label:not(.tensor) .name')].map((one) => one.textContent)"
    for value, names in (("origin", ["b"]), ("rising", ["b", "near"]), ("all", ["a", "b", "c", "d", "near"])):
        tab.js(f"({choose})('{value}')")
        assert sorted(tab.js(layers)) == names


def test_a_search_that_finds_nothing_says_so(tab: Tab, watched: Path) -> None:
    tab.open(watched, "#search=nowhere")
    assert "No tensor matches “nowhere”." in tab.text("#map")
    tab.open(watched, "#search=%2F(%2F")
    assert "The search is no regular expression: " in tab.text("#map")
    tab.open(watched, "#search=fc1")
    assert tab.js("document.querySelector('#map .problem').textContent") == ""


def test_the_line_stays_where_the_script_is_gone(tab: Tab, failing: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    text = failing.with_name("findings-rank0.json").read_text().replace("train.py", "gone.py")
    (folder / "findings-rank0.json").write_text(text)
    tab.open(make(folder))
    assert "return torch.sqrt(score)" in tab.text("#culprit .culprit-line")
    assert "the file was not there or had changed" in tab.text("#culprit")
    assert "watched for bad numbers only" in tab.text("#site")
    assert tab.js("document.getElementById('map').hidden")
    assert tab.js("document.querySelectorAll('#timeline .mark.bad').length") == 1


def test_a_finding_in_a_library_names_the_line_that_called_it(tab: Tab, tmp_path: Path) -> None:
    library = "lib/site-packages/them/layers.py"
    stack = [["train.py", 12, "main", "loss = step()"], ["train.py", 7, "step", "return net(x)"], [library, 3, "forward", "x / y"]]
    culprit = {"op": "aten.div", "phase": "forward", "module": "", "file": library, "line": 3, "code": "x / y", "reason": "unknown",
               "detail": "", "advice": "", "inputs": [], "outputs": [], "stack": stack}  # fmt: skip
    (tmp_path / "findings-rank0.json").write_text(document(FINDING | {"culprit": culprit}, steps=9))
    tab.open(make(tmp_path))
    assert "layers.py:3 called from train.py:7" in tab.text("#findings .line")
    assert "9 steps" in tab.text("#head .facts")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    write(folder, two_layers(12), (EXPONENTS, PAPER_EXTRAS["e4m3"]))
    (folder / "findings-rank0.json").write_text(document(FINDING))
    return make(folder)


def test_a_cell_leads_to_its_tensor_and_step(tab: Tab, watched: Path) -> None:
    tab.open(watched, "#finding=-1&step=0&search=" + "%2Ffc1%20grad%2F")
    assert tab.js("document.querySelectorAll('#map .label.tensor').length") == 2
    lines = tab.js("document.querySelectorAll('#map .label').length")
    tab.click("#map canvas.cells", x=2.5 / 12, y=(lines - 0.5) / lines)
    told = dict(tab.js("[...new URLSearchParams(location.hash.slice(1))]"))
    assert (told["layer"], told["tensor"], told["step"]) == ("decoder.layers.1.mlp.fc1", "gradient", "2")
    assert tab.text("#site .site-name").startswith("decoder.layers.1.mlp.fc1")
    assert "nan or inf elements, first at step 2" in tab.text("#site")


def test_numbers_of_the_page_are_those_of_the_run(tab: Tab, watched: Path) -> None:
    seen = two_layers(12)
    value = next(
        value for place, value in seen.items() if (place.step, place.layer, place.tensor) == (5, "decoder.layers.0.mlp.fc2", "weight")
    )
    tab.open(watched, "#step=5&layer=decoder.layers.0.mlp.fc2&tensor=weight")
    rows = "[...document.querySelectorAll('#site table.numbers tr')]"
    cells = tab.js(f"Object.fromEntries({rows}.map((row) => [...row.children].map((cell) => cell.innerText)))")
    assert float(cells["largest magnitude (amax)"].replace(",", "")) == pytest.approx(value.abs().max().item(), rel=1e-3)
    assert cells["zeros"] == f"{float(f'{100 * (value == 0).double().mean().item():.4g}'):g}"
    bars = tab.js(
        "[...document.querySelectorAll('#site .bar')].map((bar) => Number(/: ([\\d.e-]+) %/.exec(bar.title)[1])).reduce((a, b) => a + b)"
    )
    assert bars == pytest.approx(100 * (value != 0).double().mean().item(), abs=0.1)


def test_formats_tell_what_would_be_lost(tab: Tab, tmp_path: Path) -> None:
    value = torch.cat([torch.full((50,), 1.0), torch.full((30,), 1000.0), torch.full((20,), 2.0**-12)])
    write(tmp_path, {Place(0, "a", "Linear", "output"): value}, (EXPONENTS,))
    tab.open(make(tmp_path))
    verdicts = tab.js(
        "[...document.querySelectorAll('#site .format-line')].map((row) => [row.children[0].innerText, row.children[2].innerText])"
    )
    assert dict(verdicts) | {
        "fp32": "fits",
        "bf16": "fits",
        "fp16": "fits",
        "e4m3": "30 % saturate, 20 % become zero",
        "e5m2": "fits",
    } == dict(verdicts)


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>document.title='owned'</script>",
    "\"quotes' & <b>bold</b>",
    "a\u202egnp.exe",
    "x" * 10_000,
)


def test_hostile_names_are_text(tab: Tab, tmp_path: Path) -> None:
    value = torch.tensor([1.0, float("nan")])
    write(tmp_path, {Place(0, name, name, "output"): value for name in HOSTILE})
    stack = [[name, 1, name, name] for name in HOSTILE]
    operand = {"name": HOSTILE[0], "numbers": None, "value": HOSTILE[1]}
    findings = [
        FINDING | {
            "step": 0, "site": {"module": name, "cls": name, "phase": "forward", "slot": "output"}, "model": name, "note": name,
            "replay": name,
            "culprit": {"op": name, "phase": "forward", "module": name, "file": name, "line": 3, "code": name, "reason": "unknown",
                        "detail": name, "advice": name, "inputs": [operand], "outputs": [operand], "stack": stack},
            "frames": [{"module": name, "cls": name, "phase": "forward", "lines": [{"slot": name, "numbers": None, "note": name}]}] * 2,
        }
        for name in HOSTILE
    ]  # fmt: skip
    (tmp_path / "findings-rank0.json").write_text(document(*findings, model=HOSTILE[1], events=[[0, HOSTILE[0]]]))
    tab.open(make(tmp_path))
    for i in range(1, len(HOSTILE) + 1):
        tab.click(f"#findings li:nth-child({i}) .finding")
        assert tab.js("document.querySelectorAll('img, b b, main script').length") == 0
        assert tab.js("document.title") == tmp_path.name
    assert "<img src=x onerror=alert(1)>" in tab.text("#findings")
    assert "\\u202e" in tab.text("#findings")
    assert "\u202e" not in tab.text("body")
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")


def test_keys_move_through_steps_lines_and_findings(tab: Tab, watched: Path) -> None:
    tab.open(watched, "#step=5&layer=decoder.layers.0.mlp.fc1&tensor=activation")
    told = "new URLSearchParams(location.hash.slice(1))"
    tab.key("ArrowRight")
    assert tab.js(f"{told}.get('step')") == "6"
    tab.key("ArrowDown")
    assert tab.js(f"{told}.get('tensor')") != "activation"
    tab.key("n")
    assert tab.js(f"{told}.get('finding')") == "0"
    tab.key("/")
    assert tab.js("document.activeElement.id") == "search"
    tab.js("document.activeElement.blur()")
    before = tab.js("getComputedStyle(document.body).backgroundColor")
    tab.key("t")
    assert tab.js("getComputedStyle(document.body).backgroundColor") != before


def test_an_address_shows_the_same_view_again(tab: Tab, watched: Path) -> None:
    tab.open(watched)
    tab.js("document.getElementById('statistic').value = 'rms'; document.getElementById('statistic').dispatchEvent(new Event('change'))")
    tab.settle()
    address = tab.js("location.hash")
    shown = tab.text("body")
    tab.open(watched, address)
    assert tab.js("document.getElementById('statistic').value") == "rms"
    assert tab.text("body") == shown


def test_an_address_of_nonsense_does_no_harm(tab: Tab, watched: Path) -> None:
    for address in ("#step=-5", "#step=99999999999", "#finding=77", "#stat=nothing&layer=none&tensor=x", "#%E0%A4%A", "#run=9"):
        tab.open(watched, address)
        assert tab.text("#map")


def test_two_runs_are_compared(tab: Tab, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, scale in zip(folders, (1.0, 3.0), strict=True):
        values = {Place(step, "fc", "Linear", "output"): torch.arange(1.0, 9.0) * (scale if step == 4 else 1.0) for step in range(6)}
        write(folder, values)
    a, b = (read_recorded(folder) for folder in folders)
    page = tmp_path / "both.html"
    page.write_text(render([payload_of(a), payload_of(b)], "both", comparison_of(a, b)), encoding="utf-8")
    tab.open(page)
    assert "fc output, step 4" in tab.text("#compare")
    assert "1 step of 6 diverge" in tab.text("#compare")
    assert "Numbers, step 4" in tab.text("#site")  # it opens at the first difference
    tab.open(page, "#step=2")
    assert "Numbers, step 2" in tab.text("#site")  # unless the address says where
    tab.open(page)
    hover = "#differences canvas.cells"
    lines = tab.js("document.querySelectorAll('#differences .label').length")
    tab.click(hover, x=3.5 / 6, y=(lines - 0.5) / lines)
    assert tab.js("new URLSearchParams(location.hash.slice(1)).get('step')") == "3" and "Numbers, step 3" in tab.text("#site")
    for x, told in (
        (4.5, "step 4: largest magnitude (amax): 1.585 powers of two apart (A 8, B 24)"),
        (2.5, "0 powers of two apart (A 8, B 8)"),
    ):
        tab.move(hover, x=x / 6, y=(lines - 0.5) / lines)
        assert told in tab.text("#differences .hint")
    tab.click("#first-divergence")
    assert "Numbers, step 4" in tab.text("#site")
    assert "8 the tensor's unit" in " ".join(tab.text("#site table.numbers tr:first-child").split())
    tab.js("(() => { const which = document.getElementById('which'); which.value = '1'; which.dispatchEvent(new Event('change')); })()")
    tab.wait("document.querySelector('#head h1')?.innerText === 'numscope b' && document.documentElement.dataset.ready")
    assert "24 the tensor's unit" in " ".join(tab.text("#site table.numbers tr:first-child").split())


def test_map_of_differences_holds_what_both_runs_have(tab: Tab, tmp_path: Path) -> None:
    values = {Place(step, "fc", "Linear", "output"): torch.tensor([2.0**step]) for step in range(8)}
    other = {place: value for place, value in values.items() if place.step % 2 == 0} | {Place(0, "own", "Linear", "output"): torch.ones(1)}
    other[Place(2, "fc", "Linear", "output")] = torch.tensor([float("nan")])
    other[Place(4, "fc", "Linear", "output")] = torch.zeros(1)
    write(tmp_path / "a", values)
    write(tmp_path / "b", other)
    a, b = (read_recorded(tmp_path / name) for name in "ab")
    page = tmp_path / "both.html"
    page.write_text(render([payload_of(a), payload_of(b)], "both", comparison_of(a, b)), encoding="utf-8")
    tab.open(page)
    names = tab.js("[...document.querySelectorAll('#differences .name')].map((one) => one.innerText)")
    assert names == ["fc", "output"]
    expected = {
        0: "0 powers of two apart",
        1: "not in both",
        2: "not finite in one of the two alone",
        4: "24 powers of two apart (A 16, B 0)",
    }
    for step, told in expected.items():
        tab.move("#differences canvas.cells", x=(step + 0.5) / 8, y=0.75)
        assert f"fc output, step {step}: largest magnitude (amax): {told}" in tab.text("#differences .hint")


def test_the_odd_rank_is_named(tab: Tab, tmp_path: Path) -> None:
    values = {Place(step, "fc", "Linear", "output", rank): torch.tensor([1.0 + rank / 100]) for step in range(3) for rank in range(4)}
    values[Place(1, "fc", "Linear", "output", 2)] = torch.tensor([50.0])
    values[Place(2, "fc", "Linear", "output", 3)] = torch.tensor([float("nan")])
    write(tmp_path, values)
    page = make(tmp_path)
    expected = (
        "the ranks agree within a factor of 2; the median is 1.02.",
        "rank 2 stands apart: 50, where the median of the ranks is 1.03.",
    )
    for step, told in enumerate((*expected, "not finite on rank 3.")):
        tab.open(page, f"#step={step}&layer=fc&tensor=output")
        assert tab.text("#odd-rank") == f"step {step}: {told}"


def saved(tab: Tab, selector: str, label: str) -> str:
    """What a button would save as a file."""
    tab.js("window.blobs = []; URL.createObjectURL = (blob) => { window.blobs.push(blob); return '#saved'; }")
    tab.js("HTMLAnchorElement.prototype.click = () => {}")
    tab.js(f"[...document.querySelectorAll('{selector} button')].find((one) => one.innerText === '{label}').click()")
    tab.wait("window.blobs.length")
    return str(tab.js("window.blobs[0].text()"))


def test_numbers_are_saved_as_csv_and_json(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, {Place(step, "=cmd()", 'a"b', "output"): torch.tensor([2.0**step, 0.5]) for step in range(3)})
    tab.open(make(tmp_path))
    head, row = saved(tab, "#map", "CSV").split("\r\n")[:2]
    assert head == "layer,tensor,unit,0,1,2"
    assert row == "'=cmd(),output,the tensor's unit,1,2,4"
    lines = saved(tab, "#site", "CSV").split("\r\n")
    assert lines[0].startswith("first_step,last_step,amax [the tensor's unit],num_nonfinite [elements],")
    assert lines[3].startswith("2,2,4,0,")
    told = json.loads(saved(tab, "#site", "JSON"))
    assert (told["layer"], told["first_step"]) == ("=cmd()", [0, 1, 2])
    assert told["statistics"]["amax"] == {"unit": "the tensor's unit", "values": [1, 2, 4]}


@pytest.mark.parametrize(("width", "height"), [(390, 800), (3000, 1200)])
def test_nothing_sticks_out_of_a_narrow_or_wide_window(tab: Tab, watched: Path, width: int, height: int) -> None:
    tab.size(width, height)
    tab.open(watched)
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")
    tab.size(1440, 1000)


@pytest.fixture(scope="module")
def fifteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run of 15 steps and more layers than its map is tall."""
    folder = tmp_path_factory.mktemp("fifteen")
    write(folder, {Place(step, f"layer{i}", "Linear", "output"): torch.ones(2) for step in range(15) for i in range(80)}, part_rows=400)
    return make(folder)


def test_charts_are_as_wide_as_the_window_lets_them(tab: Tab, fifteen: Path) -> None:
    tab.open(fifteen, "#step=3&layer=layer0&tensor=output")
    for width in (900, 1440):
        tab.size(width, 1000)
        tab.wait(
            f"innerWidth === {width} && (([plot, canvas]) => plot.clientWidth === canvas.clientWidth)"
            "(['', ' canvas'].map((of) => document.querySelector('#site .plot' + of)))"
        )


def test_a_step_of_a_chart_stands_below_its_point(tab: Tab, fifteen: Path) -> None:
    tab.open(fifteen, "#step=3&layer=layer0&tensor=output")
    places = tab.js(
        "(() => { const chart = echarts.getInstanceByDom(document.querySelector('#site .plot'));"
        " return chart.getZr().storage.getDisplayList().filter((one) => /^\\d+$/.test(one.style.text ?? '') && one.transform?.[4] > 62)"
        ".map((one) => [one.transform[4], chart.convertToPixel({ xAxisIndex: 0 }, Number(one.style.text))]); })()"
    )
    assert len(places) > 3  # right of 62 no label is the other axis's
    assert all(label == pytest.approx(point, abs=1) for label, point in places), places


def test_a_limit_is_named_beside_its_line(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, {Place(step, "a", "A", "output"): torch.tensor([8.0**step], dtype=torch.float16) for step in range(6)})
    tab.open(make(tmp_path), "#step=3&layer=a&tensor=output")
    top, line = tab.js(
        "(() => { const chart = echarts.getInstanceByDom(document.querySelector('#site .plot'));"
        " const text = chart.getZr().storage.getDisplayList().find((one) => one.style.text === 'fp16 max 65,504');"
        " const box = text.getBoundingRect().clone(); box.applyTransform(text.transform);"
        " return [box.y, chart.convertToPixel({ yAxisIndex: 0 }, 65504)]; })()"
    )
    assert top > line + 4  # the box of a text begins above its letters


def test_steps_below_the_map_are_evenly_spaced(tab: Tab, fifteen: Path) -> None:
    tab.open(fifteen)
    assert tab.text("#map .axis").split() == ["step", *map(str, range(0, 15, 2))]


def test_a_scrollbar_moves_no_column_of_the_map(tab: Tab, fifteen: Path) -> None:
    tab.open(fifteen)
    tab.js("document.querySelector('#map .view').style.borderRight = '15px solid'")  # the room of a scrollbar: tests have none
    right = "document.querySelector('{}').getBoundingClientRect().right"
    assert tab.js(right.format("#map canvas.cells")) < tab.js(right.format("#map .axis"))
    tab.key("ArrowLeft")
    assert tab.js(right.format("#map canvas.cells")) == tab.js(right.format("#map .axis"))
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")


def test_events_and_restarts_stand_in_the_timeline(tab: Tab, tmp_path: Path) -> None:
    for start in (0, 3):
        write(tmp_path, {Place(start + step, "a", "A", "output"): torch.ones(2) for step in range(4)})
    (tmp_path / "findings-rank0.json").write_text(document())
    tab.open(make(tmp_path))
    titles = tab.js("[...document.querySelectorAll('#timeline .mark')].map((mark) => mark.title)")
    assert titles == ["step 3: restart: attempt 2 of the run begins", "step 1, rank 0: GradScaler skipped the step"]
    tab.click("#timeline .mark.event")
    assert tab.js("new URLSearchParams(location.hash.slice(1)).get('step')") == "1"


def alarming(folder: Path, *findings: dict[str, object]) -> Path:
    write(folder, two_layers(12))
    alerts = [
        {**ALERT, "step": 4, "evidence": {"trend": [1.5, 0.123456789], "markup": "<b>x</b>", "nothing": []}, "rank": 0},
        {**ALERT, "step": 7, "rule": "loss spike", "layer": "", "tensor": "", "value": None, "limit": None, "evidence": {}, "asks": True},
        {**ALERT, "step": 9, "layer": "decoder.layers.0.mlp.fc2", "tensor": "weight"},
    ]
    for rank in (0, 1):
        (folder / f"findings-rank{rank}.json").write_text(
            document(*findings, alerts=[{**one, "rank": rank} for one in alerts[: 3 - 2 * rank]], rank=rank)
        )
    return make(folder)


@pytest.mark.parametrize("dark", [False, True])
def test_run_with_alerts_and_no_finding_opens_at_the_first_one(tab: Tab, tmp_path: Path, dark: bool) -> None:
    page = alarming(tmp_path)
    tab.size(1440, 1000, dark)
    tab.open(page)
    tab.size(1440, 1000)
    assert "No nan or inf got through while numscope watched; see the alerts below." in tab.text("#findings")
    assert tab.text("#alerts h2") == "3 alerts"
    assert "One with a question mark may be intended." in tab.text("#alerts .explain")
    assert [tab.text(f"#alerts li:nth-child({i}) .kind") for i in (1, 2, 3)] == ["⚑ overflow ahead", "⚑ ? loss spike", "⚑ overflow ahead"]
    assert tab.text("#alerts li:nth-child(1) .when") == "step 4, 2 ranks"
    assert tab.text("#alerts .selected .when") == "step 4, 2 ranks"
    chosen = tab.text("#alerts .chosen")
    assert all(text in chosen for text in ("It grows.", "Advice: Train in bfloat16.", "412", "inf", "1.5, 0.123457", "<b>x</b>", "0, 1"))
    assert "nothing" not in chosen
    assert tab.text("#site .site-name").startswith("decoder.layers.1.mlp.fc1")
    assert "shown: step 4" in tab.text("#timeline .lane-name")


def test_marks_of_alerts_are_told_apart_without_color_and_lead_to_step_and_tensor(tab: Tab, tmp_path: Path) -> None:
    tab.open(alarming(tmp_path, FINDING))
    assert "✖ finding, ⚑ alert, ◆ event." in tab.text("#timeline .explain")
    assert tab.text("#timeline .mark.bad") == "✖" and tab.text("#timeline .mark.warn") == "⚑"
    assert tab.js("document.querySelectorAll('#timeline .mark.warn').length") == 3
    assert not tab.text("#alerts .selected")  # the finding is what the page opens at
    tab.click("#timeline .mark.warn[title^='step 9:']")
    told = dict(tab.js("[...new URLSearchParams(location.hash.slice(1))]"))
    assert (told["alert"], told["step"], told["layer"], told["tensor"]) == ("2", "9", "decoder.layers.0.mlp.fc2", "weight")
    for key, alert in (("a", "0"), ("a", "1"), ("A", "0"), ("A", "2")):
        tab.key(key)
        assert dict(tab.js("[...new URLSearchParams(location.hash.slice(1))]"))["alert"] == alert
    tab.click("#alerts li:nth-child(2) button")
    assert dict(tab.js("[...new URLSearchParams(location.hash.slice(1))]"))["step"] == "7"


def test_address_leads_to_an_alert(tab: Tab, tmp_path: Path) -> None:
    page = alarming(tmp_path, FINDING)
    tab.open(page, "#alert=2")
    assert "shown: step 9" in tab.text("#timeline .lane-name")
    for address in ("#alert=77", "#alert=-3"):
        tab.open(page, address)
        assert tab.text("#alerts h2") == "3 alerts"


def test_alerts_alone_without_statistics_have_a_timeline(tab: Tab, tmp_path: Path) -> None:
    alert = {**ALERT, "step": 2, **dict.fromkeys(("rule", "layer", "text"), HOSTILE[0])}
    (tmp_path / "findings-rank0.json").write_text(document(alerts=[alert], events=[]))
    tab.open(make(tmp_path))
    assert tab.text("#timeline .mark.warn") == "⚑"
    assert tab.text("#alerts h2") == "1 alert"
    assert tab.js("document.querySelectorAll('img').length") == 0
    assert HOSTILE[0] in tab.text("#alerts .chosen")
