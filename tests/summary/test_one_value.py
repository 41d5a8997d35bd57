from __future__ import annotations

import inspect
import logging
import subprocess
import sys

import pytest
import torch

import numscope
from numscope.summary.one_value import check

NAN, INF = float("nan"), float("inf")


def test_bad_tensor_is_reported_with_counts_range_and_the_callers_line(caplog):
    x = torch.tensor([[1.0, NAN, 0.0], [INF, -INF, -3.5]])
    line = inspect.currentframe().f_lineno + 1
    assert check(x, "after layer_norm") is True
    (record,) = caplog.records
    assert record.getMessage() == (
        "after layer_norm: 1 nan, 1 inf, 1 -inf of 6 elements, finite magnitudes 0.00e+00 to 3.50e+00 "
        f"(tensor float32[2, 3]) at {__file__}:{line}"
    )
    assert (record.name, record.levelno, record.lineno) == ("numscope", logging.WARNING, line)


def test_tensor_without_a_finite_element_says_so(caplog):
    assert check(torch.full((2,), NAN))
    assert caplog.messages[0].startswith("2 nan of 2 elements, none finite (tensor float32[2]) at ")


def test_good_tensor_is_silent(caplog):
    assert check(torch.tensor([1.0, 3e38, 1e-45]), "fine") is False
    assert not caplog.records


@pytest.mark.parametrize(
    ("value", "bad"),
    [
        (torch.tensor([True]), False),
        (torch.tensor([2**62]), False),
        (torch.empty(0), False),
        (torch.tensor(INF), True),
        (torch.tensor([complex(0, NAN)]), True),
        (torch.tensor([INF]).to(torch.float8_e5m2), True),
        (torch.tensor([1.0, INF]).bfloat16(), True),
        (torch.tensor([1.0, NAN], dtype=torch.float64).expand(3, 2), True),
        (torch.tensor([1.0, NAN])[::2], False),
        (torch.tensor([0.0, INF]).to_sparse(), True),
        (torch.nn.Parameter(torch.tensor([NAN])), True),
        (torch.ones(2, device="meta"), False),
        (None, False),
        (3.0, False),
        ("nan", False),
        (torch.nn.UninitializedParameter(), False),
    ],
    ids=str,
)
def test_any_value_is_answered_without_an_error(value, bad):
    assert check(value) is bad


def test_it_does_not_touch_the_graph():
    x = torch.ones(2, requires_grad=True)
    y = x * INF
    version = y._version
    assert check(y)
    assert y._version == version and y.requires_grad
    y.sum().backward()


def test_report_is_on_stderr_without_any_logging_set_up():
    code = "import torch, numscope; numscope.check(torch.tensor([float('nan')]), 'here')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "" and done.stderr.startswith("numscope: here: 1 nan of 1 elements, none finite")


def test_it_is_in_the_public_face():
    assert numscope.check is check


def test_code_that_stands_in_no_file_is_placed_as_python_names_it(caplog):
    exec(compile("check(x)", "<cell>", "exec"), {"check": check, "x": torch.tensor([NAN])})
    assert caplog.messages[0].endswith(" at <cell>:1")
