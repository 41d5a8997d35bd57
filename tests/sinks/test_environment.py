"""What a run's folder says of the environment: what its numbers depend on, and nothing secret."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numscope.sinks import environment as module
from numscope.sinks.environment import environment
from numscope.sinks.runfolder import RunFolder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_it_has_versions_threads_flags_and_known_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    told = environment()
    assert told["OMP_NUM_THREADS"] == "3" and told["launcher"] == "torchrun"
    assert told["version of torch"] == torch.__version__ and told["threads"] == str(torch.get_num_threads())
    assert told["deterministic algorithms"] == "False" and told["seed"] == str(torch.initial_seed())
    assert "hf_secret" not in json.dumps(told) and not any(name.startswith("version of json") for name in told)


def test_flags_that_change_numbers_are_told() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True)
        with torch.backends.cudnn.flags(benchmark=True):
            told = environment()
    finally:
        torch.use_deterministic_algorithms(before)
    assert told["deterministic algorithms"] == told["cudnn benchmark"] == "True"


def test_nothing_is_imported_run_or_initialized() -> None:
    code = (
        "import sys, os\n"
        "from numscope.sinks.environment import environment\n"
        "before = set(sys.modules)\n"
        "sys.addaudithook(lambda event, args: os._exit(7) if event in ('subprocess.Popen', 'os.fork', 'os.system') else None)\n"
        "environment()\n"
        "import torch\n"
        "state = torch.get_rng_state()\n"
        "told = environment()\n"
        "assert torch.equal(state, torch.get_rng_state()) and not torch.cuda.is_initialized()\n"
        "torch.set_num_interop_threads(3)\n"  # raises where the pool was made
        "print('torch' in before, told['threads between operations'] != '')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


def script_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = str(folder / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)


@pytest.mark.parametrize("where", ["ref", "packed", "detached"])
def test_the_scripts_commit_is_read_from_gits_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    git, inner = tmp_path / ".git", tmp_path / "a" / "b"
    (git / "refs" / "heads").mkdir(parents=True)
    inner.mkdir(parents=True)
    (git / "HEAD").write_text(f"{COMMIT}\n" if where == "detached" else "ref: refs/heads/a-branch\n")
    if where == "ref":
        (git / "refs" / "heads" / "a-branch").write_text(f"{COMMIT}\n")
    if where == "packed":
        (git / "packed-refs").write_text(f"# pack-refs\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/a-branch\n")
    script_in(inner, monkeypatch)
    assert environment()["git commit"] == COMMIT


@pytest.mark.parametrize(
    "head", ["ref: ../secret", "ref: refs/../../secret", "ref: refs/heads/.secret", "not a commit", "", "ref: refs/heads/gone"]
)
def test_a_strangers_repository_has_nothing_else_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    for secret in (tmp_path / "secret", tmp_path / ".git" / "secret", tmp_path / ".git" / "refs" / "heads" / ".secret"):
        secret.write_text(COMMIT)
    (tmp_path / ".git" / "HEAD").write_text(head)
    script_in(tmp_path, monkeypatch)
    assert "git commit" not in environment()


@given(st.text(max_size=60))
def test_any_head_is_a_commit_or_nothing(tmp_path_factory: pytest.TempPathFactory, head: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text(head, encoding="utf-8", errors="surrogateescape")
    with pytest.MonkeyPatch.context() as patch:
        script_in(folder, patch)
        found = module._commit()
    assert found is None or (found == head.strip() and len(found) >= 40)


def test_it_is_in_the_runs_folder(tmp_path: Path) -> None:
    RunFolder(tmp_path, 0, {})
    (attempt,) = json.loads((tmp_path / "run.json").read_text())["attempts"]
    assert attempt["environment"]["version of torch"] == torch.__version__
    assert os.environ.get("HOME", "nowhere at all") not in json.dumps(attempt["environment"])


def test_nothing_that_stands_among_the_modules_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Hostile(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

    (tmp_path / "numscope_lazy_test.py").write_text("raise SystemExit('it was loaded')\n")
    spec = importlib.util.spec_from_file_location("numscope_lazy_test", tmp_path / "numscope_lazy_test.py")
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazy)
    monkeypatch.setitem(sys.modules, "numscope_lazy_test", lazy)
    monkeypatch.setitem(sys.modules, "numscope_hostile", Hostile("numscope_hostile"))
    monkeypatch.setitem(sys.modules, "numscope_none", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, 7, types.ModuleType("seven"))  # type: ignore[arg-type]
    assert environment()["version of torch"] == torch.__version__


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
@pytest.mark.parametrize("file", ["HEAD", "packed-refs", "refs/heads/main"])
@pytest.mark.parametrize("what", ["pipe", "endless"])
def test_a_strangers_repository_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, what: str) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / file).unlink(missing_ok=True)
    os.mkfifo(git / file) if what == "pipe" else (git / file).symlink_to("/dev/zero")
    script_in(tmp_path, monkeypatch)
    assert "git commit" not in environment()


def test_a_work_tree_of_another_repository_has_no_commit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(COMMIT)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")
    script_in(tmp_path / "tree", monkeypatch)
    assert "git commit" not in environment()
