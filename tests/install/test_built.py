"""What users install: an sdist built from the tree and a wheel built from that, tried where there are the core dependencies alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import numscope
from tests.runs.tensors import two_layers, write
from tests.warm import COLD

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "numscope"
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout: which files belong to it is not known")


def run(*words: str | Path, cwd: Path, status: int = 0, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=280)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git knows, without what an earlier build has left beside them."""
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    run(COLD, "-c", BUILD, "build_sdist", "dist", cwd=tree)
    (built,) = (tree / "dist").iterdir()
    return built


def built_from(sdist: Path, folder: Path, **variables: str) -> Path:
    folder.mkdir(exist_ok=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
    (source,) = folder.iterdir()
    run(COLD, "-c", BUILD, "build_wheel", "dist", cwd=source, **variables)
    (wheel,) = (source / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not optimized, to save time: how fast it is matters to no test here."""
    faster = """sh -c 'exec "${REAL_CXX:-c++}" "$@" -O0' --"""
    return built_from(sdist, tmp_path_factory.mktemp("from_sdist"), NUMSCOPE_KERNEL="required", CC=faster, CXX=faster)


# ---- what is in them


def test_wheel_has_all_that_the_package_needs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        text = {name: archive.read(f"{about}/{name}").decode() for name in ("WHEEL", "METADATA", "entry_points.txt")}
    tracked = {f"numscope/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*") if path.is_file()}
    tracked = {name for name in tracked if "__pycache__" not in name and not name.endswith(".so")}
    assert {name for name in names if not name.startswith(about)} == tracked | {"numscope/summary/_native.abi3.so"}
    assert {"numscope/py.typed", "numscope/__init__.pyi", "numscope/report/schema.json", "numscope/page/static/main.js"} <= tracked
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "echarts.LICENSE", "echarts.NOTICE"}
    assert re.search(r"^Tag: cp310-abi3-", text["WHEEL"], re.MULTILINE)
    assert "numscope = numscope.cli.command:main" in text["entry_points.txt"]
    assert f"Version: {numscope.__version__}\n" in text["METADATA"]
    assert "License-Expression: Apache-2.0\n" in text["METADATA"]


def test_sdist_has_the_sources_of_the_kernel_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"csrc/{path.name}" for path in (ROOT / "csrc").iterdir() if path.suffix in (".h", ".cpp")} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert not {name for name in names if name.startswith(("tests", "benchmarks", "docs", "examples"))}


def test_extra_all_is_every_extra_of_users(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        about = message_from_bytes(archive.read(name))
    extras = set(about.get_all("Provides-Extra")) - {"dev", "all"}
    assert {"lightning", "mlflow", "runs", "tensorboard", "transformers", "view", "wandb"} <= extras
    (of_all,) = (Requirement(one) for one in about.get_all("Requires-Dist") if one.endswith('extra == "all"'))
    assert of_all.extras == extras


# ---- installed


def core_packages() -> Iterator[Path]:
    """Top-level files and folders of what numscope requires without any extra, and of what that requires."""
    todo, seen = ["numscope"], {"numscope"}
    while todo:
        for text in metadata.distribution(todo.pop()).requires or ():
            required = Requirement(text)
            name = required.name.lower().replace("_", "-")
            if name not in seen and (required.marker is None or required.marker.evaluate({"extra": ""})):
                seen.add(name)
                try:
                    about = metadata.distribution(name)
                except metadata.PackageNotFoundError:  # CUDA's libraries, say, of a build of torch that has none
                    continue
                todo.append(name)
                tops = {file.parts[0] for file in about.files or () if file.parts[0] not in ("..", "__pycache__")}
                yield from (Path(str(about.locate_file(top))) for top in sorted(tops))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core dependencies alone, as they stand in the environment of the tests."""
    folder = tmp_path_factory.mktemp("core")
    for path in core_packages():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


def installed(wheel: Path, core: Path, folder: Path) -> Path:
    """The interpreter of a fresh environment with the wheel in it."""
    venv.EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "core.pth").write_text(f"{core}\n", encoding="utf-8")
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)  # what is imported is compiled then
    run(COLD, "-m", "pip", "--python", str(python), *words, cwd=folder)
    return python


@pytest.fixture(scope="module")
def python(wheel: Path, core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, core, tmp_path_factory.mktemp("installed"))


def test_installed_wheel_finds_a_planted_fault_with_its_kernel(python: Path, tmp_path: Path) -> None:
    printed = run(python, ROOT / ".ci" / "smoke.py", cwd=tmp_path)
    assert f"numscope {numscope.__version__} works:" in printed
    assert "without its native kernel" not in printed


def test_sdist_builds_without_a_compiler_and_says_what_that_costs(sdist: Path, core: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built_from(sdist, tmp_path / "source", CC="false", CXX="false")) as wheel:
        wheel.extractall(tmp_path / "unpacked")
    code = "import numscope, torch; print([numscope.summarize(torch.ones(3)).sum for _ in range(2)])"
    printed = run(COLD, "-S", "-c", code, cwd=tmp_path, PYTHONPATH=os.pathsep.join((str(tmp_path / "unpacked"), str(core))))
    assert "[3.0, 3.0]\n" in printed
    assert printed.count("numscope: works without its native kernel") == 1
    assert "Install a C++ compiler and reinstall numscope." in printed


# What is called, and the extra that its error names.
ABSENT = {
    "numscope stats logs 'select 1'": "runs",
    "numscope diff logs logs": "runs",
    "numscope view logs": "view",
    "numscope.load('logs')": "runs",
    "numscope.watch(model, config=CONFIG, log_dir='to', loggers=['wandb'])": "wandb",
    "numscope.watch(model, config=CONFIG, log_dir='to', loggers=['mlflow'])": "mlflow",
    "import numscope.integrations.transformers": "transformers",
    "import numscope.integrations.lightning": "lightning",
}
CALLS = """
import json, shlex, sys
import click, torch, numscope
from numscope.cli.command import numscope as command
from numscope.records.errors import NumscopeError

STATISTICS = {"enabled": True, "stats": ["max"], "tensors": ["weight"]}
CONFIG = {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": STATISTICS}}
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
for call in json.loads(sys.argv[1]):
    try:
        if call.startswith("numscope "):
            command.main(shlex.split(call)[1:], standalone_mode=False)
        else:
            exec(call)
        print("ERROR", json.dumps("none"))
    except (click.UsageError, NumscopeError, ImportError) as error:
        print("ERROR", json.dumps(str(error)))
"""


def test_absent_extra_is_named_with_the_command_that_installs_it(python: Path, tmp_path: Path) -> None:
    write(tmp_path / "logs", two_layers())
    there = [call for call in ABSENT if not call.startswith("import ") or (PACKAGE / f"{call[16:].replace('.', '/')}.py").exists()]
    printed = run(python, "-c", CALLS, json.dumps(there), cwd=tmp_path)
    errors = dict(zip(there, map(json.loads, re.findall(r"^ERROR (.*)$", printed, re.MULTILINE)), strict=True))
    assert {call: errors[call] for call in there if f"pip install 'numscope[{ABSENT[call]}]'" not in errors[call]} == {}
    assert all(error.count("\n") == 0 for error in errors.values())
