"""Four real ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.ranks import RankPool


@pytest.fixture(scope="session")
def pool_of_4() -> Iterator[RankPool]:
    pool = RankPool(4)
    yield pool
    pool.close()


@pytest.fixture
def four_ranks(pool_of_4: RankPool, tmp_path: Path) -> RankPool:
    pool_of_4.folder = tmp_path
    return pool_of_4
