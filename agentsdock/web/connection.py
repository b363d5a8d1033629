"""One TCP connection: hypercorn's HTTP/1 protocol over reads and writes of our own.

Every write is bounded by the time in which the client takes nothing, and can be cancelled; a
client that does not read can therefore delay nobody, the exit least of all.  Finished
WebSocket frames go past the protocol, under the same lock as its own.

HTTP/2 is off and compression of WebSocket messages is not offered.
"""

import h11
import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from agentsdock.web import frames

READ_BYTES = 64 * 1024
MAX_UNANSWERED_PINGS = 2


class Gone(Exception):
    """Nothing more can be written: the client left, or a close frame went out."""


class Slow(Exception):
    """The client took nothing for too long; it has its farewell, or the connection was cut."""


@frozen
class Timing:
    """How long a connection may take for each thing, in seconds.

    A client that takes nothing is noticed after ``stall``, has ``farewell`` to read again and
    learn why it was closed, and ``close`` to answer a close frame.  One that is silent is
    pinged each ``ping`` and given up at the third in a row.
    """

    keep_alive: float = 15.0
    stall: float = 10.0
    farewell: float = 20.0
    ping: float = 20.0
    close: float = 1.0
    drain: float = 1.2


class _Http1(H11Protocol):
    async def _check_protocol(self, event: h11.Request) -> None:
        """An offer to switch to HTTP/2 is ignored; the answer is plain HTTP/1."""

    async def _create_stream(self, request: h11.Request) -> None:
        headers = [item for item in request.headers if item[0] != b"sec-websocket-extensions"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                headers=headers,
                http_version=request.http_version,
            )
        )


class Connection:
    """Handlers find it in the ASGI scope, as ``state["connection"]``.  Who accepted the socket
    closes it in the end."""

    def __init__(
        self,
        sock: trio.socket.SocketType,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        timing: Timing,
    ) -> None:
        self._sock = sock
        self._app = app
        self._config = config
        self._context = context
        self._timing = timing
        self._writing = trio.Lock()
        self._waiting = trio.CancelScope()
        self._deadline = trio.current_time() + timing.keep_alive
        self._idle = True
        self._upgraded = False
        self._closing = False

    async def run(self) -> None:
        """Serve until either side closes.  Nothing of the connection outlives this call."""
        try:
            client = parse_socket_addr(self._sock.family, self._sock.getpeername())
            server = parse_socket_addr(self._sock.family, self._sock.getsockname())
            with trio.CancelScope() as life:
                async with TaskGroup() as tasks:
                    self._protocol = _Http1(
                        self._app,
                        self._config,
                        self._context,
                        tasks,
                        ConnectionState({"connection": self}),
                        False,
                        client,
                        server,
                        self._deliver,
                    )
                    await self._read()
                    life.deadline = trio.current_time() + self._timing.close
                    await self._protocol.handle(Closed())
        except OSError:
            pass  # The client had left before we came to it.

    def stop_when_idle(self) -> None:
        """Close at once if no request is in work (one that is ends the connection itself)."""
        if self._idle:
            self._expect_within(0)

    def abort(self) -> None:
        """Close the socket without a word.  Wakes whoever reads or writes."""
        self._sock.close()

    async def send_frames(self, data: bytes, farewell: bytes) -> None:
        """Write finished frames.

        Once the client has taken nothing for the stall time, the frame that is half written is
        finished and ``farewell``, a close frame, follows, should it read again in time.

        Raises Slow (nothing may follow) and Gone.
        """
        async with self._writing:
            if self._closing:
                raise Gone
            rest = await self._push(data, self._timing.stall)
            if not rest:
                return
            self._closing = True
            with trio.move_on_after(self._timing.farewell):
                await self._push(bytes(rest) + farewell, float("inf"))
            self._expect_within(self._timing.close)
            raise Slow

    async def _read(self) -> None:
        unanswered = 0
        while True:
            if self._upgraded and not self._closing:
                self._expect_within(self._timing.ping)
            with trio.CancelScope(deadline=self._deadline) as self._waiting:
                data = await self._receive()
            if not self._waiting.cancelled_caught:
                unanswered = 0
                await self._protocol.handle(RawData(data))
                if not data:
                    return
            elif self._upgraded and not self._closing and unanswered < MAX_UNANSWERED_PINGS:
                unanswered += 1
                await self._deliver(RawData(frames.PING))
            else:
                return

    async def _receive(self) -> bytes:
        try:
            return await self._sock.recv(READ_BYTES)
        except (OSError, trio.ClosedResourceError):
            return b""

    def _expect_within(self, seconds: float) -> None:
        """Something must arrive by then; this also moves the deadline of a read in progress."""
        self._deadline = trio.current_time() + seconds
        self._waiting.deadline = self._deadline

    async def _deliver(self, event: Event) -> None:
        """What the protocol wants: bytes to the client, an end, or another state of idleness.

        The latter two take no checkpoint, at which they could be cut: quart-trio cancels the
        request's task as soon as it hears that its answer is complete, and the protocol tells
        it so before it ends the connection or restarts the idle timer.
        """
        if isinstance(event, RawData):
            try:
                await self._write(event.data)
            except Gone:
                self.abort()
                await self._protocol.handle(Closed())
        elif isinstance(event, Closed):
            self.abort()
            await self._protocol.handle(Closed())
        elif isinstance(event, Updated):
            self._idle = event.idle
            self._expect_within(self._timing.keep_alive if event.idle else float("inf"))

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if self._closing:
                return
            if not self._upgraded:
                self._upgraded = data.startswith(b"HTTP/1.1 101 ")
                if self._upgraded:
                    self._expect_within(self._timing.ping)
            elif frames.is_close(data):
                self._closing = True
                self._expect_within(self._timing.close)
            if await self._push(data, self._timing.stall):
                raise Gone

    async def _push(self, data: bytes, patience: float) -> memoryview:
        """Send, and return what is left when the client has taken nothing for ``patience``.

        A cancellation that leaves a part unsent cuts the connection: what would follow could
        not be understood.
        """
        rest = memoryview(data)
        try:
            while rest:
                with trio.move_on_after(patience) as waiting:
                    rest = rest[await self._sock.send(rest) :]
                if waiting.cancelled_caught:
                    break
        except (OSError, trio.ClosedResourceError) as error:
            raise Gone from error
        except trio.Cancelled:
            if len(rest) < len(data):
                self.abort()
            raise
        return rest
