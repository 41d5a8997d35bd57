"""`./dev release` refuses a version that is not ready, and the files around the repository are well-formed."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository that is ready for release."""
    (tmp_path / "src" / "numscope").mkdir(parents=True)
    (tmp_path / "src" / "numscope" / "version.py").write_text('"""The version."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-05-01\n\n- New.\n\n## [1.2.2] - 2026-04-01\n"
    )
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false")
    subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "x")


def test_tree_that_is_ready_has_no_problems(release: ModuleType, tree: Path) -> None:
    assert release.problems_of(tree) == []
    assert release.version_of(tree) == "1.2.3"


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("## [1.2.3] - 2026-05-01", "## [1.2.4] - 2026-05-01", "CHANGELOG.md: has no section for 1.2.3"),
        ("## [1.2.3] - 2026-05-01", "## [1.2.3]", "CHANGELOG.md: '## [1.2.3]' has no date"),
        ("## [1.2.3] - 2026-05-01", "## [1.2.3] - May", "CHANGELOG.md: '## [1.2.3] - May' has no date"),
        ("- New.\n", "", "CHANGELOG.md: the section for 1.2.3 is empty."),
    ],
)
def test_changelog_has_to_tell_of_the_version(release: ModuleType, tree: Path, old: str, new: str, part: str) -> None:
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(old, new))
    commit(tree)
    (problem,) = release.problems_of(tree)
    assert problem.startswith(part)


def test_version_tag_and_tree_are_looked_at_and_all_problems_come_at_once(release: ModuleType, tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    (tree / "left").touch()
    assert release.problems_of(tree) == [
        "The tag v1.2.3 exists. Raise the version in src/numscope/version.py.",
        "1 files differ from the last commit, such as left. Commit or remove them.",
    ]
    (tree / "src" / "numscope" / "version.py").write_text('__version__ = "1.2"\n')
    commit(tree)
    first, *_ = release.problems_of(tree)
    assert first == "src/numscope/version.py: got '1.2', expected a version such as 1.2.3 or 1.2.3rc1."


def test_it_is_tried_with_the_oldest_torch_and_the_tested_one(release: ModuleType) -> None:
    oldest, tested = release.supported()
    assert f'"torch>={oldest.removesuffix(".0")}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"torch=={tested}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


# ---- files for GitHub and for pre-commit


def workflow(name: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    return loaded


def test_workflows_may_read_only_and_publishing_alone_gets_a_token() -> None:
    for name in ("ci", "release"):
        assert workflow(name)["permissions"] == {"contents": "read"}
    rights = {(name, job): about.get("permissions") for name in ("ci", "release") for job, about in workflow(name)["jobs"].items()}  # type: ignore[attr-defined]
    assert {job: right for job, right in rights.items() if right} == {("release", "publish"): {"id-token": "write"}}


def test_actions_have_exact_versions() -> None:
    used = [
        step["uses"] for name in ("ci", "release") for job in workflow(name)["jobs"].values() for step in job["steps"] if "uses" in step
    ]  # type: ignore[attr-defined]
    assert used
    assert [one for one in used if one.partition("@")[2].count(".") != 2] == []


def test_issue_forms_ask_for_the_summary() -> None:
    for name in ("bug", "wrong_diagnosis"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
        (field,) = (one for one in form["body"] if one.get("id") == "summary")
        assert "`numscope report --summary LOG_DIR`" in field["attributes"]["description"]
        assert field["validations"] == {"required": True}


def test_pre_commit_runs_what_the_check_runs() -> None:
    hooks = [
        hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"] for hook in repo["hooks"]
    ]
    checked = (ROOT / "dev").read_text(encoding="utf-8").partition("    check)")[2].partition("    bench)")[0]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    for hook in hooks:
        words = hook["entry"].removeprefix(".venv/bin/python ").removesuffix(" --fix")
        assert words in checked, words
