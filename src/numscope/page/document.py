"""A page as one HTML file: template, style, modules and data, with a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numscope.records.words import escape

STATIC = Path(__file__).with_name("static")
LIBRARIES = ("vendor/echarts.common.min.js",)
ENTRY = "main.js"
SERVED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'"
)

_IMPORT = re.compile(r"""^import \{[^}]*\} from "\./([\w.-]+)";\n""", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) )", re.MULTILINE)


def render(payloads: Sequence[Any], title: str, comparison: Any = None) -> str:
    """The page of a run, or of two.

    Args:
        payloads: what the panes show of each run (``payload.py``), JSON-ready.
        title: of the page, text.
        comparison: of two runs (``payload.py``), JSON-ready; None: there is one.
    """
    style = _static("style.css")
    scripts = [_static(name) for name in LIBRARIES]
    module = "".join(_bare(name) for name in in_order(ENTRY))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, [*scripts, module]))}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return _filled(
        {
            "policy": html.escape(policy),
            "title": html.escape(escape(title)),
            "style": f"<style>{style}</style>",
            "libraries": "".join(f"<script>{script}</script>\n" for script in scripts),
            "data": f'<script type="application/json" id="data">{as_script_data({"runs": payloads, "comparison": comparison})}</script>',
            "module": f'<script type="module">{module}</script>',
        }
    )


def served(entry: str, title: str) -> str:
    """The page of a server that also serves the static files, under their names."""
    return _filled(
        {
            "policy": SERVED_POLICY,
            "title": html.escape(title),
            "style": '<link rel="stylesheet" href="style.css">',
            "libraries": "".join(f'<script src="{name}"></script>\n' for name in LIBRARIES),
            "data": "",
            "module": f'<script type="module" src="{entry}"></script>',
        }
    )


def _filled(parts: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _static("page.html"))


def as_script_data(value: Any) -> str:
    """JSON that a script element can hold: no character in it can end the element or begin a comment in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII, so neither U+2028 nor lone surrogates are in it
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def in_order(entry: str) -> list[str]:
    """The modules that an entry imports, directly or not, and the entry itself; each behind those that it imports."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in found:
            for other in _IMPORT.findall(_static(name)):
                visit(other)
            found[name] = None

    visit(entry)
    return list(found)


def _bare(name: str) -> str:
    """A module's text without imports and exports: all modules of a page share one scope, so their names differ (a test checks it)."""
    return f"// ---- {name}\n{_EXPORT.sub('', _IMPORT.sub('', _static(name)))}\n"


def _static(name: str) -> str:
    text = (STATIC / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise AssertionError(f"{name} would end the element that holds it")
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
