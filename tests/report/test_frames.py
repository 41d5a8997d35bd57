from __future__ import annotations

import math

import pytest

from numscope.records.finding import Finding, Frame, Kind, Line, Numbers
from numscope.records.site import Phase, Site
from numscope.report import frames


def numbers(abs_min=1.0, abs_max=2.0, nan=0, pos=0, neg=0, zero=0, numel=4) -> Numbers:
    low, high = (None, None) if abs_max is None else (-abs_max, abs_max)
    return Numbers("float32", (numel,), numel, nan, pos, neg, zero, 0, low, high, abs_min, abs_max)


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (numbers(1.01e-6, 6.44), "1.01e-06 6.44e+00 weight"),
        (numbers(1e-3, 9.74e3, zero=1), "0.00e+00 9.74e+03 weight"),
        (numbers(None, 0.0, zero=4), "0.00e+00 0.00e+00 weight"),
        (numbers(5.0, 7.0, pos=1), "5.00e+00      inf weight"),
        (numbers(5.0, 7.0, neg=1, zero=1), "0.00e+00      inf weight"),
        (numbers(None, None, neg=4), "     inf      inf weight"),
        (numbers(5.0, 7.0, nan=1, pos=1), "     nan      nan weight"),
        (numbers(None, None, nan=4), "     nan      nan weight"),
        (numbers(1e-300, 1e300), "1.00e-300 1.00e+300 weight"),
        (numbers(numel=0), "            empty weight"),
    ],
)
def test_line_shows_what_torch_abs_min_and_max_give(health, expected):
    assert frames.line_text(Line("weight", health)) == expected


def test_notes_stand_right_under_the_two_numbers():
    assert frames.line_text(Line("output[1]", None, "None")) == "             None output[1]"
    assert frames.line_text(Line("output[1]", None)) == "             None output[1]"
    assert frames.line_text(Line("output", None, "not a tensor")) == "     not a tensor output"


def test_magnitudes_refuses_an_empty_tensor():
    with pytest.raises(ValueError, match=r"^magnitudes: got an empty tensor, expected at least one element\.$"):
        frames.magnitudes(numbers(numel=0))


def test_frame_is_the_one_of_the_guide():
    frame = Frame(
        "encoder.block.2.layer.1.dropout",
        "Dropout",
        Phase.FORWARD,
        (Line("input[0]", numbers(3.18e-4, 6.27e4)), Line("output", numbers(3e-4, 6.5e4, pos=1, zero=1))),
    )
    assert frames.frame_text(frame) == (
        "                  encoder.block.2.layer.1.dropout Dropout\n3.18e-04 6.27e+04 input[0]\n0.00e+00      inf output"
    )
    assert [frames.is_bad(line) for line in frame.lines] == [False, True]


def test_finding_is_reported_as_the_guide_does_with_forward_only_where_it_is_true():
    def finding(phase: Phase) -> Finding:
        frame = Frame("", "Net", phase, (Line("grad output", numbers(nan=1)),))
        site = Site("", "Net", phase, "grad output")
        return Finding(3, 7, phase, 0, site, Kind.NAN, False, None, "not reproduced", (frame,))

    head = "Detected inf/nan during batch_number=7\nLast 1 {}:\nabs min  abs max  metadata\n                   Net\n"
    line = "     nan      nan grad output"
    assert frames.finding_text(finding(Phase.FORWARD)) == head.format("forward frames") + line
    assert frames.finding_text(finding(Phase.BACKWARD)) == head.format("frames") + line


def test_one_bad_value_of_nan_makes_both_magnitudes_nan():
    assert all(map(math.isnan, frames.magnitudes(numbers(nan=1))))
