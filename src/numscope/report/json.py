"""Findings as a JSON file, described in ``docs/json.md`` and checked by ``schema.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.finding import Finding, plain

# Incremented when a reader of the previous version would misread the file; added keys do not count.
SCHEMA_VERSION = 1


def findings_json(findings: Sequence[Finding], contained: Sequence[Finding], alerts: Sequence[Alert], meta: Mapping[str, Any]) -> bytes:
    """The findings and alerts of a run as a JSON document.

    Args:
        findings: values that escaped, in order.
        contained: non-finite values that reached nothing.
        alerts: what was about to go wrong or went wrong in silence, in order.
        meta: facts on the run, by name; values that JSON lacks are written as their ``str``.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "meta": plain(dict(meta)),
        "findings": [plain(finding) for finding in findings],
        "contained": [plain(finding) for finding in contained],
        "alerts": [plain(alert) for alert in alerts],
    }
    # With ensure_ascii (the default): a lone surrogate in a file's name is not valid UTF-8, but JSON can escape it.
    return json.dumps(document, indent=1, allow_nan=False, default=str).encode() + b"\n"
