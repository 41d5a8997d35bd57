"""The documentation site: no broken link, all pages and names there, nothing asked of third parties, a search that works from a folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import numscope
from numscope import precision
from numscope.lazy import homes_of
from tests.page.browser import MOST_WAIT_S, browse, needs_browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [os.environ["NUMSCOPE_TESTS_COLD"], "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stdout + done.stderr  # strict: a broken link or anchor is an error (with --quiet it would not be)
    return folder


def test_every_page_is_in_the_menu() -> None:
    named = set(re.findall(r"(?:^|\s)([\w/-]+\.md)", yaml.safe_dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - named == set()


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    for page, package in (("python", numscope), ("precision", precision)):
        text = (site / "reference" / f"{page}.html").read_text()
        assert [
            name for name, home in homes_of(package.__file__).items() if f'id="{home}.{name}"' not in text and name != "__version__"
        ] == []


def test_every_command_is_in_the_reference(site: Path) -> None:
    from numscope.cli.command import COMMANDS

    text = (site / "reference" / "command-line.html").read_text()
    assert [name for name in COMMANDS if f"numscope {name}" not in text] == []


def test_pages_ask_no_third_party_for_anything(site: Path) -> None:
    asked = {
        address
        for path in site.rglob("*.html")
        for address in re.findall(
            r'<(?:script|img|iframe)\b[^>]*\bsrc="(https?:[^"]+)"|<link\b[^>]*rel="(?:stylesheet|preload)"[^>]*href="(https?:[^"]+)"',
            path.read_text(),
        )
    }
    assert asked == set()


ANSWERS = {
    "--log-dir": "run",
    "--on-nonfinite": "run",
    "--endpoint": "doctor",
    "overhead": "cost",
    "slowdown": "cost",
    "speed": "cost",
    "memory": "cost",
    "nan": "how-to/loss-is-nan",
    "loss is nan": "how-to/loss-is-nan",
    "inf": "how-to/loss-is-nan",
    "hang": "how-to/ranks-hang",
    "deadlock": "how-to/ranks-hang",
    "spike": "alerts/trends",
    "eval mode": "alerts/loop",
    "DistributedSampler": "alerts/data",
    "grad norm": "statistics",
    "vanishing gradient": "how-to/gradients-are-zero",
    "GradScaler": "how-to/loss-scale-falls",
    "install": "run",
    "jupyter": "notebooks",
    "high_precision": "precision-bisect",
}


@needs_browser
def test_search_in_a_folder_finds_options_and_what_readers_say(site: Path) -> None:
    box, hits = "document.querySelector('[data-md-component=search-query]')", "document.querySelectorAll('.md-search-result__item > a')"
    state = "document.querySelector('.md-search-result__meta').textContent.trim()"
    with browse() as tab:
        tab.call("Page.navigate", url=(site / "index.html").as_uri())
        tab.wait(f"!!{box}")
        # Asked again until the page listens and has built its index of all pages, which takes 5 s of a free core.
        tab.wait(f"({box}.blur(), {box}.focus(), !/^Initializing/.test({state}))", 10 * MOST_WAIT_S)
        first = {}
        for query in ANSWERS:
            for text, then in (("", f"{state} === 'Type to start searching'"), (query, f"/matching/.test({state}) && !!{hits}[0]")):
                tab.js(f"{box}.focus(); {box}.value = {json.dumps(text)}; {box}.dispatchEvent(new KeyboardEvent('keyup'))")
                tab.wait(then)
            links = tab.js(f"[...{hits}].map((link) => new URL(link.href).pathname)")
            first[query] = list(dict.fromkeys(link.removeprefix(f"{site}/").removesuffix(".html") for link in links))[:3]
        assert {query: pages for query, pages in first.items() if ANSWERS[query] not in pages} == {}
        assert tab.complaints == [] and {address for address in tab.requests if not address.startswith("file:")} == set()


def test_install_line_is_the_same_everywhere() -> None:
    """One that works from a clone; for a package index it loses its two first characters."""
    pages = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    }
    lines = {name: set(re.findall(r"pip install (\.(?!/)|[\w./]*numscope(?![\w\[]))", text)) for name, text in pages.items()}
    assert {name: found for name, found in lines.items() if found - {"./numscope"}} == {}
    assert {name for name, found in lines.items() if found} >= {"README.md", "docs/index.md", "docs/run.md", "docs/tutorials/nan.md"}


def test_shim_of_the_search_is_as_its_project_publishes_it() -> None:
    digest = hashlib.sha256((ROOT / "docs/vendor/iframe-worker.js").read_bytes()).hexdigest()
    assert digest == "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
