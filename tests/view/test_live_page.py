"""The live page in a real browser, while real trainings write."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.page.browser import CHROMIUM, Tab, browse
from tests.page.test_page import HOSTILE, SCRIPT
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, two_layers, write
from tests.view.serving import MOST_WAIT_S, Served, serve

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)")

# Goes on as long as there is a file "go N": to step N, each of which it writes at once. At step 40 the square root gets a negative number.
TRAINING = f"""\
import os
import time

from numscope.sinks import parquet

parquet.ParquetSink.flush = parquet.ParquetSink.write_part  # each step at once, rather than every half minute
{SCRIPT.split("torch.manual_seed")[0]}

def wait_for(step):
    while not os.path.exists("go") or int(open("go").read() or 0) < step:
        time.sleep(0.01)


torch.manual_seed(0)
model = Scorer()
with torch.no_grad():
    model.head.bias.fill_(2.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(100):
    wait_for(step)
    if step == 40:
        with torch.no_grad():
            model.head.bias.fill_(-9.0)
    loss = model(torch.rand(16, 8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CONFIG = """\
all:
  enabled: true
  layers: {layer_name_regex_pattern: ".*"}
  statistics:
    enabled: true
    stats: [max, rms, exponent_histogram]
    tensors: [activation, output, gradient, weight]
    freq: 1
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browse() as tab:
        yield tab


@pytest.fixture(autouse=True)
def no_complaints(tab: Tab) -> Iterator[None]:
    tab.call("Page.navigate", url="about:blank")
    tab.complaints.clear()
    tab.requests.clear()
    yield
    assert tab.complaints == []
    assert {re.sub(r"\?.*", "", request) for request in tab.requests if not request.startswith("http://127.0.0.1:")} == set()


class Training:
    """A training that waits to be let go on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.logs = folder / "logs"
        (folder / "train.py").write_text(TRAINING)
        (folder / "config.yaml").write_text(CONFIG)
        words = [sys.executable, "-m", "numscope", "run", "--config", "config.yaml", "--log-dir", "logs", "train.py"]
        self.process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def has_begun(self) -> None:
        """Until its folder is a run's."""
        end = time.monotonic() + MOST_WAIT_S
        while not (self.logs / "run.json").exists():
            assert time.monotonic() < end
            time.sleep(0.02)

    def go_to(self, step: int) -> None:
        aside = self.folder / "next"
        aside.write_text(str(step))
        aside.replace(self.folder / "go")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path / "training")
    try:
        yield training
    finally:
        training.process.kill()
        training.process.wait(30)


def last_column(step: int) -> str:
    """True when the page shows at least so many steps."""
    return f"Number((/([\\d,]+) recorded step/.exec(document.querySelector('#head .facts')?.innerText) ?? [0, '0'])[1]) > {step}"


def test_a_page_follows_a_training_from_before_its_start_to_its_finding(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "training" / "logs").mkdir(parents=True)
    with serve(tmp_path / "training" / "logs") as served:
        tab.call("Page.navigate", url=served.link)
        tab.wait("document.getElementById('wait')?.innerText.includes('is empty')")
        tab.js("window.never = 'reloaded'")
        training = Training(tmp_path / "training")
        try:
            training.go_to(5)
            tab.wait(last_column(4))
            assert tab.text("#live").startswith("● live · written")
            assert "Nothing has gone bad so far" in tab.text("#findings")
            training.go_to(20)
            tab.wait(last_column(18))
            assert tab.js("document.getElementById('follow').checked")
            assert int(tab.js("document.querySelectorAll('#map canvas.cells').length")) == 1
            tab.wait("Number(/Numbers, step (\\d+)/.exec(document.getElementById('site').innerText)?.[1]) >= 19")
            training.go_to(99)
            assert training.process.wait(120) == 3
            tab.wait("document.querySelector('#findings .finding') !== null")
        finally:
            training.process.kill()
            training.process.wait(30)
        tab.wait("document.getElementById('live').innerText.startsWith('■ the run has ended')")
        tab.wait("document.querySelector('#culprit .culprit-line')?.innerText.includes('torch.sqrt(score)')")
        tab.wait("document.getElementById('site').innerText.includes('Numbers, step 40')")
        tab.wait("document.title === '✖ 1 logs – numscope'")  # the last thing that a look draws
        assert tab.js("window.never") == "reloaded"
        body = tab.text("main")
        tab.visit(f"{served.site}?run=logs")
        tab.wait("document.getElementById('live').innerText.startsWith('■ the run has ended')")
        assert tab.text("main") == body, "a page that was opened at the start shows what one shows that is opened at the end"


def test_what_was_chosen_stays_while_columns_come(tab: Tab, training: Training) -> None:
    training.go_to(10)
    training.has_begun()
    with serve(training.logs.parent) as served:
        served.until(lambda runs: runs and runs[0]["step"] is not None and runs[0]["step"] >= 9, "runs")
        tab.visit(served.link)
        tab.wait(last_column(9))
        tab.js("(() => { const s = document.getElementById('statistic'); s.value = 'rms'; s.dispatchEvent(new Event('change')); })()")
        lines = tab.js("document.querySelectorAll('#map .label').length")
        tab.click("#map .label:nth-child(1)")  # folds the first module
        assert tab.js("document.querySelectorAll('#map .label').length") < lines
        tab.click("#map canvas.cells", x=3.5 / 11, y=0.9)
        tab.js("document.getElementById('follow').checked || scrollTo(0, 200)")
        assert tab.js("scrollY") == 200
        told, lines = tab.js("location.hash"), tab.js("document.querySelectorAll('#map .label').length")
        assert "step=3" in told
        site = tab.text("#site table.numbers")
        training.go_to(30)
        tab.wait(last_column(29))
        tab.settle()
        assert (tab.js("location.hash"), tab.js("scrollY")) == (told, 200)
        assert tab.js("document.getElementById('statistic').value") == "rms"
        assert tab.js("document.querySelectorAll('#map .label').length") == lines, "what was folded stays so"
        assert tab.text("#site table.numbers") == site, "the chosen step's numbers"
        address = tab.js("location.href")
        cells = tab.js("document.querySelector('#map canvas.cells').toDataURL()")
        body = tab.text("main")
        tab.visit(address)
        tab.wait(last_column(29))
        tab.click("#map .label:nth-child(1)")
        assert tab.text("main") == body
        tab.js("scrollTo(0, 200)")
        assert tab.js("document.querySelector('#map canvas.cells').toDataURL()") == cells


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("three")
    for name, scale in (("a", 1.0), ("b", 3.0)):
        write(
            folder / name,
            {Place(step, "fc", "Linear", "output"): torch.arange(1.0, 9.0) * (scale if step == 4 else 1.0) for step in range(6)},
        )
    (folder / "c").mkdir()
    (folder / "c" / "findings-rank0.json").write_text(document(FINDING))
    with serve(folder) as served:
        yield served


def test_runs_are_switched_by_a_link(tab: Tab, three: Served) -> None:
    tab.visit(three.link)
    tab.wait("document.querySelectorAll('#runs tr').length === 4")
    assert tab.text("#runs tr:nth-child(4)").split("\t")[:4] == ["c", "✖ 1", "none", "3"]
    assert tab.js("location.search") == "?run=c"  # which wrote last
    assert "decoder.layers.1.mlp.fc1" in tab.text("#findings")
    tab.click("#runs tr:nth-child(2) a")
    tab.wait("document.querySelector('#head h1')?.innerText === 'numscope a' && document.documentElement.dataset.ready")
    assert tab.js("location.search") == "?run=a"
    tab.js("setTimeout(() => history.back()) && 0")  # not within the evaluation, which the new page would end
    tab.wait("document.querySelector('#head h1')?.innerText === 'numscope c'")


def test_two_live_runs_are_compared(tab: Tab, three: Served) -> None:
    tab.visit(three.link)  # lets the browser in
    tab.visit(f"{three.site}?run=a&with=b")
    tab.wait("document.getElementById('compare').innerText.includes('First divergence')")
    assert "fc output, step 4" in tab.text("#compare")
    tab.click("#first-divergence")
    assert "Numbers, step 4" in tab.text("#site")
    assert "8 the tensor's unit" in " ".join(tab.text("#site table.numbers tr:first-child").split())
    tab.js("(() => { const which = document.getElementById('which'); which.value = '1'; which.dispatchEvent(new Event('change')); })()")
    tab.wait("document.querySelector('#head h1')?.innerText === 'numscope b' && document.documentElement.dataset.ready")
    assert "24 the tensor's unit" in " ".join(tab.text("#site table.numbers tr:first-child").split())
    tab.wait("document.getElementById('compare').innerText.includes('First divergence')")


def test_hostile_names_are_text_in_a_live_page(tab: Tab, tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=document.title='owned'>"
    write(folder, {Place(0, name, name, name): torch.ones(2) for name in HOSTILE})
    (folder / "findings-rank0.json").write_text(document(FINDING, model=HOSTILE[0], events=[[0, HOSTILE[1]]]))
    (tmp_path / HOSTILE[0]).mkdir()
    (tmp_path / HOSTILE[0] / "run.json").write_text("{}")
    with serve(tmp_path) as served:
        for run in served.api("runs"):
            tab.visit(f"{served.link}&run={run['key']}") if run["state"] != "waiting" and run["findings"] else None
        tab.wait("document.querySelectorAll('#runs tr').length === 3")
        assert tab.js("document.querySelectorAll('img, script:not([src]), iframe').length") == 0
        assert "owned" not in tab.js("document.title").replace(folder.name, "")
        write(folder, {Place(1, f"{name}2", name, name): torch.ones(2) for name in HOSTILE})
        tab.wait("document.getElementById('map').innerText.includes('<img src=x onerror=alert(1)>2')")
        assert tab.js("document.querySelectorAll('img, script:not([src]), iframe').length") == 0


def test_a_server_that_ends_is_told_and_what_was_shown_stays(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, two_layers(3))
    with serve(tmp_path) as served:
        tab.visit(served.link)
        tab.wait("document.getElementById('live').innerText.startsWith('● live')")
        site = tab.text("#site table.numbers")
        assert served.stop() == 0
        tab.wait("document.getElementById('live').innerText.startsWith('○ the server is gone')")
        assert tab.text("#site table.numbers") == site
        tab.click("#map canvas.cells", x=0.1)
        assert "Numbers, step 0" in tab.text("#site")
    tab.complaints[:] = [one for one in tab.complaints if "ERR_CONNECTION_REFUSED" not in one]


def test_a_folder_that_vanishes_is_told(tab: Tab, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    write(folder, two_layers(3))
    with serve(folder) as served:
        tab.visit(served.link)
        tab.wait("document.getElementById('live').innerText.startsWith('● live')")
        folder.rename(tmp_path / "away")
        tab.wait("document.getElementById('live').innerText.startsWith('○ the folder is gone')")
        assert tab.text("#site table.numbers")


def test_the_token_is_in_no_address_that_the_browser_keeps(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    with serve(tmp_path) as served:
        tab.visit(served.link)
        entries = tab.call("Page.getNavigationHistory")["entries"]
        assert [entry["url"] for entry in entries if served.token in entry["url"] + entry.get("userTypedURL", "")] == []
        assert served.token not in tab.js("document.cookie + document.referrer + document.documentElement.outerHTML")
        tab.visit(served.site)
        assert "fc1" in tab.text("#findings")
        asked = [request for request in tab.requests if served.token in request]
        assert len(asked) == 1


def test_without_the_token_a_page_says_what_to_open(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.call("Page.navigate", url=served.site)
        tab.wait("document.body?.innerText.includes('Open the link with the token')")
    tab.complaints[:] = [one for one in tab.complaints if "403" not in one]


def test_an_alert_comes_to_a_page_that_is_open_and_moves_nothing(tab: Tab, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write(folder, two_layers(6))
    (folder / "findings-rank0.json").write_text(document(ended=False, events=[]))
    with serve(folder) as served:
        tab.visit(served.link)
        tab.wait("document.querySelector('#findings')?.innerText.includes('Nothing has gone bad so far')")
        assert tab.js("document.getElementById('alerts').hidden && document.getElementById('follow').checked")
        before = tab.text("#site .site-name")
        (folder / "findings-rank0.json").write_text(document(alerts=[ALERT], ended=False, events=[]))
        tab.wait("document.querySelectorAll('#timeline .mark.warn').length === 1")
        assert tab.text("#alerts h2") == "1 alert"
        tab.wait("document.title.startsWith('⚑ 1 ')")
        assert tab.text("#site .site-name") == before
        assert "shown: step 5" in tab.text("#timeline .lane-name")
        assert "No nan or inf got through so far; see the alerts below." in tab.text("#findings")
        tab.click("#alerts .finding")
        assert "shown: step 1" in tab.text("#timeline .lane-name")
        assert not tab.js("document.getElementById('follow').checked")
