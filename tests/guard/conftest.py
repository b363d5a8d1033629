from collections.abc import AsyncIterator

import pytest

from agentsdock.guard.handle import ZygoteLauncher


@pytest.fixture
async def launcher() -> AsyncIterator[ZygoteLauncher]:
    async with ZygoteLauncher() as opened:
        yield opened
