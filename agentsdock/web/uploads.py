"""One file out of a multipart body, piece by piece as the client sends it."""

from collections.abc import AsyncIterator, Awaitable, Callable
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
DISCARD_SECONDS = 5.0
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
    data: AsyncIterator[bytes]


class Form:
    """A multipart body with exactly one part, a file named ``file``.

    Nothing but the piece in hand is kept.  Raises Unprocessable and UploadStalled.
    """

    def __init__(self, receive: Receive, boundary: bytes) -> None:
        self._receive = receive
        self._decoder = MultipartDecoder(boundary, MAX_HELD_BYTES, max_parts=1)
        self._done = False

    async def part(self) -> Part:
        event = await self._next()
        while not isinstance(event, File | Field | Epilogue):
            event = await self._next()
        if not isinstance(event, File) or event.name != FIELD:
            raise _refused(f"the form must hold one file, named {FIELD!r}")
        return Part(event.filename, _type_of(event.headers), self._data())

    async def _data(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next()
            if not isinstance(event, Data):
                raise _refused("the file does not end")
            yield event.data
            if not event.more_data:
                break
        if not isinstance(await self._next(), Epilogue):
            raise _refused("the form holds more than one file")

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
        data, more = await _more(self._receive)
        self._decoder.receive_data(data)
        if not more:
            self._done = True
            self._decoder.receive_data(None)


async def _more(receive: Receive) -> tuple[bytes, bool]:
    with trio.move_on_after(STALL_SECONDS):
        message = await receive()
        if message["type"] != "http.request":
            raise ClientLeft
        return message.get("body", b""), bool(message.get("more_body"))
    raise UploadStalled(f"nothing of the file arrived for {STALL_SECONDS:g} seconds")


async def discard(receive: Receive) -> None:
    """Take what a refused client still sends, for a moment, so that it gets to read why."""
    with trio.move_on_after(DISCARD_SECONDS):
        while (await receive()).get("more_body"):
            pass


def current_form() -> tuple[Form, Receive]:
    """The form of the current request, which the gate has let through unread."""
    extensions: dict[str, Any] = dict(request.scope.get("extensions") or {})
    if EXTENSION not in extensions:
        raise WrongMediaType("a file is sent as multipart/form-data")
    receive: Receive = extensions[EXTENSION]
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get("boundary", "")
    if not boundary or len(boundary) > 200 or not boundary.isascii():
        raise BadRequest("the multipart form names no boundary")
    return Form(receive, boundary.encode("ascii")), receive


def _type_of(headers: Headers) -> str | None:
    return headers.get("content-type")


def _refused(message: str) -> Unprocessable:
    return Unprocessable(message, loc=("body", FIELD))
