"""What went bad first, and what that has spoiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numscope.page.health import BAD, FINE, SPOILED, WARN, judge, told_of
from numscope.page.matrices import Matrices
from numscope.page.overview import Overview, overview_of
from numscope.records.finding import Finding, parse_finding
from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import Place, write

NAMES = ("a", "b", "c", "d")


def run_with(folder: Path, bad_from: dict[str, int | None], findings: list[dict[str, Any]], steps: int = 6) -> Overview:
    seen = {}
    for step in range(steps):
        for name in NAMES:
            is_bad = (first := bad_from.get(name)) is not None and step >= first
            seen[Place(step, name, "Linear", "output")] = torch.tensor([float("nan") if is_bad else 1.0, 1.0])
        seen[Place(step, "near", "Linear", "output")] = torch.tensor([30000.0], dtype=torch.float16)
    write(folder, seen)
    (folder / "findings-rank0.json").write_text(document(*findings, steps=steps))
    return overview_of(str(folder))


def finding(layer: str, step: int, **more: Any) -> dict[str, Any]:
    return {**FINDING, "step": step, "site": {**FINDING["site"], "module": layer}, **more}


def states(overview: Overview) -> dict[str, str]:
    assert overview.matrices is not None
    return {site.layer: one.state for site, one in zip(overview.matrices.sites, overview.health, strict=True)}


def test_what_a_finding_names_is_the_origin_and_the_rest_of_its_step_is_spoiled(tmp_path: Path) -> None:
    overview = run_with(tmp_path, {"a": 3, "b": 3, "c": 4}, [finding("b", 3)])
    assert states(overview) == {"a": SPOILED, "b": BAD, "c": SPOILED, "d": FINE, "near": WARN}
    assert told_of(overview.health) == "1 origin, 2 spoiled by it, 1 close to the limit"
    scores = dict(zip((one.state for one in overview.health), (one.score for one in overview.health), strict=True))
    assert scores[BAD] > scores[WARN] > scores[SPOILED] > scores[FINE]


def test_what_was_bad_before_was_not_spoiled_by_it(tmp_path: Path) -> None:
    overview = run_with(tmp_path, {"a": 0, "b": 3, "c": 3}, [finding("b", 3)])
    assert states(overview) == {"a": BAD, "b": BAD, "c": SPOILED, "d": FINE, "near": WARN}
    assert told_of(overview.health) == "2 origins, 1 spoiled by them, 1 close to the limit"


@pytest.mark.parametrize(
    "found", [[], [finding("b", 3, contained=True)], [finding("gone", 4)], [finding("d", 3)], [finding("b", 3, kind="scaler_skips")]]
)
def test_without_a_finding_of_theirs_all_are_bad(tmp_path: Path, found: list[dict[str, Any]]) -> None:
    overview = run_with(tmp_path, {"a": 3, "b": 3}, found)
    assert states(overview) == {"a": BAD, "b": BAD, "c": FINE, "d": FINE, "near": WARN}
    assert told_of(overview.health) == "3 bad or close to it"


def test_what_an_origin_without_statistics_has_spoiled(tmp_path: Path) -> None:
    overview = run_with(tmp_path, {"a": 3, "b": 2, "c": 4}, [finding("gone", 3)])
    assert states(overview) == {"a": SPOILED, "b": BAD, "c": SPOILED, "d": FINE, "near": WARN}
    overview = run_with(tmp_path, {"a": 3, "b": 3}, [finding("gone", 3)])
    assert told_of(overview.health) == "the origin is not recorded, 2 spoiled by it, 1 close to the limit"


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> Matrices:
    found = run_with(tmp_path_factory.mktemp("law"), {"a": 1, "b": 2, "c": 4}, []).matrices
    assert found is not None
    return found


@given(st.lists(st.tuples(st.sampled_from([*NAMES, "gone"]), st.integers(0, 5), st.booleans()), max_size=4))
def test_findings_only_ever_turn_bad_into_spoiled(matrices: Matrices, told: list[tuple[str, int, bool]]) -> None:
    findings: list[Finding] = [
        parse_finding(json.loads(json.dumps(finding(layer, step, contained=contained)))) for layer, step, contained in told
    ]
    before, after = judge(matrices), judge(matrices, findings)
    named = {one.site.module for one in findings if not one.contained}
    for site, a, b in zip(matrices.sites, before, after, strict=True):
        assert (a.why, a.trend) == (b.why, b.trend)
        assert a.state == b.state or (a.state, b.state) == (BAD, SPOILED)
        assert site.layer not in named or a.state == b.state
    if any(one.state == SPOILED for one in after):
        assert any(one.state == BAD for one in after) or "gone" in named
