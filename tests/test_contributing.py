"""The recipes of CONTRIBUTING.md, applied to a copy of the tree: what they add passes the tests that they come with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.warm import COLD

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r'^```(diff|python) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
KINDS = ("statistic", "rule", "reason", "sink", "recipe", "doctor's finding")


def recipes() -> dict[str, list[tuple[str, str, str]]]:
    """By what each adds, its blocks: a kind, a file and the text."""
    sections = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        section.partition("\n")[0].removeprefix("Add a "): BLOCK.findall(section) for section in sections if section.startswith("Add a ")
    }


def edited(text: str, change: str, where: str) -> str:
    """A file with a change: its lines stand there once, without those that begin with "+", and then without those that begin with "-"."""
    lines = change.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] not in without) for without in ("+", "-"))
    assert text.count(before) == 1, f"CONTRIBUTING.md: {where}: {before!r} stands there {text.count(before)} times, expected once"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all recipes applied."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for kind, file, text in (block for blocks in recipes().values() for block in blocks):
        path = tree / file
        if kind == "diff":
            path.write_text(edited(path.read_text(encoding="utf-8"), text, file), encoding="utf-8")
        else:
            assert not path.exists(), file
            path.write_text(text, encoding="utf-8")
    return tree


def test_each_kind_of_addition_has_a_recipe_with_a_test() -> None:
    assert tuple(recipes()) == KINDS
    for blocks in recipes().values():
        assert [file for _, file, _ in blocks if file.startswith("tests/")] == [blocks[-1][1]]
        assert any(file.startswith("src/") for _, file, _ in blocks)


def test_recipes_pass_the_tests_that_they_come_with(tree: Path) -> None:
    tests = [blocks[-1][1] for blocks in recipes().values()]
    done = subprocess.run(
        [COLD, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(KINDS)} passed" in done.stdout


def test_recipes_keep_the_rules_of_the_house(tree: Path) -> None:
    """Format and lint, as the tree has them."""
    added = sorted({file for blocks in recipes().values() for _, file, _ in blocks if file.endswith(".py")})
    for words in (("check", "--quiet"), ("format", "--check", "--quiet")):
        done = subprocess.run([COLD, "-m", "ruff", *words, *added], cwd=tree, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
