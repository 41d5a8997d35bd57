"""``%load_ext numscope`` in a real kernel, driven by nbclient."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_run import SOURCES
from tests.late import late

nbclient, nbformat, _ = (
    late(name, "nbclient and ipykernel are not installed: notebooks are tested in a real kernel")
    for name in ("nbclient", "nbformat", "ipykernel")
)

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.log(self.first(x) * 0 + x.sum()))  # here

def train(steps, bad=None):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.full((2, 4), 0.0 if step == bad else 1.0)).sum().backward()
        optimizer.step()
    return net
"""
LINE = next(n for n, text in enumerate(MODEL.strip().splitlines(), 1) if text.endswith("# here"))
LOAD = "%load_ext numscope"


@pytest.fixture(autouse=True)
def kernels_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((SOURCES, os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def executed(folder: Path, *cells: str) -> list[Any]:
    """The cells after they have run, errors in them allowed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells])
    for attempt in range(3):
        client = nbclient.NotebookClient(
            notebook,
            timeout=120,
            startup_timeout=30,
            allow_errors=True,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute()
            break
        except RuntimeError as error:  # a port that was free when Jupyter chose it may be another test's server's by then
            if not str(error).startswith("Kernel d") or attempt == 2:
                raise
    return list(notebook.cells)


def text(cell: Any) -> str:
    """All that a cell has printed, shown and raised."""
    found = []
    for output in cell.outputs:
        found.append(output.get("text", "") + output.get("data", {}).get("text/plain", "") + "\n".join(output.get("traceback", ())))
    return "\n".join(found)


def pages(cell: Any) -> list[str]:
    return [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def test_watched_cell_shows_the_finding_once_with_its_cell_and_line(tmp_path: Path) -> None:
    _, _, bad, again = executed(tmp_path, LOAD, MODEL, "%%numscope --alerts off\ntrain(6, bad=3)", "%%numscope --alerts off\ntrain(6)")
    finding, *rest = pages(bad)
    assert f"cell [2], line {LINE}" in finding
    assert re.search(rf"&gt; +{LINE} \|  +return self\.last\(torch\.log", finding)  # its source
    assert "in train" in finding
    assert "href" not in finding  # a cell is no file
    assert len(rest) == 1 and "watched Net, 3 steps" in rest[0]
    (error,) = (output for output in bad.outputs if output.output_type == "error")
    assert error.ename == "NonFiniteError"
    assert f"aten.log at cell [2], line {LINE}" in "\n".join(error.traceback)
    assert re.search(r"Stopped at cell \[2\], line \d+: optimizer\.step\(\)", "\n".join(error.traceback))
    assert not any(output.output_type == "stream" for output in bad.outputs)  # the terminal's report does not stand there too
    assert "\nCulprit  aten.log (forward)\n" in text(bad)  # for a page without HTML
    assert ["no finding" in page for page in pages(again)] == [True]


def test_on_watches_all_cells_until_off(tmp_path: Path) -> None:
    on, warn = "%numscope on --alerts off\nnet = train(2)", "%numscope on --on-nonfinite warn --alerts off"
    bad = "_ = train(6, bad=3)"
    _, _, _, status, quiet, warned, off, after = executed(tmp_path, LOAD, MODEL, on, "%numscope status", warn, bad, "%numscope off", bad)
    assert "watched Net, 2 steps" in text(status) and "no finding" in text(status)
    assert not quiet.outputs
    assert len(pages(warned)) == 1 and f"cell [2], line {LINE}" in pages(warned)[0]
    assert not [output for output in warned.outputs if output.output_type == "error"]
    assert "numscope is off" in text(off)
    assert not after.outputs


def test_lines_under_the_magic_keep_their_numbers(tmp_path: Path) -> None:
    cell = "%%numscope --alerts off\nnet = Net()\nx = torch.zeros(2, 4)\nloss = torch.log(net(x + 1).sum() * 0)\nloss.backward()"
    cell += "\ntorch.optim.SGD(net.parameters()).step()"
    *_, bad = executed(tmp_path, LOAD, MODEL, cell)
    assert "cell [3], line 4" in pages(bad)[0]
    assert "interactiveshell" not in pages(bad)[0]  # the kernel calls the cell, which is no news
    assert "Stopped at cell [3], line 6" in text(bad)


def test_cells_that_run_again_pile_up_nothing(tmp_path: Path) -> None:
    count = "import numscope.scope.open_scopes as s; print(len(s.live()), len(torch.nn.modules.module._global_forward_pre_hooks))"
    watching = (
        "import numscope\nnet = train(1) if 'net' not in globals() else net\nscope = numscope.watch(net, on_nonfinite='warn', alerts='off')"
    )
    use = "net(torch.zeros(2, 4)).sum().backward()\nscope.step()"
    cells = executed(tmp_path, LOAD, LOAD, MODEL, "%numscope on", "%numscope on", "%numscope off", *[watching] * 3, count, use)
    assert text(cells[-2]).split() == ["1", "0"]
    assert sum("Operation" in page for page in pages(cells[-1])) == 1


@pytest.mark.parametrize("editor", ["JupyterLab", "VS Code"])
def test_file_of_a_module_is_a_link_that_editors_open(tmp_path: Path, editor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VSCODE_PID", raising=False)
    if editor == "VS Code":
        monkeypatch.setenv("VSCODE_PID", "1")
    (tmp_path / "my net.py").write_text(MODEL)
    load = "from importlib.util import module_from_spec, spec_from_file_location\nspec = spec_from_file_location('mine', 'my net.py')\n"
    load += "mine = module_from_spec(spec)\nspec.loader.exec_module(mine)"
    *_, bad = executed(tmp_path, LOAD, load, "%%numscope --alerts off\nmine.train(6, bad=3)")
    line = next(n for n, one in enumerate(MODEL.splitlines(), 1) if one.endswith("# here"))
    fragment = f"L{line}" if editor == "VS Code" else f"line={line - 1}"
    assert f'<a href="my%20net.py#{fragment}" target="_blank" rel="noreferrer">{tmp_path}/my net.py:{line}</a>' in pages(bad)[0]


def test_names_from_a_model_are_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    cell = f"%%numscope --alerts off\nnet = Net()\nnet.add_module('''{evil}''', nn.Linear(1, 1))\n" + (
        f"out = net._modules['''{evil}'''](net(torch.zeros(2, 4)))\nout.sum().backward()\ntorch.optim.SGD(net.parameters()).step()"
    )
    *_, bad = executed(tmp_path, LOAD, MODEL, cell)
    assert pages(bad)
    assert all("<img" not in page for page in pages(bad))


def test_cells_of_the_page_run(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "notebooks.md").read_text(encoding="utf-8")
    cells = executed(tmp_path, *re.findall(r"```ipython\n(.*?)```", page, re.DOTALL))
    found = next(cell for cell in cells if "%%numscope" in cell.source)
    assert [cell for cell in cells if any(output.output_type == "error" for output in cell.outputs)] == [found]
    assert sum("Operation" in one for one in pages(found)) == 1 and "cell [3], line 5" in pages(found)[0]


def test_check_and_summarize_show_well(tmp_path: Path) -> None:
    _, _, checked, summary = executed(
        tmp_path,
        LOAD,
        MODEL,
        "import numscope\nnumscope.check(torch.tensor([1.0, float('nan')]), 'here')",
        "numscope.summarize(torch.ones(3))",
    )
    assert "here: 1 nan of 2 elements" in text(checked) and "at cell [3], line 2" in text(checked)
    assert "<table" in pages(summary)[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%numscope of", "got 'of', expected %numscope on [options] | off | status"),
        ("%numscope on --alert off", "got the argument 'alert', expected one of level"),
        ("%numscope on log", "got 'log', expected an option such as --log-dir DIR."),
        ("%numscope on --log-dir", "got --log-dir without a value"),
        ("%numscope on --sarif --alerts off", "got --sarif without a value"),
        ("%numscope on --frames '['", "--frames: got '[', expected a value as YAML has it"),
        ("%numscope on --config missing.yaml", "missing.yaml"),
        ("%numscope on --to nope", "--to: got 'nope', expected one of tensorboard[:DIR]"),
        ("%numscope on --trace 1,a", "trace: got 'a', expected a whole number"),
        ("x = 1\n%%numscope", "UsageError"),
    ],
)
def test_wrong_words_are_one_sentence(line: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.error import UsageError
    from IPython.core.interactiveshell import InteractiveShell

    from numscope.integrations.notebook import _cell_to_line, options_of

    if line.startswith("x"):
        assert _cell_to_line(line.splitlines(keepends=True)) == line.splitlines(keepends=True)
        return
    monkeypatch.setattr(sys, "ps1", "", raising=False)  # the shell sets it, and this process is no session for the tests that follow
    shell = InteractiveShell.instance()
    from numscope.integrations.notebook import load_ipython_extension, unload_ipython_extension

    load_ipython_extension(shell)
    try:
        with pytest.raises(UsageError) as caught:
            shell.run_line_magic("numscope", line.removeprefix("%numscope "))
        assert message in str(caught.value)
        assert options_of([]) is not None
        options = options_of(["--trace", "0,1", "--no-replay"])
        assert (options.trace, options.replay) == ((0, 1), False)
    finally:
        unload_ipython_extension(shell)
