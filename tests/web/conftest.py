"""A real loopback server for a fake dock, and clients that see what goes over the wire."""

from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from attrs import frozen
from fake_dock import FakeDock
from trio_websocket import open_websocket_url

from agentsdock.web.app import make_app
from agentsdock.web.connection import Timing
from agentsdock.web.serve import bind, serve


@frozen
class Server:
    """``left`` is set when ``serve`` has returned."""

    dock: FakeDock
    url: str
    left: trio.Event

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, **options):
        return httpx.AsyncClient(base_url=self.url, trust_env=False, **options)

    def socket(self, query="", session_id="sess_0123456789abcdef", **options):
        url = f"ws{self.url[4:]}/api/sessions/{session_id}/events{query}"
        return open_websocket_url(url, **options)

    async def connect(self, receive_buffer=None):
        """A bare TCP stream."""
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", self.port))
        return trio.SocketStream(sock)

    async def stop(self):
        """Ask it to leave; returns the seconds that it took."""
        began = trio.current_time()
        self.dock.stopping.set()
        await self.left.wait()
        return trio.current_time() - began


@asynccontextmanager
async def serving(dock, timing=None, app=None):
    left = trio.Event()
    listeners = await bind(dock.settings)

    async def run(*, task_status):
        await serve(
            app or make_app(dock),
            listeners,
            dock.settings,
            dock.stopping,
            timing=timing or Timing(),
            task_status=task_status,
        )
        left.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(run)
            yield Server(dock, urls[0], left)
            dock.stopping.set()


@pytest.fixture
async def dock():
    return FakeDock()


@pytest.fixture
async def server(dock):
    async with serving(dock) as server:
        yield server
