import pathlib
from collections.abc import AsyncIterator

import pytest

from agentsdock.store.sqlite import SqliteStore, open_store


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state"


@pytest.fixture
async def store(folder: pathlib.Path) -> AsyncIterator[SqliteStore]:
    async with open_store(folder) as opened:
        yield opened
