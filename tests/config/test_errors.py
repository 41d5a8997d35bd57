"""Every wrong configuration says, all at once, where it is wrong, what was got and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from numscope import UsageError
from numscope.config import load


def golden() -> list[Any]:
    """errors.txt: a configuration, its lines after ``| ``, then its errors, then an empty line."""
    found = []
    for block in Path(__file__).with_name("errors.txt").read_text(encoding="utf-8").strip("\n").split("\n\n"):
        lines = block.split("\n")
        text = [line.removeprefix("| ") for line in lines if line.startswith("| ")]
        errors = [line for line in lines if not line.startswith("| ")]
        found.append(pytest.param("\n".join(text), errors, id=" ".join(text)[:60]))
    return found


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def errors(text: str | bytes) -> list[str]:
        Path("stats.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UsageError) as caught:
            load("stats.yaml")
        return str(caught.value).split("\n")

    return errors


GROWS = "got more than 100000 values with all aliases and merge keys written out, or one that contains itself, expected fewer."
LONG = "got a number of more than 100 characters, expected a shorter one, or text in quotes."


@pytest.mark.parametrize(("text", "errors"), golden())
def test_wrong_configuration_is_refused_with_all_its_errors(refused: Any, text: str, errors: list[str]) -> None:
    assert refused(text) == errors


def test_all_errors_of_all_sections_are_said_at_once(refused: Any) -> None:
    found = refused(
        """
        first:
          enabled: true
          layers: {layer_name_regex_pattern: "("}
          statistics: {enabled: true, stats: [maxx], tensors: [weight], freq: 0}
        second:
          enabled: true
          layers: {layer_types: [fc1]}
          statistics: {enabled: true, stats: [max], tensors: [wieght], frq: 1}
        """
    )
    assert [line.split(": ")[1] for line in found] == [
        "first.layers.layer_name_regex_pattern",
        "first.statistics.freq",
        "first.statistics.stats[0]",
        "second.statistics.tensors[0]",
        "second.statistics.frq",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: " + "[" * 5000, "stats.yaml: got values nested too deeply, expected at most 32 levels."),
        ("#" * (2**20 + 1), "stats.yaml: got more than 1 MiB, expected a configuration of at most 1 MiB."),
        (
            "layers: {layer_numbers: [" + "0-900000, " * 9000 + "1]}",
            "stats.yaml: layers.layer_numbers: got more than 1000000 numbers with all ranges written out, "
            "expected numbers, ranges such as 1-12, or only all.",
        ),
        (b"a: \xff", "stats.yaml: got bytes that are not UTF-8 (at byte 3), expected a YAML file in UTF-8."),
        (
            "a: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(30)),
            f"stats.yaml: line 5, column 5: {GROWS}",
        ),
        (
            "a: &a0 {x: 1}\n" + "".join(f"b{i}: &a{i + 1}\n  <<: [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(30)),
            f"stats.yaml: line 11, column 7: {GROWS}",
        ),
        ("a: " + "1:" * 1000 + "1", f"stats.yaml: line 1, column 4: {LONG}"),
        ("a: 0x" + "f" * 100_000, f"stats.yaml: line 1, column 4: {LONG}"),
    ],
    ids=["deep", "large", "ranges", "bytes", "aliases", "merges", "sexagesimal", "digits"],
)
def test_file_that_would_grow_without_bound_is_refused(refused: Any, text: str | bytes, error: str) -> None:
    assert refused(text) == [error]


def test_no_tag_is_executed(refused: Any, tmp_path: Path) -> None:
    [error] = refused('a: !!python/object/apply:os.mkdir ["made"]')
    assert "nothing in it is executed" in error
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("stat.yaml", 'stat.yaml: no such file, expected a YAML file. Did you mean "stats.yaml"?'),
        ("nope.yaml", "nope.yaml: no such file, expected a YAML file."),
        ("folder", "folder: got a folder, expected a YAML file."),
        ("a: 1\nb: 2", "a: 1\nb: 2: got YAML text, expected a YAML file's path or a dict. Read it first: yaml.safe_load(text)."),
        (3, "config: got 3, expected a YAML file's path or a dict."),
        (None, "config: got nothing, expected a YAML file's path or a dict."),
        ({}, "config: got no section, expected at least one."),
        ({1: 2}, "config: got the key 1, expected a name. Write it in quotes."),
        ({"s": {"enabled": {1}}}, "config: s.enabled: got {1}, expected plain data: text, a number, true or false, a list, a mapping."),
    ],
    ids=str,
)
def test_source_that_is_no_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, error: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stats.yaml").touch()
    Path("folder").mkdir()
    with pytest.raises(UsageError) as caught:
        load(source)
    assert str(caught.value) == error
