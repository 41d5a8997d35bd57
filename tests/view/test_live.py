"""What a server knows of a run as its folder changes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from numscope.records.errors import UsageError
from numscope.runs.sources import Remote, source_of
from numscope.view import live
from numscope.view.live import LiveRun
from numscope.view.shelf import Shelf
from tests.page.test_packed_arrays import unpack
from tests.page.test_recorded import ALERT, FINDING, document
from tests.runs.tensors import Place, two_layers, write


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "LOOK_REMOTE_S", "MOST_REST_S"):
        monkeypatch.setattr(live, name, 0)


def looked(run: LiveRun, found: Callable[[dict[str, Any]], object] = lambda told: told["state"] != "reading") -> tuple[dict[str, Any], Any]:
    """The state of which something is true, and the whole content."""
    end = time.monotonic() + 30
    while True:
        run.look()
        told, content = run.answer("")
        if found(told):
            return told, json.loads(content)
        assert time.monotonic() < end, told


def newer(run: LiveRun) -> Callable[[dict[str, Any]], bool]:
    """Whether a later version is shown than now."""
    known = run.shown[0]
    return lambda told: bool(told["version"] != known)


def only(folder: Path) -> LiveRun:
    (run,) = Shelf([str(folder)]).runs()
    return run


def shown(told: dict[str, Any]) -> bool:
    return bool(told["state"] == "shown")


def test_an_empty_folder_waits_for_its_run(tmp_path: Path) -> None:
    run = only(tmp_path)
    told, content = looked(run)
    assert (told["state"], content) == ("waiting", None)
    assert told["message"].startswith(f"{tmp_path} is empty. ")
    (tmp_path / "run.json").write_text("{}")
    told, _ = looked(run, lambda told: "has begun" in told["message"])
    assert told["state"] == "waiting"
    (tmp_path / "findings-rank0.json").write_text(document(ended=False))
    told, content = looked(run, shown)
    assert (content["numFindings"], content["sites"], told["ended"]) == (0, [], False)
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    told, content = looked(run, lambda told: told["ended"])
    assert [finding["step"] for finding in content["findings"]] == [2]
    write(tmp_path, two_layers(2))
    _, content = looked(run, newer(run))
    assert len(content["sites"]) == 18


def test_a_restarted_run_shows_the_later_attempt(tmp_path: Path) -> None:
    write(tmp_path, {Place(step, "a", "A", "output"): torch.tensor([1.0]) for step in range(6)})
    run = only(tmp_path)
    looked(run, shown)
    write(tmp_path, {Place(step, "a", "A", "output"): torch.tensor([2.0]) for step in range(4, 8)})
    _, content = looked(run, newer(run))
    assert unpack(content["columns"]["amax max"]).tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [one["step"] for one in content["restarts"]] == [4]


def test_a_run_that_was_started_again_has_not_ended(tmp_path: Path) -> None:
    write(tmp_path, two_layers(2))
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))
    shelf = Shelf([str(tmp_path)])
    (run,) = shelf.runs()
    looked(run, lambda told: told["ended"])
    write(tmp_path, two_layers(1))
    looked(run, lambda told: not told["ended"])
    assert [one["ended"] for one in shelf.glances()] == [False]
    (tmp_path / "findings-rank0-2.json").write_text(document(attempt=2))
    looked(run, lambda told: told["ended"])
    assert [one["ended"] for one in shelf.glances()] == [True]


def test_a_folder_that_vanishes_is_told_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    write(folder, two_layers(2))
    run = only(folder)
    looked(run, shown)
    folder.rename(tmp_path / "away")
    told, content = looked(run, lambda told: told["state"] == "gone")
    assert told["message"] == f"{folder} is not there any more. What is shown is what it held."
    assert len(content["first"]) == 2
    write(folder, two_layers(3))
    _, content = looked(run, shown)
    assert len(content["first"]) == 3


def test_a_run_that_begins_anew_in_its_folder_is_read_anew(tmp_path: Path) -> None:
    write(tmp_path, two_layers(5))
    run = only(tmp_path)
    looked(run, shown)
    for path in list(tmp_path.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    told, content = looked(run, lambda told: told["state"] == "waiting")
    assert told["message"].startswith("The run begins anew")
    assert len(content["first"]) == 5
    write(tmp_path, {Place(0, "other", "A", "output"): torch.ones(1)})
    _, content = looked(run, shown)
    assert [site["layer"] for site in content["sites"]] == ["other"]


def test_damaged_files_are_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    write(tmp_path, two_layers(2))
    run = only(tmp_path)
    looked(run, shown)
    (tmp_path / "statistics" / "rank0-1-000900.parquet").write_bytes(b"PAR1" * 9)
    (tmp_path / "statistics" / "rank0-1-000901.parquet").write_bytes(b"half")
    (tmp_path / "findings-rank0.json").write_text("{")
    _, content = looked(run, newer(run))
    assert len(content["sites"]) == 18
    assert sorted(problem.split(" ")[0] for problem in content["problems"]) == [
        "findings-rank0.json", "statistics/rank0-1-000900.parquet", "statistics/rank0-1-000901.parquet",
    ]  # fmt: skip


def test_statistics_that_cannot_be_read_at_all_are_told_until_they_can(tmp_path: Path) -> None:
    (tmp_path / "statistics").mkdir()
    part = tmp_path / "statistics" / "rank0-1-000000.parquet"
    part.write_bytes(b"PAR1" * 9)
    run = only(tmp_path)
    told, content = looked(run)
    assert (told["state"], content) == ("unreadable", None)
    assert "has no part that can be read" in told["message"]
    part.unlink()
    write(tmp_path, two_layers(2))
    assert len(looked(run, shown)[1]["sites"]) == 18


def test_a_run_is_not_read_again_while_its_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, two_layers(2))
    run = only(tmp_path)
    told, _ = looked(run, shown)
    monkeypatch.setattr(live, "read_recorded", None)  # calling it would fail
    for _ in range(3):
        looked(run, shown)
    assert run.answer(told["version"])[1] == b"null"


def test_nothing_in_a_run_is_written(tmp_path: Path) -> None:
    write(tmp_path, two_layers(2))
    (tmp_path / "findings-rank0.json").write_text(document(FINDING))

    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in [tmp_path, *tmp_path.rglob("*")]}

    before = state()
    shelf = Shelf([str(tmp_path)])
    looked(shelf.runs()[0], shown)
    shelf.glances()
    assert state() == before


# ---------------------------------------------------------------------------------------------------------------------- several runs


def test_a_folder_of_runs_gets_new_ones_and_keeps_those_that_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numscope.view import shelf as shelf_module

    monkeypatch.setattr(shelf_module, "LIST_S", 0)
    write(tmp_path / "b", two_layers(3))
    (tmp_path / "notes").mkdir()
    shelf = Shelf([str(tmp_path)])
    assert [run.key for run in shelf.runs()] == ["b"]
    (tmp_path / "a").mkdir()
    for rank in (0, 1):  # a finding that stopped both
        (tmp_path / "a" / f"findings-rank{rank}.json").write_text(
            document(FINDING, alerts=[ALERT | {"rank": rank}], ended=False, steps=7, rank=rank)
        )
    glances = {one["key"]: one for one in shelf.glances()}
    assert (glances["a"]["findings"], glances["a"]["step"], glances["a"]["ended"]) == (1, 6, False)
    assert (glances["b"]["findings"], glances["b"]["step"]) == (None, 2)
    assert (glances["a"]["alerts"], glances["b"]["alerts"]) == (1, None)
    first = shelf.find("b")
    assert first is not None
    looked(first, shown)
    shutil.rmtree(tmp_path / "b")
    assert {one["key"]: one["state"] for one in shelf.glances()} == {"a": "reading", "b": "gone"}
    assert shelf.find("") is shelf.find("a")  # it wrote last


def test_runs_of_one_name_have_keys_of_their_own(tmp_path: Path) -> None:
    for name in ("x/logs", "y/logs", "z/logs", "x l"):
        write(tmp_path / name, two_layers(1))
    runs = Shelf([str(tmp_path / name) for name in ("x/logs", "y/logs", "z/logs", "x l", "x l/")]).runs()
    assert [(run.key, run.name) for run in runs] == [("logs", "logs"), ("y_logs", "y/logs"), ("z_logs", "z/logs"), ("x_l", "x l")]


# ---------------------------------------------------------------------------------------------------------------------- other storages


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """An address, and what makes the storage as a folder is."""
    import fsspec

    root = f"/view-{os.urandom(4).hex()}" if request.param == "memory" else str(tmp_path / "storage")
    fs = fsspec.filesystem(request.param)

    def put(folder: Path) -> None:
        for path in fs.find(root) if fs.exists(root) else []:
            if not (folder / os.path.relpath(path, root)).exists():
                fs.rm(path)
        for path in folder.rglob("*"):
            if path.is_file():
                fs.makedirs(f"{root}/{path.relative_to(folder).parent}", exist_ok=True)
                fs.pipe_file(f"{root}/{path.relative_to(folder)}", path.read_bytes())

    yield f"{request.param}://{root}", put
    if fs.exists(root):
        fs.rm(root, recursive=True)


def test_a_run_in_another_storage_is_followed(storage: tuple[str, Callable[[Path], None]], tmp_path: Path) -> None:
    address, put = storage
    folder = tmp_path / "made"
    write(folder, two_layers(2))
    put(folder)
    (run,) = (shelf := Shelf([address])).runs()
    assert isinstance(run.source, Remote)
    told, content = looked(run, shown)
    assert (len(content["first"]), content["name"]) == (2, run.name)
    assert told["ago"] < 600
    write(folder, {Place(2, "new", "A", "output"): torch.ones(2)})
    (folder / "findings-rank0.json").write_text(document(FINDING))
    put(folder)
    _, content = looked(run, newer(run))
    assert (len(content["first"]), content["numFindings"]) == (3, 1)
    copy = Path(run.source.fetch(run.source.signature()))
    for path in folder.joinpath("statistics").iterdir():
        path.unlink()
    put(folder)
    looked(run, newer(run))
    assert list((copy / "statistics").iterdir()) == []  # what is gone there is gone here
    shelf.close()
    assert not copy.exists()


def test_runs_in_a_folder_of_another_storage_are_found(storage: tuple[str, Callable[[Path], None]], tmp_path: Path) -> None:
    address, put = storage
    for name in ("a", "b"):
        write(tmp_path / "made" / name, two_layers(1))
    put(tmp_path / "made")
    assert [run.key for run in Shelf([address]).runs()] == ["a", "b"]
    with pytest.raises(UsageError, match=r"RUN: got '.*/none', expected a run's folder, such as .* There is nothing of that name\."):
        Shelf([f"{address}/none"])


def test_names_in_another_storage_lead_nowhere_else(tmp_path: Path) -> None:
    class Hostile:
        def invalidate_cache(self) -> None:
            pass

        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            names = ("../../run.json", "rank0-1-0.parquet/../../x", "run.json\n", "findings-rank0.json", ".bashrc")
            return [{"name": f"{path}/{name}", "type": "file", "size": 1} for name in names] if path == "root" else []

    source = source_of("memory://root")
    assert isinstance(source, Remote)
    source._fs, source._root = Hostile(), "root"
    assert sorted(source.signature()) == ["findings-rank0.json", "run.json"]
