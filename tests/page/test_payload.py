"""What a page shows of a run, before it is HTML."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from numscope.page.payload import excerpts, payload_of
from numscope.page.recorded import read_recorded
from numscope.summary.extras import EXPONENTS
from tests.page.test_packed_arrays import unpack
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import Place, two_layers, write


def test_cells_are_the_numbers_of_the_tensors(tmp_path: Path) -> None:
    seen = two_layers()
    write(tmp_path, seen)
    told = payload_of(read_recorded(tmp_path))
    amax = unpack(told["columns"]["amax max"]).reshape(len(told["sites"]), 4)
    bad = unpack(told["columns"]["num_nonfinite max"]).reshape(amax.shape)
    rows = {(site["layer"], site["tensor"]): i for i, site in enumerate(told["sites"])}
    for place, value in seen.items():
        finite = value[torch.isfinite(value)]
        assert amax[rows[place.layer, place.tensor], place.step] == finite.abs().max().item()
        assert bad[rows[place.layer, place.tensor], place.step] == value.numel() - finite.numel()
    assert [site["layer"] for site in told["sites"][:3]] == ["decoder.layers.0.self_attention.linear_qkv"] * 3, "execution order"


def test_a_spike_of_one_step_survives_many_steps_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numscope.page import matrices

    monkeypatch.setattr(matrices, "EXACT_CELLS", 10)
    monkeypatch.setattr(matrices, "ROUNDED_CELLS", 10)
    values = {Place(step, "a", "A", "output"): torch.tensor([1.0 if step != 77 else 12345.0]) for step in range(300)}
    values[Place(33, "a", "A", "output")] = torch.tensor([2.0, float("inf")])
    write(tmp_path, values, part_rows=100)
    told = payload_of(read_recorded(tmp_path))
    assert told["rounded"]
    assert 40 <= len(told["first"]) < 80
    amax, bad = (unpack(told["columns"][name]) for name in ("amax max", "num_nonfinite max"))
    column = next(i for i, last in enumerate(told["last"]) if last >= 77)
    assert amax[column] == pytest.approx(12345, rel=2.0**-12)
    assert np.count_nonzero(amax > 3) == 1
    assert np.count_nonzero(bad) == 1
    assert unpack(told["columns"]["amax min"])[column] == 1.0


def test_findings_lead_to_their_row(tmp_path: Path) -> None:
    write(
        tmp_path,
        {Place(2, "decoder.layers.1.mlp.fc1", "Linear", tensor): torch.ones(2) for tensor in ("activation", "output", "wgrad[bias]")},
    )
    slots = {
        "output": "output",
        "input[0]": "activation",
        "grad bias": "wgrad[bias]",
        "output[1]": "activation",
    }  # the last: another of its layer
    findings = [FINDING | {"site": FINDING["site"] | {"slot": slot}} for slot in slots]
    (tmp_path / "findings-rank0.json").write_text(document(*findings))
    told = payload_of(read_recorded(tmp_path))
    assert [told["sites"][finding["row"]]["tensor"] for finding in told["findings"]] == list(slots.values())


def test_histograms_are_counts_of_exponents(tmp_path: Path) -> None:
    write(tmp_path, {Place(step, "a", "A", "output"): torch.tensor([1.0, 1.5, 2.0, 0.0]) for step in range(2)}, (EXPONENTS,))
    told = payload_of(read_recorded(tmp_path))["histograms"]
    counts = unpack(told["counts"]).reshape(1, 2, told["bins"])
    for stretch in range(2):
        assert {told["lowest"] + i: n for i, n in enumerate(counts[0, stretch].tolist()) if n} == {0: 1, 127: 2, 128: 1}


def test_a_run_without_rows_is_an_empty_page(tmp_path: Path) -> None:
    write(tmp_path, two_layers(1))
    for part in (tmp_path / "statistics").iterdir():
        pq.write_table(pq.read_table(part).slice(0, 0), part)
    told = payload_of(read_recorded(tmp_path))
    assert (told["sites"], told["first"]) == ([], ())


def test_detection_of_a_million_steps_has_few_columns(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document({**FINDING, "step": 777_777}, steps=10**12))
    told = payload_of(read_recorded(tmp_path))
    assert len(told["first"]) < 1100
    assert 777_777 in told["first"]


def test_damaged_statistics_leave_the_findings(tmp_path: Path) -> None:
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "rank0-1-000000.parquet").write_bytes(b"PAR1" * 2)
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    told = payload_of(read_recorded(tmp_path))
    assert len(told["findings"]) == 1
    assert told["problems"][0].startswith("No statistics could be read. RUN: ")


def test_source_is_read_only_of_python_files_whose_line_is_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("".join(f"x = {i}\n" for i in range(30)))
    secret = tmp_path / "secret.txt"
    secret.write_text("x = 9\npassword\n")
    os.mkfifo(tmp_path / "pipe.py")

    def lines_of(file: Path, line: int, code: str) -> list[str]:
        culprit = {
            "op": "aten.log", "phase": "forward", "module": "", "file": str(file), "line": line, "code": code, "reason": "unknown",
            "detail": "", "advice": "", "inputs": [], "outputs": [], "stack": [],
        }  # fmt: skip
        (tmp_path / "findings-rank0.json").write_text(document(FINDING | {"culprit": culprit}))
        return [str(line) for one in excerpts(read_recorded(tmp_path).findings) for line in json.loads(json.dumps(one["lines"]))]

    assert lines_of(script, 10, "x = 9") == [f"x = {i}" for i in range(3, 16)]
    assert lines_of(script, 10, "x = 8") == []
    assert lines_of(script, 10, "") == []
    assert lines_of(script, 500, "x = 9") == []
    assert lines_of(secret, 1, "x = 9") == []
    assert lines_of(tmp_path / "pipe.py", 1, "x = 9") == []
    assert lines_of(tmp_path / "none.py", 1, "x = 9") == []


def test_a_damaged_part_is_left_out_and_the_others_are_shown(tmp_path: Path) -> None:
    write(tmp_path, two_layers(3), part_rows=18)
    damaged = sorted((tmp_path / "statistics").iterdir())[1]
    damaged.write_bytes(b"PAR1" * 8)
    told = payload_of(read_recorded(tmp_path))
    assert told["first"] == (0, 2)
    assert told["problems"] == (f"statistics/{damaged.name} is damaged or incomplete, and is left out.",)
