"""One file out of a multipart body, piece by piece as the client sends it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import trio
from attrs import frozen
from quart import request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from agentsdock.model.errors import BadRequest, DockError, Unprocessable, WrongMediaType

FIELD = "file"
MAX_HELD_BYTES = 1024 * 1024
"""What may wait to be understood: the heads of the form, and the piece in hand."""
STALL_SECONDS = 60.0
"""What a client may be behind the slowest pace that is borne."""
SLOWEST_BYTES = 1024
"""Of one second."""
DISCARD_SECONDS = 5.0
DISCARD_BYTES = 64 * 1024 * 1024
EXTENSION = "agentsdock.receive"
"""Where the gate leaves the way to the body, in the scope's extensions."""

Receive = Callable[[], Awaitable[Any]]


class UploadStalled(DockError):
    status = 408


class ClientLeft(Exception):
    """The client went away before its file was whole."""


@frozen
class Part:
    """The file of a form: its name and type as they were sent, and its bytes."""

    filename: str | None
    content_type: str | None
    data: AsyncGenerator[bytes, None]


class Form:
    """A multipart body with exactly one part, a file named ``file``.

    Nothing but the piece in hand is kept.  Raises Unprocessable and UploadStalled.
    """

    def __init__(self, receive: Receive, boundary: bytes) -> None:
        self._receive = receive
        self._decoder = MultipartDecoder(boundary, MAX_HELD_BYTES, max_parts=1)
        self._done = False
        self._patience = STALL_SECONDS

    async def part(self) -> Part:
        event = await self._next()
        while not isinstance(event, File | Field | Epilogue):
            event = await self._next()
        if not isinstance(event, File) or event.name != FIELD:
            raise _refused(f"the form must hold one file, named {FIELD!r}")
        return Part(event.filename, _type_of(event.headers), self._data())

    async def _data(self) -> AsyncGenerator[bytes, None]:
        while True:
            event = await self._next()
            if not isinstance(event, Data):
                raise _refused("the file does not end")
            yield event.data
            if not event.more_data:
                break
        if not isinstance(await self._next(), Epilogue):
            raise _refused("the form holds more than one file")

    async def discard(self) -> None:
        """Take what a refused client still sends, for a moment, so that it gets to read why."""
        left = DISCARD_BYTES
        with trio.move_on_after(DISCARD_SECONDS):
            while left > 0 and not self._done:
                message = await self._receive()
                self._done = not message.get("more_body")
                left -= len(message.get("body", b""))

    async def _next(self) -> Any:
        try:
            while isinstance(event := self._decoder.next_event(), NeedData):
                if self._done:
                    raise _refused("the form ends too early")
                await self._feed()
        except RequestEntityTooLarge:
            raise _refused("the form has more than one part, or too much around it") from None
        except ValueError as error:
            raise _refused(f"unreadable form: {error}") from error
        return event

    async def _feed(self) -> None:
        data, more = await self._more()
        self._decoder.receive_data(data)
        if not more:
            self._done = True
            self._decoder.receive_data(None)

    async def _more(self) -> tuple[bytes, bool]:
        """The next piece.  Only what is spent waiting for the client counts."""
        began = trio.current_time()
        with trio.move_on_after(self._patience):
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientLeft
            data = message.get("body", b"")
            left = self._patience - (trio.current_time() - began) + len(data) / SLOWEST_BYTES
            self._patience = min(left, STALL_SECONDS)
            return data, bool(message.get("more_body"))
        raise UploadStalled(
            f"the file came {STALL_SECONDS:g} seconds slower than {SLOWEST_BYTES} bytes a second"
        )


def current_form() -> Form:
    """The form of the current request, which the gate has let through unread."""
    extensions: dict[str, Any] = dict(request.scope.get("extensions") or {})
    if EXTENSION not in extensions:
        raise WrongMediaType("a file is sent as multipart/form-data")
    receive: Receive = extensions[EXTENSION]
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get("boundary", "")
    if not boundary or len(boundary) > 200 or not boundary.isascii():
        raise BadRequest("the multipart form names no boundary")
    return Form(receive, boundary.encode("ascii"))


def _type_of(headers: Headers) -> str | None:
    return headers.get("content-type")


def _refused(message: str) -> Unprocessable:
    return Unprocessable(message, loc=("body", FIELD))
