"""A real loopback server for a fake dock, and clients that see what goes over the wire."""

from collections.abc import Callable
from contextlib import asynccontextmanager

import httpx
import trio
from attrs import frozen
from fake_dock import CHAT, FakeDock
from trio_websocket import wrap_client_stream

from agentsdock.web.app import make_app
from agentsdock.web.connection import Timing
from agentsdock.web.serve import bind, serve


@frozen
class Server:
    """``left`` is set when ``serve`` has returned."""

    dock: FakeDock
    url: str
    left: trio.Event
    cancel: Callable[[], None]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, **options):
        return httpx.AsyncClient(base_url=self.url, trust_env=False, **options)

    @asynccontextmanager
    async def socket(self, query="", **options):
        async with await self.connect() as stream, trio.open_nursery() as nursery:
            path = f"/api/sessions/{CHAT}/events{query}"
            client = await wrap_client_stream(
                nursery, stream, f"127.0.0.1:{self.port}", path, **options
            )
            async with client:
                yield client

    async def connect(self, receive_buffer=None):
        """A bare TCP stream."""
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect(("127.0.0.1", self.port))
        except BaseException:
            sock.close()
            raise
        return trio.SocketStream(sock)

    async def stop(self):
        """Ask it to leave; returns the seconds that it took."""
        began = trio.current_time()
        self.dock.stopping.set()
        await self.left.wait()
        return trio.current_time() - began


@asynccontextmanager
async def serving(dock, timing=None, app=None, limit=30, before=None):
    left = trio.Event()
    listeners = await bind(dock.settings)
    if before:
        await before(listeners)

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

    with trio.fail_after(limit):
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(run)
            yield Server(dock, urls[0], left, nursery.cancel_scope.cancel)
            dock.stopping.set()
