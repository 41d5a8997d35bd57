"""A new database for MLflow: made ahead, put in place when there is something to send."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from numscope.sinks import mlflow_database
from numscope.sinks.mlflow_database import NewDatabase

CODE = mlflow_database._CODE


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with all of MLflow, which the script has not imported; what it would make is a text."""
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(mlflow_database, "is_installed", lambda package: True)
    monkeypatch.setattr(mlflow_database.signal, "getsignal", lambda number: mlflow_database.signal.SIG_DFL)  # loaders leave a handler
    monkeypatch.setattr(mlflow_database, "_CODE", "import sys; open(sys.argv[2], 'w').write('tables')")
    monkeypatch.chdir(tmp_path)


def test_tables_are_put_where_mlflow_looks_only_when_something_is_sent(tmp_path: Path) -> None:
    database = NewDatabase.of("")
    assert database is not None and database._process is not None
    assert database._process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
    database.put(f"sqlite:///{tmp_path}/a%20b.db")  # the script has chosen it since
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a b.db": "tables"}
    folder = Path(database._folder)
    assert folder.is_dir()
    database.close()
    assert not folder.exists()


def test_database_that_has_come_to_be_meanwhile_stays(tmp_path: Path) -> None:
    database = NewDatabase.of("sqlite:///mine.db")
    assert database is not None
    (tmp_path / "mine.db").write_text("the script's")
    database.put("sqlite:///mine.db")
    database.put("http://localhost:1")
    database.close()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the script's"]


def test_process_that_fails_leaves_it_to_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_database, "_CODE", "raise SystemExit(1)")
    database = NewDatabase.of("")
    assert database is not None
    database.put("sqlite:///mlflow.db")
    database.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["http://localhost:1", "file:///tmp/runs", "sqlite://", "sqlite:///there.db", "postgresql://x/y"])
def test_nothing_is_made_where_mlflow_makes_nothing(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there.db").touch()
    assert NewDatabase.of(uri) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert NewDatabase.of("") is None


def test_script_that_opens_it_by_itself_gets_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", sys)
    database = NewDatabase.of("")
    assert database is not None and database._process is None
    database.put("sqlite:///mlflow.db")
    database.close()


def test_mlflow_takes_the_tables_for_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.setattr(mlflow_database, "_CODE", CODE)
    uri = f"sqlite:///{tmp_path}/new.db"
    database = NewDatabase.of(uri)
    assert database is not None
    database.put(uri)
    database.close()
    size = (tmp_path / "new.db").stat().st_size
    monkeypatch.undo()
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=uri)
    assert client.get_run(client.create_run("0").info.run_id).info.status == "RUNNING"
    assert size > 100_000
