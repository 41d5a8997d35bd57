"""Findings and alerts as SARIF 2.1.0, which code hosts show at their lines, in pull requests too.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numscope.records.alert import Alert
from numscope.records.finding import Finding, Kind
from numscope.records.places import is_installed, quoted
from numscope.records.words import escape
from numscope.report.frames import one_line
from numscope.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
_ESCAPED = "reached the loss, a gradient, a weight or the optimizer's state. The line is where it was made of finite numbers."
_HELP = {
    Kind.NAN: ("A nan escaped", f"A nan {_ESCAPED}"),
    Kind.INF: ("An infinity escaped", f"An infinity {_ESCAPED}"),
    Kind.SCALER_SKIPS: ("GradScaler skips steps", "GradScaler skipped many steps in a row: the model does not train."),
    Kind.DEAD_GRADIENTS: ("All gradients are zero", "Every gradient was exactly zero for many steps in a row: the model does not train."),
}

Place = tuple[str, int, str, str]  # file, line, function, code


def source_root() -> str:
    """The folder that paths are relative to: the checkout that a CI or the current folder has, else the current folder."""
    given = os.environ.get("GITHUB_WORKSPACE")
    here = Path(given or os.getcwd()).absolute()
    return str(next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here))


def script_path() -> str:
    """The script that is running, or ""."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if file else ""


def sarif_json(findings: Sequence[Finding], alerts: Sequence[Alert], meanings: Mapping[str, str], root: str, script: str = "") -> bytes:
    """A SARIF log of one run of numscope.

    Args:
        findings: what escaped; contained values are left out.
        alerts: with or without a line in their evidence.
        meanings: each alert rule's meaning in a few words; a user's own rule may be missing.
        root: the folder that paths are relative to.
        script: stands for results that have no line; "": they get no location.
    """
    root = os.path.join(os.path.abspath(root), "")
    rules: dict[str, dict[str, Any]] = {}
    results = [_of_finding(one, rules, root, script) for one in findings]
    results += [_of_alert(one, rules, root, script, meanings.get(one.rule, "")) for one in alerts]
    order = {name: place for place, name in enumerate(rules)}
    driver = {
        "name": "numscope",
        "semanticVersion": __version__,
        "rules": list(rules.values()),
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"uri": Path(root).as_uri() + "/"}},
        "results": [{**result, "ruleIndex": order[result["ruleId"]]} for result in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False).encode() + b"\n"


def _of_finding(finding: Finding, rules: dict[str, dict[str, Any]], root: str, script: str) -> dict[str, Any]:
    name = finding.kind.value.replace("_", "-")
    title, text = _HELP[finding.kind]
    rules.setdefault(name, _rule(name, title, text, "error"))
    c = finding.culprit
    places: list[Place] = [] if c is None else list(c.stack)
    if c is not None and c.file and (not places or places[-1][:2] != (c.file, c.line)):
        places.append((c.file, c.line, c.module, c.code))
    places = [place for place in places if place[1] > 0 and not place[0].startswith("<")]
    where = _shown(places, root, script)
    result: dict[str, Any] = {
        "ruleId": name,
        "level": "error",
        "message": {"text": one_line(finding)},
        "locations": _locations(where, script, root, str(finding.site)),
        "partialFingerprints": {"numscope/v1": _fingerprint(name, finding.site.module, "" if c is None else c.op, where, root)},
        "properties": {"step": finding.step, "rank": finding.rank, "phase": finding.phase.value, "model": escape(finding.model)},
    }
    if c is not None and places:
        steps = [{"location": _location(place, root, f"in {place[2]}")} for place in places]
        steps[-1]["location"]["message"]["text"] = escape(f"{c.op}: {c.reason.value}. {c.detail}")
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
        result["stacks"] = [{"message": {"text": "calls up to the operation"}, "frames": [
            {"location": _location(place, root, f"in {place[2]}")} for place in reversed(places)
        ]}]  # fmt: skip
        if where != places[-1]:
            result["relatedLocations"] = [{"id": 1, **_location(places[-1], root, f"{c.op} ran here")}]
    return result


def _of_alert(alert: Alert, rules: dict[str, dict[str, Any]], root: str, script: str, meaning: str) -> dict[str, Any]:
    name = "alert/" + re.sub(r"[^a-z0-9]+", "-", alert.rule.lower()).strip("-")
    level = "note" if alert.asks else "warning"
    title = alert.rule[:1].upper() + alert.rule[1:]
    rules.setdefault(name, _rule(name, escape(title), escape(f"{meaning[:1].upper()}{meaning[1:]}." if meaning else title), level))
    file, _, line = str(alert.evidence.get("line", "")).rpartition(":")
    known = bool(file) and line.isdecimal() and int(line) > 0
    where = (file, int(line), "", str(alert.evidence.get("code", ""))) if known else None
    layer = " ".join(filter(None, (alert.layer, alert.tensor)))
    return {
        "ruleId": name,
        "level": level,
        "message": {"text": escape(alert.line())},
        "locations": _locations(where, script, root, layer),
        "partialFingerprints": {"numscope/v1": _fingerprint(name, layer, "", where, root)},
        "properties": {"step": alert.step, "rank": alert.rank},
    }


def _rule(name: str, title: str, text: str, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in re.findall(r"[A-Za-z0-9]+", title)) or "Rule",
        "shortDescription": {"text": title},
        "fullDescription": {"text": text},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["numerics", "pytorch"]},
    }


def _shown(places: Sequence[Place], root: str, script: str) -> Place | None:
    """The innermost line of the checkout's own code, because a code host shows no other; None if the script has to stand for it."""
    own = [place for place in places if _inside(place[0], root) and not is_installed(place[0])]
    return next(iter((own or ([] if script and _inside(script, root) else places))[-1:]), None)


def _inside(file: str, root: str) -> str:
    """The path below the root, also where a link leads there; "" for a file outside, such as ``root/../other.py``."""
    try:
        os.fsencode(file)
    except UnicodeEncodeError:  # no file system has such a name
        return ""
    real_root = os.path.join(os.path.realpath(root), "")
    for path, folder in ((os.path.abspath(file), root), (os.path.realpath(file), real_root)):
        if path.startswith(folder):
            return os.path.relpath(path, folder)
    return ""


def _locations(where: Place | None, script: str, root: str, name: str) -> list[dict[str, Any]]:
    found = _location(where or (script, 1, "", ""), root, "") if where or script else {}
    found |= {"logicalLocations": [{"fullyQualifiedName": escape(name), "kind": "module"}]} if name else {}
    return [found] if found else []


def _location(place: Place, root: str, message: str) -> dict[str, Any]:
    file, line, _, code = place
    inside = _inside(file, root)
    artifact = {"uri": quoted(inside), "uriBaseId": ROOT}
    snippet = {"snippet": {"text": escape(code)}} if code else {}
    physical = {
        "artifactLocation": artifact if inside else {"uri": "file://" + quoted(os.path.abspath(file))},
        "region": {"startLine": line, **snippet},
    }
    return {"physicalLocation": physical, **({"message": {"text": escape(message)}} if message else {})}


def _fingerprint(name: str, layer: str, op: str, where: Place | None, root: str) -> str:
    """The same for the same fault after lines above it have moved."""
    place = () if where is None else (_inside(where[0], root) or os.path.relpath(where[0], root), where[3].strip())
    return hashlib.sha256("\0".join((name, layer, op, *place)).encode(errors="surrogatepass")).hexdigest()[:32]
