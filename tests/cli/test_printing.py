"""What every command prints of a stranger's folder, file or argument can neither color a terminal nor turn or end a line."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from numscope.cli.command import COMMANDS, main
from numscope.records.layer import Layer
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, write

EVIL = "a\x1b[31mred\x1b]0;title\x07\x9b31m\u202egnp.exe\u2028\x85b"  # ESC, OSC, C1, right to left, ends of lines
NAMES = {"controls": EVIL, "surrogates": "c\ud800d\x1b[2J"}
BYTE = "\udc9b"  # of an argument that is no UTF-8
FILE = "f\x1b[31m\u202e"  # what a folder may be called


def config(name: str, **more: object) -> str:
    section = {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*"},
        "statistics": {"enabled": True, "stats": ["max"], "tensors": ["output"]},
    }
    return json.dumps({name: section | more})  # JSON is YAML


@pytest.fixture(scope="module", params=NAMES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A name that nobody should print, and a folder with a run, configurations and logs that are full of it."""
    folder, name = tmp_path_factory.mktemp("made"), NAMES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        fill(name)
    return name, folder


@pytest.fixture
def name(made: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shutil.copytree(made[1], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return made[0]


def fill(name: str) -> None:
    stored = name.encode("utf-8", "replace").decode()  # Parquet's text is UTF-8
    for run in ("run", FILE):
        write(Path(run), {Place(step, stored, stored, "output"): torch.ones(4) * (step + (run == "run")) for step in range(3)})
        hostile = dict.fromkeys(("rule", "layer", "tensor", "text", "advice"), name)
        site = {"module": name, "cls": name, "phase": "forward", "slot": name}
        culprit = {
            "op": name, "phase": "forward", "module": name, "file": name, "line": 3, "code": name, "reason": "division by zero",
            "detail": name, "advice": name, "inputs": [], "outputs": [], "stack": [[name, 3, name, name]],
        }  # fmt: skip
        finding = {**FINDING, "site": site, "replay": name, "model": name, "note": name, "culprit": culprit}
        Path(run, "findings-rank0.json").write_text(document(finding, alerts=[{**ALERT, **hostile}], model=name, events=[[1, name]]))
        layer = {**dataclasses.asdict(Layer(name, name, name, ("weight",), 8, 32)), "model": name}
        Path(run, "ranks").mkdir(exist_ok=True)
        Path(run, "ranks", "rank0-1.json").write_text(json.dumps({"rank": 0, "layers": [layer]}))
        Path(run, "run.json").write_text("{}")
        Path(run, f"rank0-0-{FILE}.parquet").write_text("")
        Path(run, "statistics", "rank0-1-000099.parquet").write_text(name.encode("utf-8", "replace").decode())
    Path("valid.yaml").write_text(config(name))
    Path("unknown.yaml").write_text(config(name, **{name: 3}))
    Path(f"{FILE}.yaml").write_text(config("plain", **{"statistics": {"enabled": True, "stats": [name]}}))
    Path(f"{FILE}.log").write_bytes(f"node:1:1 [0] NCCL WARN {name}\n".encode("utf-8", "replace"))
    Path("base.json").write_text(json.dumps({"schema": name, name: [name]}))


# Of each command, what it can be given; an option's value, a file's content and a file's name.
CALLS: dict[str, list[list[str]]] = {
    "capsule": [["run"], [FILE], ["NAME"]],
    "config": [["check", "valid.yaml"], ["check", "unknown.yaml"], ["check", f"{FILE}.yaml"], ["explain", "valid.yaml"],
               ["explain", "valid.yaml", "--model", "run"], ["explain", FILE], ["explain", "valid.yaml", "--model", FILE + "x"]],
    "diff": [["run", FILE], ["run", "NAME"], ["run", FILE, "--stats", "NAME"], ["run", FILE, "--json"]],
    "doctor": [["explain", f"{FILE}.log"], ["explain", "NAME"], ["--baseline", "base.json", "--timeout", "NAME"]],
    "layers": [["run"], ["run", "--config", "valid.yaml"], ["run", "--config", "unknown.yaml"], [FILE], ["NAME"], ["NAME:f"]],
    "parity": [["NAME"], [FILE, "run"], ["--", "NAME", "--", "NAME"], ["record", FILE]],
    "precision": [["advise", "NAME"], ["bisect", "--config", f"{FILE}.yaml", "NAME"], ["NAME"]],
    "report": [["run"], ["run", "--summary", "-o", "digest.md"], ["run", "--sarif", "found.sarif"], [FILE], ["NAME"],
               ["run", "--compare", FILE]],
    "run": [["NAME"], ["--config", f"{FILE}.yaml", "NAME"], ["--NAME"], ["-m", "NAME"]],
    "stats": [["run"], ["run", "select * from stats"], ["run", "select 'x' as \"NAME\""], ["run", "--by", "layer"], ["run", "--csv"],
              ["run", "--json"], ["run", "select NAME"], [FILE], ["NAME"]],
    "top": [["run"], [FILE], ["NAME"]],
    "view": [["NAME"], ["--port", "NAME", "run"]],
}  # fmt: skip


def test_every_command_is_tried() -> None:
    assert sorted(CALLS) == sorted(COMMANDS)


def printed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a call prints in a pipe; a traceback fails the test."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)  # strict, as stdout is
    monkeypatch.setattr(sys, "argv", ["numscope", *words])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        main()
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def unprintable(text: str) -> Iterator[str]:
    for character in text:
        if character not in "\n" and (not character.isprintable() or unicodedata.bidirectional(character) in ("RLO", "LRO", "RLE", "LRE")):
            yield character


@pytest.mark.parametrize(
    "words", [[command, *words] for command, calls in CALLS.items() for words in calls], ids=lambda words: ascii(" ".join(words))
)
def test_names_are_printed_as_text(name: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = printed([word.replace("NAME", name.replace("\ud800", BYTE)) for word in words], monkeypatch)
    assert said and not list(unprintable(said)), said
