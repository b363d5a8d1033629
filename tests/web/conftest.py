"""The fake dock, served for real on loopback."""

import pytest
import trio.testing
from fake_dock import FakeDock
from fake_house import serving


@pytest.fixture
def patient_clock():
    """Time that jumps once nothing has happened for 50 real milliseconds, so that real sockets
    get their share."""
    return trio.testing.MockClock(autojump_threshold=0.05)


@pytest.fixture
async def dock():
    return FakeDock()


@pytest.fixture
async def server(dock, request):
    jumping = "patient_clock" in request.fixturenames
    async with serving(dock, limit=3600 if jumping else 30) as server:
        yield server
