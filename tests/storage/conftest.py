from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.storage.served import Store


@pytest.fixture(scope="session")
def server() -> Iterator[Store]:
    """One for all tests: fsspec keeps its connections."""
    pytest.importorskip("moto", reason="moto is not installed: no local S3")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    made = Store()
    yield made
    made.stop()


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.empty()
    with contextlib.ExitStack() as stack:
        stack.callback(server.start)
        yield server
