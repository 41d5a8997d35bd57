"""What notebooks show of runs, findings, summaries and scopes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

import numscope
from numscope.records.finding import Finding, parse_finding
from numscope.records.markup import line
from tests.cli.test_top_screen import CULPRIT, growing
from tests.page.test_document import HOSTILE
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import write
from tests.warm import COLD

SHOWN = {"div", "p", "b", "span", "code", "pre", "table", "tr", "th", "td", "svg", "path"}
OPERAND = {
    "name": "self", "value": "", "numbers": {
        "dtype": "float32", "shape": [2, 3], "numel": 6, "num_nan": 1, "num_pos_inf": 0, "num_neg_inf": 0, "num_zero": 0,
        "num_subnormal": 0, "min": 1.0, "max": 2.0, "abs_min": 1.0, "abs_max": 2.0,
    },
}  # fmt: skip


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def finding(name: str = "fc1") -> Finding:
    site = FINDING["site"] | {"module": name, "slot": name}
    culprit = (
        CULPRIT
        | dict.fromkeys(("op", "file", "code", "detail", "advice"), name)
        | {"inputs": [OPERAND | {"name": name}], "outputs": [OPERAND]}
    )
    return parse_finding(FINDING | {"site": site, "culprit": culprit, "note": name})


def displayed(shown: Any) -> dict[str, str]:
    """What a notebook gets of an object."""
    try:
        from IPython.core.formatters import DisplayFormatter
    except ImportError:
        html = shown._repr_html_()
        return {"text/plain": repr(shown), **({} if html is None else {"text/html": html})}
    found: dict[str, str] = DisplayFormatter().format(shown)[0]
    return found


def html_of(shown: Any) -> Elements:
    return Elements(displayed(shown)["text/html"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "run", growing(), part_rows=1000)
    (tmp_path / "run" / "findings-rank0.json").write_text(document(FINDING))
    return tmp_path / "run"


def test_run_shows_its_findings_and_worst_tensors_above_its_rows(run: Path) -> None:
    frame = numscope.load(run)
    text = html_of(frame).text
    assert (
        text.index("nan in decoder.layers.1.mlp.fc1 (Linear) output")
        < text.index("decoder.layers.0.mlp.fc1 output")
        < text.index("64 rows")
    )
    assert "Reached" in text
    assert displayed(frame)["text/plain"] == repr(pandas.DataFrame(frame)), "text is as it was"


def test_what_is_taken_from_a_run_is_an_ordinary_frame(run: Path) -> None:
    frame = numscope.load(run)
    assert isinstance(frame, pandas.DataFrame)
    taken = [
        frame.head(),
        frame[frame.step > 2],
        frame.copy(),
        copy.deepcopy(frame),
        pickle.loads(pickle.dumps(frame)),
        frame.groupby("step").max(),
    ]
    taken += [numscope.load(run, "SELECT step FROM stats")]
    assert {type(one) for one in taken} == {pandas.DataFrame}
    pandas.testing.assert_frame_equal(pickle.loads(pickle.dumps(frame)), pandas.DataFrame(frame))


def test_run_whose_folder_is_gone_shows_its_rows(run: Path) -> None:
    frame = numscope.load(run)
    shutil.rmtree(run)
    assert frame._repr_html_() == pandas.DataFrame(frame)._repr_html_()


def test_who_wants_no_html_of_frames_gets_none(run: Path) -> None:
    with pandas.option_context("display.notebook_repr_html", False):
        assert "text/html" not in displayed(numscope.load(run))


def test_run_is_shown_without_torch(run: Path) -> None:
    code = "import sys, numscope; assert 'worst of' in numscope.load(sys.argv[1])._repr_html_(); assert 'torch' not in sys.modules"
    done = subprocess.run([COLD, "-c", code, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_finding_shows_operation_line_reason_and_operands() -> None:
    shown = html_of(finding("relu"))
    for part in ("nan in relu (Linear) relu", "Operation", "relu:13", "unknown. relu", "Advice", "→ self", "2x3"):
        assert part in shown.text
    assert "Operation unknown: not reproduced" in html_of(dataclasses.replace(finding(), culprit=None)).text


def test_summary_shows_counts_and_numbers() -> None:
    text = html_of(numscope.summarize(torch.tensor([1.0, 3.0, 0.0, float("nan")]))).text
    assert text == "elementsnaninf-infzerossubnormals410025 %0 %Of the finite elements:minmaxsmallest magnitudelargestmeanstdrmsl2_norm" + (
        "03131.333331.247221.825743.16228"
    )
    assert "–" in html_of(numscope.summarize(torch.tensor([float("inf")]))).text


def test_scope_shows_what_it_has_seen() -> None:
    model = torch.nn.Linear(2, 1)
    scope = numscope.watch(model, on_nonfinite="warn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for value in (1.0, float("inf")):
        model(torch.full((1, 2), value)).sum().backward()
        optimizer.step()
    text = html_of(scope).text
    assert text.startswith("Scope of Linear (open): 2 steps, ")
    assert "1 finding" in text
    assert "addmm" in text
    scope.close()
    assert "(closed)" in html_of(scope).text
    assert repr(scope).startswith("<numscope.scope.scope.Scope object")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_make_no_element(tmp_path: Path, name: str) -> None:
    write(tmp_path, growing(name), part_rows=1000)
    (tmp_path / "findings-rank0.json").write_text(document(FINDING | {"model": name}, model=name))

    class Odd(torch.nn.Linear):
        pass

    Odd.__name__ = name
    for shown in (finding(name)._repr_html_(), numscope.load(tmp_path)._repr_html_(), numscope.watch(Odd(1, 1))._repr_html_()):
        found = Elements(shown.partition("<style scoped>")[0])  # then come pandas' own rows
        assert found.tags <= SHOWN
        assert found.attributes <= {"style", "width", "height", "fill", "stroke", "stroke-width", "d", "opacity"}
        assert "\u202e" not in found.text


def test_line_has_gaps_and_crosses() -> None:
    assert line([0.0, 0.5, None, 1.0], bad=[3], width=40, height=12).count("M") == 1 + 2 + 1
    assert "nan" not in line([], width=40)
