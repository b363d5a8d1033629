"""A loopback proxy between a client and a server that breaks connections as networks do.

Plain requests pass.  Of an events socket it counts the events that it hands on, cuts, stalls
or delays it, and keeps what the client was given.
"""

import json
import re
import socket
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field, frozen

from agentsdock.testing.conformance import checker
from agentsdock.testing.conformance.frames import CLOSE, TEXT, FrameSplitter

READ_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
_EXTENSIONS = re.compile(rb"(?i)\r\nsec-websocket-extensions:[^\r]*")
_EVENTS = re.compile(rb"GET ([^ ]*/events[^ ]*) HTTP/1\.1\r\n")


@frozen
class Faults:
    """What is done to each events socket; counts are of whole events handed on.

    ``cut_every`` ends the connection after so many, ``inside`` in the middle of the next frame,
    ``abort`` by a reset instead of an end.  ``delay`` seconds pass before each event.
    ``stall_after`` hands on so many and then nothing, for ``stall_seconds``; the connection stays
    open meanwhile and is cut then.  ``refuse`` closes every new connection at once.
    """

    cut_every: int | None = None
    inside: bool = False
    abort: bool = False
    delay: float = 0.0
    stall_after: int | None = None
    stall_seconds: float = 60.0
    refuse: bool = False


@define
class Passage:
    """One events socket through the proxy."""

    target: str
    seqs: list[int] = field(factory=list)
    """Of the events that were handed on whole."""
    close_code: int | None = None
    """The server's, where it closed."""
    cut: bool = False
    aborted: bool = False

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def after(self) -> int:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.target).query)
        told = query.get("after", ["0"])[0]
        return max(int(told), 0) if re.fullmatch(r"-?\d{1,18}", told) else 0

    def connection(self) -> checker.Connection:
        last = self.seqs[-1] if self.seqs else None
        return checker.Connection(self.after, last, self.aborted, self.close_code)


@define
class _Link:
    """The two ends of a connection, and the events socket that it has become."""

    client: trio.SocketStream
    server: trio.SocketStream
    passage: Passage | None = None


class _Cut(Exception):
    """This connection is to end now."""


class FaultProxy:
    """Made by :func:`open_proxy`.  ``faults`` may be changed at any time, for what comes then."""

    def __init__(self, host: str, port: int, faults: Faults, url: str) -> None:
        self.faults = faults
        self.url = url
        self.passages: list[Passage] = []
        """Every events socket so far, in the order in which they came."""
        self._host = host
        self._port = port
        self._changed = trio.Event()

    def check_cursors(self) -> list[checker.Violation]:
        """Whether the client asked each time for what it did not have yet, in each chat."""
        chats: dict[str, list[checker.Connection]] = {}
        for passage in self.passages:
            chats.setdefault(passage.path, []).append(passage.connection())
        return [broken for chat in chats.values() for broken in checker.check_cursors(chat)]

    async def wait_cuts(self, count: int) -> None:
        """Until so many connections were cut."""
        while sum(passage.cut for passage in self.passages) < count:
            await self._changed.wait()

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection of a client, to its end."""
        if self.faults.refuse:
            return
        try:
            server = await trio.open_tcp_stream(self._host, self._port)
        except OSError:
            return
        link = _Link(client, server)
        async with server:
            try:
                async with trio.open_nursery() as both:
                    both.start_soon(self._requests, link)
                    await self._answers(link)
                    both.cancel_scope.cancel()
            except* (_Cut, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async def _requests(self, link: _Link) -> None:
        """What the client says, to the server.  A connection may serve others before an upgrade."""
        while data := await link.client.receive_some(READ_BYTES):
            if followed := _EVENTS.match(data):
                link.passage = Passage(followed[1].decode("ascii", "replace"))
                self.passages.append(link.passage)
                data = _EXTENSIONS.sub(b"", data)  # a compressed frame could not be read here
            await link.server.send_all(data)
        await link.server.send_eof()

    async def _answers(self, link: _Link) -> None:
        while data := await link.server.receive_some(READ_BYTES):
            passage = link.passage
            if passage is None:
                await link.client.send_all(data)
                continue
            while b"\r\n\r\n" not in data and len(data) < HEAD_BYTES:
                data += await link.server.receive_some(READ_BYTES)
            head, end, rest = data.partition(b"\r\n\r\n")
            await link.client.send_all(head + end)
            if head.startswith(b"HTTP/1.1 101 "):
                await self._frames(link, passage, rest)
                return
            self.passages.remove(passage)
            link.passage = None
            await link.client.send_all(rest)

    async def _frames(self, link: _Link, passage: Passage, data: bytes) -> None:
        splitter = FrameSplitter()
        while True:
            for opcode, frame, payload in splitter.feed(data):
                await self._hand_on(link.client, passage, opcode, frame, payload)
            data = await link.server.receive_some(READ_BYTES)
            if not data:
                return

    async def _hand_on(
        self, client: trio.SocketStream, passage: Passage, opcode: int, frame: bytes, payload: bytes
    ) -> None:
        faults = self.faults
        seq = _seq(payload) if opcode == TEXT else None
        count = len(passage.seqs)
        if seq is not None:
            if faults.delay:
                await trio.sleep(faults.delay)
            if faults.stall_after is not None and count >= faults.stall_after:
                await trio.sleep(faults.stall_seconds)
                self._cut(client, passage)
            if faults.inside and faults.cut_every is not None and count >= faults.cut_every:
                await client.send_all(frame[: len(frame) // 2])
                self._cut(client, passage)
        await client.send_all(frame)
        if opcode == CLOSE:
            passage.close_code = int.from_bytes(payload[:2], "big") if payload else None
        if seq is not None:
            passage.seqs.append(seq)
            if not faults.inside and faults.cut_every is not None and count + 1 >= faults.cut_every:
                self._cut(client, passage)

    def _cut(self, client: trio.SocketStream, passage: Passage) -> None:
        passage.cut = True
        passage.aborted = self.faults.abort
        self._changed.set()
        self._changed = trio.Event()
        if self.faults.abort:
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.socket.close()
        raise _Cut


@asynccontextmanager
async def open_proxy(
    url: str, faults: Faults | None = None, *, port: int = 0
) -> AsyncIterator[FaultProxy]:
    """A proxy to the (http) server at ``url``, on the loopback.  Port 0 is any free one."""
    place = urllib.parse.urlsplit(url)
    assert place.hostname is not None
    listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    bound = listeners[0].socket.getsockname()[1]
    proxy = FaultProxy(
        place.hostname, place.port or 80, faults or Faults(), f"http://127.0.0.1:{bound}"
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, proxy.serve, listeners)
        yield proxy
        nursery.cancel_scope.cancel()


def _seq(payload: bytes) -> int | None:
    """Of an event; None for a control frame."""
    try:
        frame = json.loads(payload)
    except ValueError:
        return None
    seq = frame.get("seq") if isinstance(frame, dict) else None
    is_control = isinstance(frame, dict) and frame.get("type") == "caught_up" and "id" not in frame
    return seq if type(seq) is int and not is_control else None
