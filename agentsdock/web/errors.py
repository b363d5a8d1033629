"""The error envelope: each refusal is ``{"detail": ...}`` with a status that clients act on."""

from typing import Any

import msgspec
from quart import Quart, has_request_context, request, websocket
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import WebsocketMismatch

from agentsdock.logs import get_logger, where
from agentsdock.model.errors import BadRequest, DockError, NotFound, TooLarge, Unavailable
from agentsdock.store.protocol import (
    RunExists,
    SessionGone,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
)

HEADERS = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
MAX_BODY_BYTES = 16 * 1024 * 1024

Answer = tuple[bytes, int, dict[str, str]]

log = get_logger()


def answer(body: Any, status: int = 200) -> Answer:
    """A JSON answer; bytes are taken as finished JSON."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return encoded, status, HEADERS


def envelope(error: DockError) -> Answer:
    return answer({"detail": error.detail()}, error.status)


def body_too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")


def install(app: Quart) -> None:
    """Make every way out of a handler an envelope."""

    @app.errorhandler(DockError)
    async def refused(error: DockError) -> Answer:
        return envelope(error)

    @app.errorhandler(StoreError)
    async def not_stored(error: StoreError) -> Answer:
        if isinstance(error, SessionGone):
            return envelope(NotFound("session not found"))
        if isinstance(error, StoreFull):
            return envelope(
                Unavailable(
                    "There is no space left to store this.",
                    code="storage_full",
                    action="Free some space in the state directory's file system.",
                )
            )
        if isinstance(error, StoreBusy | StoreClosed | RunExists):
            return envelope(Unavailable("This cannot be stored right now; try again in a moment."))
        return await failed(error)

    @app.errorhandler(HTTPException)
    async def http_error(error: HTTPException) -> Answer:
        return answer({"detail": error.name}, error.code or 500)

    @app.errorhandler(MethodNotAllowed)
    async def wrong_method(error: MethodNotAllowed) -> Answer:
        body, status, headers = answer({"detail": error.name}, 405)
        return body, status, {**headers, "allow": ", ".join(sorted(error.valid_methods or ()))}

    @app.errorhandler(WebsocketMismatch)
    async def no_socket(error: WebsocketMismatch) -> Answer:
        return envelope(BadRequest("this path is that of a WebSocket"))

    @app.errorhandler(Exception)
    async def failed(error: Exception) -> Answer:
        at = request if has_request_context() else websocket
        log.error("handler failed", method=at.method, path=at.path, error=where(error))
        return answer({"detail": "internal server error"}, 500)
