"""Following a chat's events over a WebSocket that may break at any moment."""

import json
import random
from typing import Any

import httpcore
import httpx
import httpx_ws
import trio
import wsproto

from agentsdock.client.errors import ApiError, refusal, unreachable

Json = dict[str, Any]

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
READ_BYTES = 64 * 1024
CHAT_GONE = (1000, 4404)
BROKEN = (
    httpx_ws.HTTPXWSException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    wsproto.utilities.ProtocolError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


class ChatGone(Exception):
    """The server closed the stream for good: there is no such chat any more."""


class EventStream:
    """Events as they come; raises the ApiError that ended them, if one did."""

    def __init__(self, channel: "trio.MemoryReceiveChannel[Json | ApiError]") -> None:
        self._channel = channel

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Json:
        try:
            event = await self._channel.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(event, ApiError):
            raise event
        return event


async def pump(
    http: httpx.AsyncClient,
    url: str,
    after: int,
    visible: bool,
    patience_seconds: float,
    channel: "trio.MemorySendChannel[Json | ApiError]",
) -> None:
    """Connect, hand on, connect again: until the chat is gone or an error is final."""
    follower = _Follower(http, url, after, visible, channel)
    pause = FIRST_PAUSE_SECONDS
    gives_up_at = trio.current_time() + patience_seconds
    async with channel:
        while True:
            seen = follower.cursor
            try:
                await follower.connection()
            except ChatGone:
                return
            except ApiError as error:
                if error.status is not None or trio.current_time() >= gives_up_at:
                    await channel.send(error)
                    return
            if follower.cursor > seen or follower.connected:
                pause = FIRST_PAUSE_SECONDS
                gives_up_at = trio.current_time() + patience_seconds
            await trio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class _Follower:
    """The cursor of one reader across its connections."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        after: int,
        visible: bool,
        channel: "trio.MemorySendChannel[Json | ApiError]",
    ) -> None:
        self.cursor = after
        self.connected = False
        self._http = http
        self._url = url
        self._visible = "true" if visible else "false"
        self._channel = channel

    async def connection(self) -> None:
        """One connection from opening to its end, which is told by an exception or none."""
        self.connected = False
        params = {"after": str(self.cursor), "visible": self._visible, "sync": "1"}
        ended: Exception | None = None
        try:
            async with httpx_ws.aconnect_ws(
                self._url,
                self._http,
                max_message_size_bytes=READ_BYTES,
                session_class=httpx_ws.AsyncWebSocketSession,
                params=params,
            ) as socket:
                ended = await self._read(socket)
        except httpx_ws.WebSocketUpgradeError as error:
            if error.response.status_code < 500:
                raise _refused(error.response.status_code) from error
        except httpx.TransportError as error:
            raise unreachable(self._url, error) from error
        if ended is not None:
            raise ended

    async def _read(self, socket: httpx_ws.AsyncWebSocketSession) -> Exception | None:
        """Returns what is final instead of raising: the socket's own nursery would wrap it."""
        while True:
            try:
                frame = json.loads(await socket.receive_text())
            except httpx_ws.WebSocketDisconnect as closed:
                return ChatGone() if closed.code in CHAT_GONE else None
            except httpx_ws.HTTPXWSException:
                return None
            except ValueError as error:
                return ApiError(f"a frame is not JSON: {error}", status=502)
            self.connected = True
            if frame.get("type") == "sync" and frame.get("verdict") == "gap":
                return ApiError(
                    f"events after {self.cursor} are no longer there; the next is "
                    f"{frame.get('from')}.",
                    status=410,
                    code="gap",
                    action="Load the chat anew.",
                )
            if frame.get("seq", 0) > self.cursor:
                self.cursor = frame["seq"]
                await self._channel.send(frame)


def _refused(status: int) -> ApiError:
    """The refusal's body is gone with the connection, so the status has to say it."""
    if status == 404:
        return ApiError("there is no such chat", status=404)
    return refusal(status, b"")
