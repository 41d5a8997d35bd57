"""What a page reads of a run folder, whole, damaged or foreign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from numscope.page.recorded import MAX_ALERTS, read_recorded
from numscope.records.errors import UsageError
from tests.runs.tensors import two_layers, write

FINDING: dict[str, Any] = {
    "step": 2, "batch": 2, "phase": "forward", "rank": 0,
    "site": {"module": "decoder.layers.1.mlp.fc1", "cls": "Linear", "phase": "forward", "slot": "output"},
    "kind": "nan", "contained": False, "culprit": None, "replay": "not reproduced", "frames": [], "model": "Decoder",
    "numbers": None, "note": "",
}  # fmt: skip


ALERT: dict[str, Any] = {
    "step": 1, "rule": "overflow ahead", "layer": "decoder.layers.1.mlp.fc1", "tensor": "output", "value": 412.0, "limit": "inf",
    "text": "It grows.", "advice": "Train in bfloat16.", "evidence": {"trend": [1.5, "nan"]}, "rank": 0, "asks": False,
}  # fmt: skip


def document(*findings: dict[str, Any], alerts: Sequence[object] = (), **meta: Any) -> str:
    facts = {
        "model": "Decoder",
        "rank": 0,
        "steps": 4,
        "batches": 4,
        "events": [[1, "GradScaler skipped the step"]],
        "ended": True,
        "attempt": 1,
    }
    return json.dumps({"schema_version": 1, "meta": facts | meta, "findings": findings, "contained": [], "alerts": alerts})


def test_a_folder_of_detection_alone_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    found = read_recorded(tmp_path)
    assert found.run is None
    assert (found.num_findings, found.findings[0].site.module, found.num_steps, found.model) == (
        1,
        "decoder.layers.1.mlp.fc1",
        4,
        "Decoder",
    )
    assert [(event.step, event.text) for event in found.events] == [(1, "GradScaler skipped the step")]
    assert found.problems == ()


def test_findings_of_all_ranks_and_attempts_are_joined(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document({**FINDING, "step": 3}, ended=False))
    (tmp_path / "findings-rank1-2.json").write_text(document(FINDING, rank=1))
    found = read_recorded(tmp_path)
    assert [finding.step for finding in found.findings] == [2, 3]
    assert found.killed == ("findings-rank0.json",)


def test_a_finding_that_stopped_all_ranks_is_one(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"findings-rank{rank}.json").write_text(document(FINDING, rank=rank))
    assert read_recorded(tmp_path).num_findings == 1
    (tmp_path / "findings-rank0-2.json").write_text(document(FINDING, attempt=2))
    assert read_recorded(tmp_path).num_findings == 2


def test_keys_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document({**FINDING, "new": 1}))
    assert read_recorded(tmp_path).num_findings == 1


@pytest.mark.parametrize(
    "text", ["", "[]", '{"meta": {}}', document({**FINDING, "step": "two"}), document({**FINDING, "site": None}), document(events=[1]),
             document({**FINDING, "kind": "sad"}), document({**FINDING, "frames": [{"module": 1}]}), document({**FINDING, "step": -1}),
             document({**FINDING, "step": 1 << 60}), document().replace('"steps": 4', '"steps": 1e400')],
)  # fmt: skip
def test_a_damaged_findings_file_is_named_and_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "findings-rank0.json").write_text(text)
    (tmp_path / "findings-rank1.json").write_text(document(FINDING, rank=1))
    found = read_recorded(tmp_path)
    assert found.num_findings == 1
    (problem,) = found.problems
    assert problem.startswith("findings-rank0.json could not be read and is left out: ")


def test_a_damaged_part_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, two_layers())
    part = next((tmp_path / "statistics").iterdir())
    part.write_bytes(part.read_bytes()[:-10])
    found = read_recorded(tmp_path)
    assert found.run is not None
    assert found.problems == (f"statistics/{part.name} is damaged or incomplete, and is left out.",)


def test_all_parts_damaged_leaves_the_findings(tmp_path: Path) -> None:
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "rank0-1-000000.parquet").write_bytes(b"PAR")
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    found = read_recorded(tmp_path)
    assert (found.run, found.num_findings) == (None, 1)
    assert found.problems[0].startswith("No statistics could be read. ")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^RUN: got '.*', expected a run's folder, .* It is empty\."):
        read_recorded(tmp_path)
    with pytest.raises(UsageError, match=r"^RUN: got '.*none', expected a run's folder"):
        read_recorded(tmp_path / "none")


def test_alerts_of_ranks_at_one_step_are_one_and_stand_by_step(tmp_path: Path) -> None:
    later = {**ALERT, "step": 3}
    for rank in (2, 0, 1):
        own = [{**later, "rank": rank, "value": 1.0 + rank}, {**ALERT, "rank": rank}] if rank else [{**later, "layer": "head"}]
        (tmp_path / f"findings-rank{rank}.json").write_text(document(alerts=own, rank=rank))
    found = read_recorded(tmp_path)
    told = [(one.alert.step, one.alert.layer, one.alert.value, one.ranks) for one in found.alerts]
    fc1 = "decoder.layers.1.mlp.fc1"
    assert told == [(1, fc1, 412.0, (1, 2)), (3, "head", 412.0, (0,)), (3, fc1, 2.0, (1, 2))]
    assert found.num_alerts == 3


def test_ranks_that_come_to_an_alert_one_after_the_other_are_one_and_a_later_time_is_another(tmp_path: Path) -> None:
    for rank in range(3):
        own = [{**ALERT, "step": 10 + 40 * rank, "rank": rank}, {**ALERT, "step": 500 + rank, "rank": rank}]
        (tmp_path / f"findings-rank{rank}.json").write_text(document(alerts=own, rank=rank))
    assert [(one.alert.step, one.ranks) for one in read_recorded(tmp_path).alerts] == [(10, (0, 1, 2)), (500, (0, 1, 2))]


def test_documents_without_alerts_and_of_rules_alone_are_read(tmp_path: Path) -> None:
    old = json.loads(document(FINDING))
    del old["alerts"]
    (tmp_path / "findings-rank0.json").write_text(json.dumps(old))
    assert read_recorded(tmp_path).alerts == ()
    (tmp_path / "findings-rank0.json").write_text(document(alerts=[ALERT], detecting=False))
    found = read_recorded(tmp_path)
    assert (found.watched, found.num_alerts) == (False, 1)


WRONG = ({"step": -1}, {"step": "1"}, {"layer": ["x"]}, {"text": "x" * 30_000}, {"value": "high"})


@pytest.mark.parametrize("alert", [3, {}, *({**ALERT, **wrong} for wrong in WRONG)])
def test_alert_that_is_none_is_a_problem_and_the_rest_is_read(tmp_path: Path, alert: object) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(alerts=[alert]))
    (tmp_path / "findings-rank1.json").write_text(document(alerts=[ALERT], rank=1))
    found = read_recorded(tmp_path)
    assert found.num_alerts == 1
    (problem,) = found.problems
    assert problem.startswith("findings-rank0.json could not be read and is left out: ")


def test_of_very_many_alerts_the_first_ones_are_shown(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(alerts=[{**ALERT, "step": step} for step in range(1000)]))
    found = read_recorded(tmp_path)
    assert (len(found.alerts), found.alerts[-1].alert.step, found.num_alerts) == (MAX_ALERTS, MAX_ALERTS - 1, 1000)
