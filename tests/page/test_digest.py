"""A run in 64 KB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from numscope.page.digest import MAX_BYTES, digest_of
from numscope.page.recorded import read_recorded
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, two_layers, write


def test_digest_has_findings_worst_sites_and_what_was_not_watched(tmp_path: Path) -> None:
    write(tmp_path, two_layers())
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    text = digest_of(read_recorded(tmp_path))
    digest = json.loads(text)
    assert [finding["step"] for finding in digest["findings"]] == [2]
    worst = digest["statistics"]["worst_sites"]
    assert {site["tensor"] for site in worst if site["state"] == "bad"} == {"gradient"}
    assert all(len(site["amax_trend"]) == 4 for site in worst)


def test_digest_has_alerts_and_escapes_hostile_names_in_them(tmp_path: Path) -> None:
    hostile = {**ALERT, "step": 3, "rule": "**b**", "layer": "`x`|<b>\x1b[31m", "text": "# [a](b)", "advice": "", "value": "nan"}
    for rank in (0, 1):
        (tmp_path / f"findings-rank{rank}.json").write_text(
            document(alerts=[{**ALERT, "rank": rank}, *([hostile] * (1 - rank))], rank=rank)
        )
    text = digest_of(read_recorded(tmp_path))
    digest = json.loads(text)
    assert [(one["rule"], one["ranks"], one["limit"], one["value"]) for one in digest["alerts"]] == [
        ("overflow ahead", "0-1", "inf", 412.0),
        ("**b**", "0", "inf", "nan"),
    ]
    assert digest["alerts"][1]["layer"] == "`x`|<b>\\x1b[31m"


def test_sites_near_their_limit_stand_beside_bad_ones(tmp_path: Path) -> None:
    bad = {Place(0, f"bad{i}", "Linear", "output"): torch.tensor([1.0, float("nan")]) for i in range(60)}
    write(tmp_path, bad | {Place(0, "near", "Linear", "output"): torch.tensor([60000.0], dtype=torch.float16)})
    text = digest_of(read_recorded(tmp_path))
    worst = json.loads(text)["statistics"]["worst_sites"]
    assert [(site["layer"], site["state"]) for site in worst if site["state"] != "bad"] == [("near", "warn")]
    assert worst[-1]["why"] == "Reached 6e+04 at step 0: 91.6 % of fp16's 65504."


def test_digest_of_the_largest_run_is_small(tmp_path: Path) -> None:
    name = "\N{SNOWMAN}\\`|" * 1000
    operand = {"name": name, "numbers": None, "value": name}
    culprit = {
        "op": name, "phase": "forward", "module": name, "file": name, "line": 1, "code": name, "reason": "unknown", "detail": name,
        "advice": name, "inputs": [operand] * 8, "outputs": [operand] * 8, "stack": [[name, 1, name, name]] * 10,
    }  # fmt: skip
    finding = FINDING | {"culprit": culprit, "note": name, "replay": name, "site": FINDING["site"] | {"slot": name}}
    alerts = [{**ALERT, **dict.fromkeys(("rule", "layer", "tensor", "text", "advice"), name), "step": step} for step in range(100)]
    (tmp_path / "findings-rank0.json").write_text(
        document(*(finding | {"step": i} for i in range(30)), model=name, events=[[0, name]] * 500, alerts=alerts)
    )
    write(tmp_path, {Place(0, f"{name[:90]}{i}", "A", "output"): torch.tensor([float("inf"), 1.0]) for i in range(100)})
    recorded = read_recorded(tmp_path)
    assert recorded.num_findings == 30
    assert 2000 < len(digest_of(recorded).encode()) <= MAX_BYTES


def test_what_was_not_watched_is_told(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document())
    text = digest_of(read_recorded(tmp_path))
    assert json.loads(text)["not_watched"] == ["Statistics of tensors: the run wrote none."]


@pytest.mark.parametrize("most_steps", [1, 8])
def test_steps_without_statistics_are_told(tmp_path: Path, most_steps: int) -> None:
    write(tmp_path, {Place(step * 10, "a", "A", "output"): torch.ones(4) for step in range(most_steps)})
    told = json.loads(digest_of(read_recorded(tmp_path)))["not_watched"]
    gaps = [one for one in told if one.endswith("statistics were not kept there.")]
    assert gaps == ([] if most_steps == 1 else ["63 of 71 steps between 0 and 70: statistics were not kept there."])


def test_digest_has_versions_and_no_names_of_home_folders(tmp_path: Path) -> None:
    write(tmp_path, two_layers())
    homes = [str(Path.home() / "x.py"), "/{}/ann/run/x.py".format("home"), "/{}/ann/x.py".format("Users")]
    attempt = {
        "attempt": 1,
        "command": ["python", *homes],
        "versions": {"numscope": "1.2.3", "platform": "Linux-6", "kernel": "avx2", "gpu": "H100"},
    }
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "attempts": [attempt]}))
    text = digest_of(read_recorded(tmp_path))
    assert text.count("~/") == 3
    assert "/ann" not in text and str(Path.home()) not in text


def test_the_first_bad_number_stands_alone_for_programs(tmp_path: Path) -> None:
    environment = {"threads": "2", "version of numpy": "2.3.1"}
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "attempts": [{"attempt": 1, "environment": environment}]}))
    found = {
        "op": "aten.log", "module": "head", "file": "train.py", "line": 7, "code": "torch.log(x)",
        "reason": "argument outside the function's domain", "detail": "log(0) = -inf", "advice": "log(x.clamp_min(1e-6))",
        "advice_tried": True, "tried": [{"remedy": "log(x.clamp_min(1e-6))", "worked": True, "outcome": "finite"}],
    }  # fmt: skip
    culprit = {**found, "phase": "loss", "inputs": [], "outputs": [], "stack": []}
    (tmp_path / "findings-rank0.json").write_text(document({**FINDING, "culprit": culprit}, {**FINDING, "step": 0, "contained": True}))
    digest = json.loads(digest_of(read_recorded(tmp_path)))
    assert (digest["verdict"], digest["environment"]) == ("bad numbers", environment)
    place = {"tensor": "decoder.layers.1.mlp.fc1 (Linear) output", "kind": "nan", "step": 2, "rank": 0}
    assert digest["first"] == place | found


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        ([document()], "nothing found"),
        ([document(alerts=[ALERT])], "alerts"),
        ([document({**FINDING, "contained": True})], "nothing found"),
        ([], "not watched"),
    ],
)
def test_verdict_of_a_run_without_bad_numbers(tmp_path: Path, texts: list[str], verdict: str) -> None:
    write(tmp_path, two_layers())
    for rank, text in enumerate(texts):
        (tmp_path / f"findings-rank{rank}.json").write_text(text)
    digest = json.loads(digest_of(read_recorded(tmp_path)))
    assert (digest["verdict"], digest["first"]) == (verdict, None)


def test_verdict_is_the_last_attempts(tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    (tmp_path / "findings-rank0-2.json").write_text(document(attempt=2))
    digest = json.loads(digest_of(read_recorded(tmp_path)))
    assert (digest["verdict"], digest["first"], digest["num_findings"]) == ("nothing found", None, 1)
