from __future__ import annotations

import dataclasses
import io
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from numscope.records.finding import Culprit, Finding, Frame, Kind, Line, Numbers, Operand, Reason
from numscope.records.site import Phase, Site
from numscope.records.words import escape
from numscope.report.frames import one_line
from numscope.report.stderr import say
from numscope.report.text import print_finding, render

GOLDEN = Path(__file__).parent / "golden"
FILE = "/train/run/modeling_t5.py"
SOURCE = """\
    def forward(self, hidden_states):
        hidden_gelu = self.act(self.wi_0(hidden_states))
        hidden_linear = self.wi_1(hidden_states)
        hidden_states = hidden_gelu * hidden_linear
        hidden_states = self.dropout(hidden_states)

        return self.wo(hidden_states)
"""


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["\n"] * 94 + SOURCE.splitlines(keepends=True)
    # Without a modification time linecache takes the entry as it is.
    monkeypatch.setitem(linecache.cache, FILE, (len(SOURCE), None, lines, FILE))


def numbers(low: float | None, high: float | None, nan: int = 0, pos: int = 0, neg: int = 0, zero: int = 0, shape=(2, 7, 32)) -> Numbers:
    numel = 1
    for size in shape:
        numel *= size
    return Numbers("float16", shape, numel, nan, pos, neg, zero, 0, None if high is None else -high, high, low, high)


FEED_FORWARD = "encoder.block.2.layer.1.DenseReluDense"
OVERFLOW = Finding(
    step=12,
    batch=25,
    phase=Phase.FORWARD,
    rank=1,
    site=Site(f"{FEED_FORWARD}.dropout", "Dropout", Phase.FORWARD, "input[0]"),
    kind=Kind.INF,
    contained=False,
    culprit=Culprit(
        op="aten.mul",
        phase=Phase.FORWARD,
        module=FEED_FORWARD,
        file=FILE,
        line=98,
        code="hidden_states = hidden_gelu * hidden_linear",
        reason=Reason.OVERFLOW,
        detail="4.50e+03 × 2.37e+02 = 1.07e+06 is beyond float16's largest number, 6.55e+04.",
        advice=f"Compute this module in float32: numscope.high_precision(model.{FEED_FORWARD}), or train in bfloat16.",
        inputs=(
            Operand("self", numbers(2.68e-6, 4.5e3)),
            Operand("other", numbers(1.27e-4, 2.37e2, zero=3)),
            Operand("alpha", None, "1"),
        ),
        outputs=(Operand("", numbers(1e-5, 6.5e4, pos=3, neg=2, zero=3)),),
        stack=(
            ("/train/run/train.py", 41, "main", "loss = model(**batch).loss"),
            ("/train/run/modeling_t5.py", 310, "forward", "x = self.DenseReluDense(x)"),
            (FILE, 98, "forward", "hidden_states = hidden_gelu * hidden_linear"),
        ),
    ),
    replay="reproduced",
    frames=(
        *(
            Frame(
                f"{FEED_FORWARD}.wi_{i}", "Linear", Phase.FORWARD, (Line("weight", numbers(2e-7, 4.5)), Line("output", numbers(3e-6, 37.0)))
            )
            for i in range(6)
        ),
        Frame(
            f"{FEED_FORWARD}.dropout",
            "Dropout",
            Phase.FORWARD,
            (Line("input[0]", numbers(1e-5, 6.5e4, pos=5, zero=1)), Line("mask", None, "None")),
        ),
    ),
    model="T5ForConditionalGeneration",
    numbers=numbers(1e-5, 6.5e4, pos=3, neg=2, zero=3),
)
NOT_REPRODUCED = dataclasses.replace(OVERFLOW, culprit=None, replay="not reproduced: the step done again stayed finite")
HOSTILE = dataclasses.replace(
    OVERFLOW,
    site=Site("[red]x[/red].\x1b[2J\u202eevil", "[/]", Phase.FORWARD, "output[[bold]]"),
    model="a\nb",
    culprit=dataclasses.replace(OVERFLOW.culprit, code="print('\x07[link=x]')", line=7, file="/gone/[b]\ud800.py", stack=()),
    frames=(Frame("[red]x\x1b[2J", "[/]", Phase.FORWARD, (Line("output[\x9b0]", numbers(None, None, nan=448)),)),),
)
SKIPS = Finding(
    9, 9, Phase.BACKWARD, 0, Site("", "Net", Phase.BACKWARD, "grad weight"), Kind.SCALER_SKIPS, False, None,
    "not replayed", note="GradScaler left out 10 steps in a row",
)  # fmt: skip
CONTAINED = dataclasses.replace(NOT_REPRODUCED, contained=True, frames=(), replay="not replayed")
CASES = {"overflow": OVERFLOW, "not-reproduced": NOT_REPRODUCED, "hostile-names": HOSTILE, "scaler-skips": SKIPS, "contained": CONTAINED}


def printed(finding: Finding, width: int) -> str:
    print_finding(finding, out := io.StringIO(), width)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("case", CASES)
def test_report_is_the_golden_one(case, width):
    # A wanted change: delete the file, run once (it is written and the test fails), look at it, run again.
    golden = GOLDEN / f"{case}-{width}.txt"
    got = printed(CASES[case], width)
    if not golden.exists():
        golden.write_text(got, encoding="utf-8", errors="backslashreplace")
        pytest.fail(f"{golden.name} was missing and is written now: look at it")
    assert got == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_report_is_one_screen(case):
    assert printed(CASES[case], 120).count("\n") <= 25


def test_magnitudes_beyond_two_digits_are_whole():
    n = dataclasses.replace(OVERFLOW.frames[0].lines[-1].numbers, dtype="float64", max=1.5e300, abs_max=1.5e300, abs_min=2.5e-300)
    frames = (Frame("fc", "Linear", Phase.FORWARD, (Line("output", n),)), OVERFLOW.frames[-1])
    assert "2.50e-300 1.50e+300 fc (Linear) output" in printed(dataclasses.replace(OVERFLOW, frames=frames), 80)


def test_names_are_never_broken():
    name = ".".join(["a_module_of_a_model"] * 12)
    culprit = OVERFLOW.culprit
    frames = (dataclasses.replace(OVERFLOW.frames[-1], module=name),)
    inputs = (dataclasses.replace(culprit.inputs[0], name=f"weight ({name}.weight)"), *culprit.inputs[1:])
    advice = f"Compute this module in float32: numscope.high_precision(model.{name})"
    found = dataclasses.replace(
        OVERFLOW,
        site=Site(name, "Dropout", Phase.FORWARD, "input[0]"),
        culprit=dataclasses.replace(culprit, module=name, inputs=inputs, advice=advice),
        frames=frames,
    )
    for width in (40, 80, 120):
        text = printed(found, width)
        assert text.count(name) == 5 and f"numscope.high_precision(model.{name})" in text and f"weight ({name}.weight)" in text


@pytest.mark.parametrize("case", CASES)
def test_pipe_gets_no_color_nor_anything_else_unprintable(case):
    assert all(line.isprintable() for line in printed(CASES[case], 80).split("\n"))


def test_terminal_gets_colors_around_the_same_words():
    console = Console(file=(out := io.StringIO()), width=80, force_terminal=True, color_system="standard", _environ={})
    console.print(render(OVERFLOW), crop=False)
    assert "\x1b[1;31m" in out.getvalue()
    plain = Console(file=(bare := io.StringIO()), width=80, _environ={})
    plain.print(render(OVERFLOW), crop=False)
    import re

    assert re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", out.getvalue()) == bare.getvalue()


@pytest.mark.parametrize("width", [20, 80])
def test_places_are_whole_and_linked_on_a_terminal(width: int) -> None:
    assert OVERFLOW.culprit is not None
    file = f"/train/{'long folder/' * 12}net.py"
    detail = f"The infinity was written at {file.replace(' ', '_')}:31 `x[0] = y`."
    stack = ((f"{file}2", 7, "main", "train()"), (file, 98, "forward", "x * y"))
    found = dataclasses.replace(OVERFLOW, culprit=dataclasses.replace(OVERFLOW.culprit, file=file, line=98, detail=detail, stack=stack))
    console = Console(file=(out := io.StringIO()), width=width, force_terminal=True, color_system="standard", _environ={})
    console.print(render(found), crop=False)
    for place in (f"{file}:98", f"{file}2:7"):
        assert place in out.getvalue()
    assert f"{file.replace(' ', '%20')}#98\x1b\\" in out.getvalue()
    assert f"{file.replace(' ', '_')}:31" in out.getvalue()


def test_pycharms_console_gets_the_form_that_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCHARM_HOSTED", "1")
    print_finding(OVERFLOW, out := io.StringIO(), 80)
    assert f'Line     File "{FILE}", line 98\n' in out.getvalue()


def test_stream_in_ascii_gets_escapes_not_an_error():
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding="ascii")
    print_finding(OVERFLOW, stream, 80)
    assert b"4.50e+03 \\xd7 2.37e+02" in raw.getvalue()


def test_default_stream_is_stderr(capsys):
    print_finding(OVERFLOW)
    out, err = capsys.readouterr()
    assert out == "" and f"{FILE}:98\n" in err


def test_a_long_path_is_in_one_piece():
    path = "/train/" + "x" * 150 + ".py"
    culprit = dataclasses.replace(OVERFLOW.culprit, file=path)
    assert f"{path}:98\n" in printed(dataclasses.replace(OVERFLOW, culprit=culprit), 80)


def test_a_file_that_changed_since_shows_only_the_code_at_fault():
    culprit = dataclasses.replace(OVERFLOW.culprit, code="y = a / b")
    text = printed(dataclasses.replace(OVERFLOW, culprit=culprit), 80)
    assert "          > y = a / b\n" in text and "hidden_linear = " not in text


def test_code_without_source_gets_no_line_of_its_own():
    culprit = dataclasses.replace(OVERFLOW.culprit, file="<string>", code="")
    assert "Line     <string>:98\n         called from " in printed(dataclasses.replace(OVERFLOW, culprit=culprit), 80)


def test_one_line_for_logs():
    assert one_line(OVERFLOW) == escape(OVERFLOW.headline())
    assert one_line(SKIPS) == "scaler_skips: GradScaler left out 10 steps in a row (step 9, rank 0)"
    assert one_line(CONTAINED) == (
        f"contained: inf in {FEED_FORWARD}.dropout (Dropout) input[0] (forward) at step 12, rank 1; "
        "it never reached the loss, a gradient, a weight or the optimizer's state"
    )
    assert one_line(dataclasses.replace(CONTAINED, culprit=OVERFLOW.culprit)).endswith(f"; aten.mul at {FILE}:98")
    assert one_line(HOSTILE).isprintable()


def test_escape_leaves_letters_of_all_languages():
    assert escape("größe[0] 权重") == "größe[0] 权重"
    assert escape("a\x1b[0m\n\u202e\x9b") == "a\\x1b[0m\\n\\u202e\\x9b"


def test_of_many_callers_the_innermost_and_the_outermost_are_shown():
    stack = tuple((f"/train/run/f{i}.py", i, "f", "code") for i in range(9))
    text = printed(dataclasses.replace(OVERFLOW, culprit=dataclasses.replace(OVERFLOW.culprit, stack=stack)), 80)
    assert [line.split("/")[-1] for line in text.splitlines() if "called from" in line] == ["f8.py:8 in f", "f0.py:0 in f"]


def test_a_line_is_one_write_so_that_ranks_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=writes.append, flush=lambda: None))
    say("numscope: stopped")
    assert writes == ["numscope: stopped\n"]
