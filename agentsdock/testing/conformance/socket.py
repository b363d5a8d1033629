"""A WebSocket client that hides nothing: refusals, close codes, broken ends."""

import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
import wsproto
from attrs import define, field
from wsproto import events
from wsproto.connection import ConnectionState

Json = dict[str, Any]

READ_BYTES = 64 * 1024


class Refused(Exception):
    """The upgrade was answered with another status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the socket was refused with status {status}")
        self.status = status


@define
class Socket:
    """An open socket.  ``close_code`` is set once the server has closed, None for a bare end."""

    _stream: trio.abc.Stream
    _protocol: wsproto.WSConnection
    close_code: int | None = None
    close_reason: str | None = None
    over: bool = False
    _text: list[str] = field(factory=list)

    async def next(self) -> Json | None:
        """The next frame, or None at the end."""
        while not self.over:
            for event in self._protocol.events():
                match event:
                    case events.TextMessage(data=data):
                        self._text.append(data)
                        if event.message_finished:
                            whole, self._text = "".join(self._text), []
                            decoded: Json = json.loads(whole)
                            return decoded
                    case events.Ping():
                        await self._send(event.response())
                    case events.CloseConnection(code=code, reason=reason):
                        self.close_code, self.close_reason = code, reason
                        self.over = True
                        if self._protocol.state is not ConnectionState.CLOSED:
                            await self._send(event.response())
                        return None
            await self._receive()
        return None

    async def say(self, text: str) -> None:
        await self._send(events.TextMessage(data=text))

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            data = b""
        self.over = not data
        if data:
            self._protocol.receive_data(bytes(data))

    async def _send(self, event: events.Event) -> None:
        try:
            await self._stream.send_all(self._protocol.send(event))
        except trio.BrokenResourceError:
            self.over = True


@asynccontextmanager
async def open_socket(
    url: str,
    path: str,
    headers: Mapping[str, str],
    *,
    receive_buffer: int | None = None,
    **query: object,
) -> AsyncIterator[Socket]:
    """Connect to ``path`` of the server at the (http) ``url``.  Raises Refused, OSError.

    ``receive_buffer`` is about how many bytes may come before they are read.
    """
    place = urllib.parse.urlsplit(url)
    secure = place.scheme == "https"
    port = place.port or (443 if secure else 80)
    assert place.hostname is not None
    tcp = await trio.open_tcp_stream(place.hostname, port)
    if receive_buffer is not None:
        tcp.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
    context = ssl.create_default_context()
    stream = (
        trio.SSLStream(tcp, context, server_hostname=place.hostname, https_compatible=True)
        if secure
        else tcp
    )
    async with stream:
        protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        target = f"{place.path.rstrip('/')}{path}?{urllib.parse.urlencode(query)}"
        request = events.Request(host=place.netloc, target=target, extra_headers=sent)
        await stream.send_all(protocol.send(request))
        yield await _accepted(stream, protocol)


async def _accepted(stream: trio.abc.Stream, protocol: wsproto.WSConnection) -> Socket:
    while True:
        for event in protocol.events():
            match event:
                case events.AcceptConnection():
                    return Socket(stream, protocol)
                case events.RejectConnection(status_code=status):
                    raise Refused(status)
        data = await stream.receive_some(READ_BYTES)
        if not data:
            raise OSError("the connection ended before the upgrade")
        protocol.receive_data(bytes(data))
