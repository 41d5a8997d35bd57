"""``numscope report``, run as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import two_layers, write
from tests.warm import COLD


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    write(made, two_layers())
    (made / "findings-rank0.json").write_text(document(FINDING))
    return made


def report(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "numscope", "report", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_page_is_written_into_the_run_and_its_link_printed(folder: Path) -> None:
    done = report(folder)
    page = folder / "report.html"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{page.as_uri()}\n", "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_page_is_written_where_asked(folder: Path, tmp_path: Path) -> None:
    assert report(folder, "-o", "there.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "there.html").exists()


def test_summary_is_written_as_json(folder: Path, tmp_path: Path) -> None:
    done = report(folder, "--summary", "-o", tmp_path / "short.json")
    assert done.stdout.strip() == (tmp_path / "short.json").as_uri()
    assert json.loads((tmp_path / "short.json").read_text())["num_findings"] == 1


def test_digest_is_printed_as_json_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    for words in ((folder, "--summary", "--json"), (folder, "--json", "-")):
        done = report(*words)
        assert json.loads(done.stdout)["first"]["kind"] == "nan" and done.stderr == ""
    assert report(folder, "--json", tmp_path / "digest.json").stdout == ""
    assert json.loads((tmp_path / "digest.json").read_text())["verdict"] == "bad numbers"


def test_second_run_is_shown_too(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "b", two_layers(seed=1))
    done = report(folder, "--compare", tmp_path / "b", "-o", tmp_path / "both.html")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["none"],
            "RUN: got 'none', expected a run's folder, such as numscope run --log-dir DIR train.py makes. There is nothing of that name.",
        ),
        (
            ["RUN", "--compare", "none"],
            "--compare: got 'none', expected a run's folder, such as numscope run --log-dir DIR train.py makes.",
        ),
        (["RUN", "--compare", "RUN", "--summary"], "--compare: given with --summary, which is about one run. Leave one of them out."),
        (["RUN", "--sarif", "x", "--json"], "--sarif: given with --json, expected it alone."),
        (["RUN", "-o", "FOLDER"], "expected a file's path. It is a folder: add a file's name."),
        (["RUN", "-o", "FOLDER/none/report.html"], "expected a file in a folder that exists. Make "),
    ],
)
def test_wrong_usage_is_told(folder: Path, tmp_path: Path, words: list[str], message: str) -> None:
    done = report(*(word.replace("RUN", str(folder)).replace("FOLDER", str(tmp_path)) for word in words), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("numscope: ")


def test_a_run_json_of_another_program_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "x"}')
    assert report(tmp_path).stderr.endswith(" train.py makes. Its run.json is not numscope's.\n")
    (tmp_path / "run.json").write_text('{"attempts": []}')
    assert "holds a run that has written no statistics yet" in report(tmp_path).stderr


def test_problems_of_a_run_are_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    (tmp_path / "findings-rank1.json").write_text("{")
    done = report(tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("numscope: findings-rank1.json could not be read and is left out: ")


def test_report_loads_no_torch(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from numscope.cli.command import main\n"
        f"sys.argv = ['numscope', 'report', {str(folder)!r}, '-o', {str(tmp_path / 'a.html')!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run([COLD, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
