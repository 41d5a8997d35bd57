"""Files that are replaced whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from numscope.records.files import replacing, write_atomically


@pytest.mark.parametrize(("data", "written"), [("é\r\nb\n", b"\xc3\xa9\r\nb\n"), (b"\x00\xff", b"\x00\xff")])
def test_file_is_written_in_place_of_the_old_one(tmp_path: Path, data: str | bytes, written: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    write_atomically(path, data)
    assert path.read_bytes() == written
    assert os.listdir(tmp_path) == ["a.json"]


def test_file_in_the_working_folder_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path) as aside:
        Path(aside).write_text("new")
        assert Path(aside).parent == tmp_path
        assert Path(aside).name.startswith(".")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as aside:
        Path(aside).write_text("half")
        raise RuntimeError
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\udcff")

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_name_of_any_length_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomically(path, "x")
    assert path.read_text() == "x"


def test_file_is_as_private_as_the_user_s_other_files(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "a.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600
