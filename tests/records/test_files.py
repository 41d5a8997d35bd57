"""Files that are replaced whole."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

import pytest

from numscope.records.files import replacing, write_atomically, write_where_asked


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


def test_what_the_user_named_is_written_into(tmp_path: Path) -> None:
    secret, link, hard = tmp_path / "secret.json", tmp_path / "link.json", tmp_path / "hard.json"
    secret.write_text("an old text that is longer")
    secret.chmod(0o600)
    link.symlink_to(secret)
    hard.hardlink_to(secret)
    write_where_asked(link, b"new")
    assert link.is_symlink() and secret.read_bytes() == hard.read_bytes() == b"new"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    write_where_asked(tmp_path / "fresh.json", b"fresh")
    assert (tmp_path / "fresh.json").read_bytes() == b"fresh"
    write_where_asked(os.devnull, b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_link_to_nothing_makes_the_file_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    write_where_asked(tmp_path / "link.json", b"new")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "target.json").read_bytes() == b"new"


def test_a_pipe_is_written_for_its_reader_and_refused_without_one(tmp_path: Path) -> None:
    pipe, data, read = tmp_path / "pipe", os.urandom(1 << 18), []
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):
        write_where_asked(pipe, data)
    thread = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    thread.start()
    while not read and thread.is_alive():  # until it has opened the pipe
        with contextlib.suppress(OSError):
            write_where_asked(pipe, data)
            break
    thread.join()
    assert read == [data] and stat.S_ISFIFO(pipe.stat().st_mode)
