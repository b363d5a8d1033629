from collections.abc import AsyncIterator

import pytest

from agentsdock.guard import orphans
from agentsdock.guard.handle import ZygoteLauncher


@pytest.fixture
async def launcher() -> AsyncIterator[ZygoteLauncher]:
    orphans.reap(lambda _: True)  # of tests without a launcher, as this process is a subreaper
    async with ZygoteLauncher() as opened:
        yield opened
