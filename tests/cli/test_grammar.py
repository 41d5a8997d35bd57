"""What all commands have in common: help, ``--json``, outputs that can't be written, words that stand for no run. All in one process."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from numscope.cli import doctor as doctor_file
from numscope.cli.command import main, numscope
from numscope.cli.subject import EXPECTED
from numscope.cli.values import JSON_FILE, OUTPUT_FILE, OUTPUT_FOLDER
from numscope.records import files
from tests.runs.tensors import two_layers, write

CONFIG = "all: {enabled: true, layers: {layer_types: [Linear]}, statistics: {enabled: true, stats: [mean], tensors: [output]}}\n"
FACTORY = """
import torch
print("some words of the module's own")
def net():
    print("more of them")
    return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
def broken():
    raise ValueError("no data\\nhere")
def leaves():
    raise SystemExit("usage")
"""


def leaves(command: click.Command = numscope, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command that runs, with the words that call it."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None and not inner.hidden:
                yield from leaves(inner, (*words, name))


LEAVES = dict(leaves())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands are called on."""
    made = tmp_path_factory.mktemp("grammar")
    write(made / "run", two_layers())
    (made / "run" / "ranks").mkdir(exist_ok=True)
    layer = {"name": "fc", "cls": "Linear", "qualified": "fc", "weights": ["weight"], "numel_weights": 8, "weight_bytes": 32}
    (made / "run" / "ranks" / "rank0-1.json").write_text(json.dumps({"layers": [layer]}))
    (made / "run" / "run.json").write_text("{}")
    (made / "empty").mkdir()
    (made / "foreign" / "other").mkdir(parents=True)
    (made / "file").write_text("text\n")
    (made / "stats.yaml").write_text(CONFIG)
    (made / "bad.yaml").write_text(CONFIG.replace("mean", "meen").replace("output", "outpt"))
    (made / "makes.py").write_text(FACTORY)
    (made / "cut.py").write_text("def f(:\n")
    (made / "train.py").write_text("raise SystemExit('the script was started')\n")
    (made / "nccl.log").write_text("node:1:1 [0] NCCL WARN Net : Call to recv from 1.2.3.4 failed : Connection reset by peer\n")
    return made


@pytest.fixture(autouse=True)
def in_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(doctor_file, "_end", end)


Said = tuple[int, str, str]


def said(capfd: pytest.CaptureFixture[str], *words: str) -> Said:
    """The exit status of a call, and what it prints to stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def refusal(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a call that is refused."""
    status, out, err = said(capfd, *words)
    assert (status, out) == (2, ""), err
    assert err.startswith("numscope: ") and err.endswith("\n") and err.count("\n") == 1, err
    return err.removeprefix("numscope: ").removesuffix("\n")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_h_is_help(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capfd, *words, "-h")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: numscope {' '.join(words)}")


# ---- --json

# The file of run --json is written as it trains; top and view are for looking; parity's words are commands, its result is DIR/verdict.json;
# a capsule is a folder.
PRINTS_NO_RESULT = {("run",), ("top",), ("view",), ("parity",), ("capsule",)}
PAGES = {("report",)}

RESULTS = {
    ("stats", "run"): None,
    ("stats", "run", "columns"): None,
    ("stats", "run", "SELECT step, loss FROM steps"): None,
    ("stats", "run", "--by", "type", "--stats", "max,num_nan"): None,
    ("diff", "run", "run"): None,
    ("layers", "run"): {"schema_version", "layers", "notes"},
    ("layers", "makes:net", "--config", "stats.yaml"): {"schema_version", "layers", "notes"},
    ("config", "check", "stats.yaml"): {"schema_version", "file", "valid", "errors", "notes", "parts"},
    ("config", "explain", "stats.yaml"): {"schema_version", "file", "parts", "reads", "gemms", "notes"},
    ("config", "explain", "stats.yaml", "--model", "makes:net", "--recipe", "delayed"): {
        *("schema_version", "file", "parts", "reads", "gemms", "notes")
    },
    ("doctor", "explain", "nccl.log"): None,
}


def test_every_command_that_prints_a_result_has_json_in_one_form() -> None:
    types = {words: {param.type for param in command.params if "--json" in param.opts} for words, command in LEAVES.items()}
    assert {words for words, found in types.items() if found != {JSON_FILE}} - PAGES == PRINTS_NO_RESULT


@pytest.mark.parametrize("words", RESULTS, ids=" ".join)
def test_json_alone_is_all_that_is_printed_and_a_file_has_the_same(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capfd, *words, "--json")
    document = json.loads(out)
    assert all(line.startswith("numscope: ") or "words" in line or "them" in line for line in err.splitlines())
    if (keys := RESULTS[words]) is not None:
        assert set(document) == keys
    num = max(num for num in (1, 2) if words[:num] in LEAVES)
    assert said(capfd, *words[:num], "--json", "-", *words[num:])[:2] == (status, out)
    Path("told.json").unlink(missing_ok=True)
    done, nothing, _ = said(capfd, *words, "--json", "told.json")
    assert done == status
    assert json.loads(Path("told.json").read_text()) == document
    if words[0] != "doctor":  # it prints its table too
        assert nothing == ""


def test_keys_of_documents_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    for keys in RESULTS.values():
        assert all(f"`{key}`" in text for key in keys or ())


def test_json_of_a_configuration_with_errors_has_them_all(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capfd, "config", "check", "bad.yaml", "--json")
    told = json.loads(out)
    assert (status, told["valid"], len(told["errors"])) == (2, False, 2)
    assert err == "\n  ".join(("numscope: 2 errors:", *told["errors"])) + "\n"


def test_json_of_an_explanation_names_layers_and_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said(capfd, "config", "explain", "stats.yaml", "--model", "makes:net", "--tokens", "2", "--json")[1])
    assert told["parts"] == [
        {"section": "all", "feature": "statistics", "selection": "types Linear", "layers": ["0"], "tensors": ["output"]}
        | {"statistics": ["mean"], "every": 1, "steps": [[0, None]], "reads": {"bytes": 16, "num_unknown": 0}}
    ]
    assert told["reads"]["on_average"] == {"bytes": 16.0, "num_unknown": 0}


@pytest.mark.parametrize("words", [("precision", "advise", "--json", "train.py"), ("layers", "--json", "makes.py", "run")], ids=" ".join)
def test_a_script_that_follows_json_is_not_written_over(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    before = Path(words[words.index("--json") + 1]).read_text()
    assert "holds something else. To print JSON, put --json last, or write --json -." in refusal(capfd, *words)
    assert Path(words[words.index("--json") + 1]).read_text() == before


# ---- outputs

KINDS = {JSON_FILE: "file", OUTPUT_FILE: "file", OUTPUT_FOLDER: "folder"}
OUTPUTS = [
    (words, param.opts[-1], KINDS[param.type])  # type: ignore[index]
    for words, command in LEAVES.items()
    for param in command.params
    if isinstance(param, click.Option) and param.type in KINDS
]
WORKS = {"run": ("train.py",), "precision": ("train.py",), "config": ("stats.yaml",), "diff": ("run", "run"), "doctor": ()}


def test_all_outputs_are_swept() -> None:
    options = {option for _, option, _ in OUTPUTS}
    assert options == {"--json", "--sarif", "--log-dir", "--output"}


@pytest.mark.parametrize(("words", "option", "kind"), OUTPUTS, ids=lambda one: " ".join(one) if isinstance(one, tuple) else one)
def test_an_output_that_cant_be_written_is_refused_before_the_work(
    words: tuple[str, ...], option: str, kind: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = ("nccl.log",) if "explain" in words and "doctor" in words else WORKS.get(words[0], ("run",))

    def refused(where: str) -> str:
        line = refusal(capfd, *words, option, where, *work)
        assert line.startswith(f"{option}: got {where!r}, expected a "), line
        return line

    for where in ("file/below", "n" * 300, *(("absent/there", "empty") if kind == "file" else ("file",))):
        refused(where)
    for number in (errno.EACCES, errno.EROFS, errno.ENOSPC):

        def fails(folder: str, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files, "_try_writing", fails)
        assert refused("new").endswith(f"that can be {'written to' if kind == 'folder' else 'written'}: {os.strerror(number)}.")
    assert not Path("new").exists()


def test_a_page_beside_a_run_that_is_read_only_is_refused(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "_try_writing", fails)
    for words in (("report", "run"), ("report", "run", "--summary")):
        assert refusal(capfd, *words).startswith("--output: got '")


def test_a_device_that_is_full_is_told_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no such device")
    line = refusal(capfd, "layers", "run", "--json", "/dev/full")
    assert line == "--json: got '/dev/full', expected a file that can be written: No space left on device."


def test_nothing_is_left_where_a_place_was_tried(tmp_path: Path) -> None:
    assert files.why_unwritable(str(tmp_path / "new.json")) == files.why_unwritable(str(tmp_path / "a" / "b"), folder=True) == ""
    assert list(tmp_path.iterdir()) == []


# ---- runs

READERS = {
    "report": ("report", "X"),
    "report --compare": ("report", "run", "--compare", "X"),
    "report --summary": ("report", "X", "--summary"),
    "stats": ("stats", "X"),
    "stats SQL": ("stats", "X", "FROM stats"),
    "stats --by": ("stats", "X", "--by", "all"),
    "stats columns": ("stats", "X", "columns"),
    "stats compact": ("stats", "X", "compact"),
    "diff A": ("diff", "X", "run"),
    "diff B": ("diff", "run", "X"),
    "diff --noise": ("diff", "run", "run", "--noise", "X"),
    "top": ("top", "X"),
    "view": ("view", "X"),
    "layers": ("layers", "X"),
    "config explain": ("config", "explain", "stats.yaml", "--model", "X"),
}
WHY = {
    "absent": "There is nothing of that name.",
    "empty": "It is empty.",
    "foreign": "It holds other things.",
    "file": "It is a file.",
}


@pytest.mark.parametrize("given", WHY)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_run_ends_all_readers_alike(reader: str, given: str, capfd: pytest.CaptureFixture[str]) -> None:
    if (reader, given) == ("view", "empty"):
        pytest.skip("it waits for the runs that will be there")
    line = refusal(capfd, *(given if word == "X" else word for word in READERS[reader]))
    assert f": got {given!r}, expected a" in line
    assert f"a run's folder, such as numscope run --log-dir DIR train.py makes. {WHY[given]}" in line


# ---- factories

BROKEN = {
    "makes:broken": 'makes:broken: made no model: ValueError: no data here, at {}/makes.py:8 in broken: raise ValueError("no data\\nhere")',
    "makes:leaves": 'makes:leaves: made no model: SystemExit: usage, at {}/makes.py:10 in leaves: raise SystemExit("usage")',
    "train:f": "train:f: could not be imported: SystemExit: the script was started, at {}/train.py:1 in <module>: "
    "raise SystemExit('the script was started')",
    "cut:f": "cut:f: could not be imported: SyntaxError: invalid syntax, at {}/cut.py:1: def f(:",
    "nowhere:f": f"nowhere:f: no module 'nowhere', expected {EXPECTED}.",
}


@pytest.mark.parametrize("given", BROKEN)
def test_a_factory_that_fails_is_one_line_with_its_own_place(given: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (("layers", given), ("config", "explain", "stats.yaml", "--model", given)):
        status, out, err = said(capfd, *words)
        told = [line for line in err.splitlines() if line.startswith("numscope: ")]
        assert (status, out, told) == (2, "", [f"numscope: {BROKEN[given].format(place)}"])


def test_a_file_of_features_that_fails_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (own := tmp_path / "own.py").write_text("def f():\n    raise ValueError('mine')\nf()\n")
    for words in (("config", "check", "stats.yaml"), ("config", "explain", "stats.yaml"), ("layers", "run", "--config", "stats.yaml")):
        status, _, err = said(capfd, *words, "--features", str(own))
        assert (status, err) == (0, f"numscope: {own} is left out: ValueError at {own}:2: mine\n")
