"""The documentation site: no broken link, every page in its menu, every public name in its reference, nothing asked of third parties."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import numscope
from numscope import precision
from numscope.lazy import homes_of

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
