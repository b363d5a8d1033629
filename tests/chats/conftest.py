import pytest
from house import living


@pytest.fixture
async def house(tmp_path):
    async with living(tmp_path) as house:
        yield house
