"""What is said of queries that find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numscope.records.observation import SUMS
from numscope.runs.folder import find_run
from numscope.runs.hints import hints
from numscope.runs.query import ask
from numscope.sinks.parquet import ParquetSink
from numscope.summary.extras import EXPONENTS
from tests.runs.tensors import Place, observe, write

NONE = "no row: {} is no layer, class or tensor of this run. {}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    tensors = ("wgrad", "wgrad[bias]", "activation")
    write(
        made,
        {
            Place(step, layer, "Linear", tensor): torch.ones(3)
            for step in (0, 1)
            for layer in ("Critic.net.0", "Actor.fc")
            for tensor in tensors
        },
    )
    write(made, {Place(0, "Actor.fc", "Linear", "output", rank=1): torch.ones(3)}, (EXPONENTS,))
    return made


def told(folder: Path, sql: str) -> list[str]:
    run = find_run(folder)
    return hints(run, sql, ask(run, sql))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("grad weight", "'wgrad'"),
        ("grad bias", "'wgrad[bias]'"),
        ("input[0]", "'activation'"),
        ("net.0", "'Critic.net.0'"),
        ("net.0 (Linear) grad weight", "'Critic.net.0' or 'wgrad'"),
        ("Critic.net.o", "'Critic.net.0'"),
        ("nte.0", "'Critic.net.0'"),
    ],
)
def test_name_as_a_report_has_it_leads_to_the_runs_own(folder: Path, given: str, meant: str) -> None:
    assert told(folder, f"SELECT step FROM stats WHERE layer = '{given}'") == [NONE.format(repr(given), f"Did you mean {meant}?")]


def test_name_that_is_like_none_leads_to_a_list(folder: Path) -> None:
    names = "Its tensors are activation, output, wgrad, wgrad[bias]; its layers are Actor.fc, Critic.net.0."
    assert told(folder, "SELECT step FROM stats WHERE cls = 'Xyzzy'") == [NONE.format("'Xyzzy'", names)]


def test_names_that_do_not_come_together_lead_to_what_does(folder: Path) -> None:
    sql = "SELECT step FROM stats WHERE layer = 'Critic.net.0' AND tensor = 'output'"
    assert told(folder, sql) == ["no row. The run has steps 0 to 1; 'Critic.net.0' has activation, wgrad, wgrad[bias]."]
    assert told(folder, "SELECT step FROM stats WHERE layer LIKE '%fc3' OR max = 'nan'::DOUBLE") == ["no row. The run has steps 0 to 1."]


def test_empty_columns_lead_to_those_with_numbers(folder: Path) -> None:
    (line,) = told(folder, "SELECT step, exponent_histogram FROM stats WHERE tensor = 'wgrad'")
    assert line == "exponent_histogram: recorded of output, at some layers and steps."


def test_run_without_a_configuration_has_no_sums_and_says_what_it_has(tmp_path: Path) -> None:
    seen = observe(Place(0, "fc", "Linear", "weight"), 0, torch.ones(3))
    sink = ParquetSink(tmp_path, 0, {})
    sink.write([seen._replace(fields={**seen.fields, **dict.fromkeys(SUMS, 0.0)})])
    sink.close()
    assert ask(find_run(tmp_path), "SELECT rms, sum, square_sum FROM stats").rows == [(None, None, None)]
    (line,) = told(tmp_path, "SELECT step, rms, sum FROM stats")
    assert line.startswith("sum, rms: this run recorded no such numbers. It has numel, num_nan, ")
    assert line.endswith(" zero_pct, subnormal_pct. numscope run --config FILE collects what a configuration asks for.")


def test_answer_with_rows_needs_no_hint(folder: Path) -> None:
    assert told(folder, "SELECT step, rms FROM stats WHERE tensor = 'wgrad'") == []
