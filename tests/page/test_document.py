"""The HTML file: what may run in it, and that names in it are text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from numscope.page.document import ENTRY, STATIC, in_order, render

HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--<script>", "\"'`&amp;{{data}}", "\u202egnp.exe\u2028")


class Elements(HTMLParser):
    """The elements of a page, with their attributes and text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._is_open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = False

    def handle_data(self, data: str) -> None:
        if self._is_open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)


def elements(page: str) -> list[tuple[str, dict[str, str | None], str]]:
    parser = Elements()
    parser.feed(page)
    return parser.found


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_make_no_element(name: str) -> None:
    page = render([{"name": name}], name)
    plain = render([{"name": "a"}], "a")
    assert [(tag, sorted(attributes)) for tag, attributes, _ in elements(page)] == [
        (tag, sorted(attributes)) for tag, attributes, _ in elements(plain)
    ]
    (data,) = (text for _, attributes, text in elements(page) if attributes.get("id") == "data")
    assert json.loads(data) == {"runs": [{"name": name}], "comparison": None}


def test_a_folder_whose_name_is_not_utf8_has_a_page() -> None:
    assert "<title>caf\\udce9</title>" in render([{}], "caf\udce9").encode().decode()


def test_policy_allows_the_files_own_scripts_and_nothing_else() -> None:
    found = elements(render([{}], "a"))
    (policy,) = (str(a["content"]) for tag, a, _ in found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    scripts = [text for tag, a, text in found if tag == "script" and a.get("type") != "application/json"]
    (style,) = (text for tag, _, text in found if tag == "style")
    for text in (*scripts, style):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert not [a for _, a, _ in found if "src" in a or "style" in a or any(name.startswith("on") for name in a)]


def test_modules_share_one_scope_without_a_clash() -> None:
    names: dict[str, str] = {}
    for module in in_order(ENTRY):
        text = (STATIC / module).read_text(encoding="utf-8")
        for name in re.findall(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) (\w+)", text, re.MULTILINE):
            assert name not in names, f"{name} is in {module} and in {names[name]}"
            names[name] = module
        assert not re.findall(
            r"^\s*(?:import|export)\b(?! \{[^}]*\} from \"\./| (?:async )?(?:function|class|const|let) )", text, re.MULTILINE
        )
    assert in_order(ENTRY)[-1] == ENTRY
    assert {path.name for path in STATIC.glob("*.js")} == {*in_order(ENTRY), *in_order("view.js")}, "a module that no other one imports"


def test_no_module_reads_text_as_markup_or_code() -> None:
    for path in STATIC.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(\s*[\"'`]", text), (
            path.name
        )


def test_third_party_files_are_those_of_the_table() -> None:
    vendor = STATIC / "vendor"
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in vendor.glob("*.js")}
    for name, digest in rows:
        data = (vendor / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) <= 1_200_000
