from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest
import torch
from torch import nn

import numscope
from numscope.records import finding as record
from numscope.records.alert import Alert, parse_alert
from numscope.records.finding import Culprit, Finding, Frame, Kind, Line, Numbers, Operand, Reason, Trial, parse_finding
from numscope.records.site import Phase, Site
from numscope.report import delivery

SCHEMA = json.loads(Path(delivery.__file__).with_name("schema.json").read_text(encoding="utf-8"))
CHECK = jsonschema.Draft202012Validator(SCHEMA)

N = Numbers("float16", (2, 3), 6, 1, 2, 0, 0, 1, -1.5, 2.0, 6e-8, 2.0)
NONE_FINITE = Numbers("float32", (), 1, 1, 0, 0, 0, 0, None, None, None, None)
CULPRIT = Culprit(
    "aten.log", Phase.FORWARD, "head", "/train/[x]\ud800.py", 3, "y = x.log()", Reason.DOMAIN, "log(-1).", "Clamp.",
    (Operand("self", N), Operand("alpha", None, "inf")), (Operand("", NONE_FINITE),), (("/train/t.py", 1, "main", "m(x)"),),
    (Trial("log(x.clamp_min(1e-6))", True, "finite"), Trial("bfloat16", False, "its result is nan")),
)  # fmt: skip
FINDING = Finding(
    3, 4, Phase.LOSS, 1, Site("head", "Head", Phase.LOSS, "loss"), Kind.NAN, False, CULPRIT, "reproduced",
    (Frame("head", "Head", Phase.FORWARD, (Line("output", N), Line("output[1]", None, "None"))),), "Net", N, "",
)  # fmt: skip
ALERT = Alert(7, "overflow ahead", "head", "output", math.inf, 65504.0, "It grows.", "Stop.", {"steps": [1, 2]}, rank=1, asks=True)


def test_file_reads_back_as_the_same_findings(tmp_path):
    path = tmp_path / "findings.json"
    share = delivery._Share(findings=[FINDING], contained=[FINDING], alerts=[ALERT])
    path.write_bytes(share.document({"steps": 5, "path": tmp_path, "loss": math.nan}))
    data = json.loads(path.read_text(encoding="utf-8"))
    CHECK.validate(data)
    assert data["meta"] == {"steps": 5, "path": str(tmp_path), "loss": "nan"}
    assert data["schema_version"] == delivery.SCHEMA_VERSION == SCHEMA["properties"]["schema_version"]["const"]
    assert [parse_finding(f) for f in data["findings"]] == [parse_finding(f) for f in data["contained"]] == [FINDING]
    assert parse_alert(data["alerts"][0]) == ALERT


def test_every_field_and_every_choice_is_in_the_schema():
    homes = {"finding": Finding, "culprit": Culprit, "trial": Trial, "numbers": Numbers, "operand": Operand, "frame": Frame, "site": Site}
    homes["alert"] = Alert
    for name, cls in homes.items():
        fields = set(cls.__dataclass_fields__)
        assert fields == set(SCHEMA["$defs"][name]["required"]) == set(SCHEMA["$defs"][name]["properties"]), name
    assert SCHEMA["$defs"]["culprit"]["properties"]["reason"]["enum"] == [r.value for r in Reason]
    assert SCHEMA["$defs"]["finding"]["properties"]["kind"]["enum"] == [k.value for k in Kind]
    assert SCHEMA["$defs"]["phase"]["enum"] == [p.value for p in Phase]


def test_every_key_is_described_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    for name, definition in SCHEMA["$defs"].items():
        for key in definition.get("properties", {}):
            assert f"`{key}`" in text, f"{name}.{key}"
    for value in [*Reason, *Kind, *Phase]:
        assert f"`{value.value}`" in text, value


def test_schema_refuses_a_wrong_file():
    data = json.loads(delivery._Share(findings=[FINDING]).document({}))
    data["findings"][0]["kind"] = "odd"
    with pytest.raises(jsonschema.ValidationError, match="odd"):
        CHECK.validate(data)


def test_real_run_writes_what_the_schema_says(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters())
    path = tmp_path / "out.json"
    with numscope.watch(model, json=str(path), on_nonfinite="warn") as scope:
        for _ in range(2):
            (model(torch.randn(3, 4)) - 1e30).exp().log().sum().backward()
            optimizer.step()
    data = json.loads(path.read_text(encoding="utf-8"))
    CHECK.validate(data)
    assert len(data["findings"]) == len(scope.findings) > 0
    assert data["findings"][0]["culprit"]["file"] == __file__
    assert record.parse_finding(data["findings"][0]) == scope.findings[0]
