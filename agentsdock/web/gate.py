"""The gate in front of every route: what is refused on sight of a request's head.

It keeps foreign web pages out of a server on loopback: a rebound name fails the ``Host``
check, a page that posts or opens a socket fails on ``Origin``, ``Sec-Fetch-Site`` or the
content type.  Native clients send none of these and are not affected.  A refusal is sent
before any of the body is read.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import frozen

from agentsdock.config import Settings
from agentsdock.model.errors import (
    BadRequest,
    DockError,
    Forbidden,
    NotFound,
    TooLarge,
    Unauthorized,
    WrongMediaType,
)
from agentsdock.web.auth import is_authorized, needs_token
from agentsdock.web.errors import MAX_BODY_BYTES, body_too_large, envelope
from agentsdock.web.uploads import EXTENSION, MAX_HELD_BYTES

BODY_SECONDS = 60.0
"""How long a client may take to send a body."""
LINGER_SECONDS = 1.0
"""How long a refused client may go on sending, so that it gets to read its answer."""

_UPLOAD = re.compile(r"/api/sessions/[^/]+/files")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@frozen
class Policy:
    """Who may knock, and with how much.  Names and origins are lower case."""

    token: bytes | None
    hosts: frozenset[str]
    origins: frozenset[str]
    max_upload_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        return cls(
            settings.token.encode() if settings.token else None,
            frozenset(name.lower() for name in ("localhost", *settings.allowed_hosts)),
            frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins),
            settings.max_upload_bytes,
        )


class _BodyTooSlow(DockError):
    status = 408


class Gate:
    """An ASGI application in front of another, which gets each body whole and within bounds."""

    def __init__(self, app: Callable[[Any, Receive, Send], Awaitable[None]], policy: Policy):
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            check(scope, self._policy)
            if _is_upload(scope):
                receive = _with_body_aside(scope, receive)
            elif scope["type"] == "http":
                receive = await _with_body_read(receive)
        except DockError as error:
            await _refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)


def check(scope: Any, policy: Policy) -> None:
    """Raises the DockError that the request's head earns, in the order of this list."""
    if not scope["path"].startswith("/"):
        raise BadRequest("the request target must be a path")
    if scope["path"].startswith("//"):
        # Routing would drop the extra slashes, and the token's check would not see it.
        raise NotFound("Not Found")
    host = _single(scope, b"host")
    if host is None or not _is_known_host(host, policy):
        raise Forbidden(
            "This name is not one of this server's. Use localhost or an IP address, or list the "
            "name in AGENTSDOCK_ALLOWED_HOSTS."
        )
    _check_page(scope, host, policy)
    if policy.token and needs_token(scope["path"]) and not is_authorized(scope, policy.token):
        raise Unauthorized("unauthorized")
    if scope["type"] == "http":
        _check_body(scope, policy)


def _values(scope: Any, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key == name]


def _single(scope: Any, name: bytes) -> str | None:
    values = _values(scope, name)
    return values[0].lower() if len(values) == 1 else None


def _is_known_host(host: str, policy: Policy) -> bool:
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return bool(bracket) and _is_port(port) and _is_ip(address, ipaddress.IPv6Address)
    name, colon, digits = host.partition(":")
    return _is_port(colon + digits) and (
        name in policy.hosts or _is_ip(name, ipaddress.IPv4Address)
    )


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def _is_ip(text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return "%" not in text


def _check_page(scope: Any, host: str, policy: Policy) -> None:
    """A browser says which page asks; pages of others are refused."""
    origins = _values(scope, b"origin")
    if origins:
        origin = origins[0].lower()
        own = f"http://{host}"
        if len(origins) > 1 or (origin != own and origin not in policy.origins):
            raise Forbidden("requests from pages of other origins are refused")
        return
    if set(_values(scope, b"sec-fetch-site")) <= {"same-origin", "none"}:
        return
    navigates = _values(scope, b"sec-fetch-mode") == ["navigate"]
    if not navigates or needs_token(scope["path"]) or scope.get("method") != "GET":
        raise Forbidden("requests from pages of other sites are refused")


def _is_upload(scope: Any) -> bool:
    """The one request whose body is no JSON and may be of any size."""
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and _UPLOAD.fullmatch(scope["path"]) is not None
        and [kind.partition(";")[0].strip().lower() for kind in _values(scope, b"content-type")]
        == ["multipart/form-data"]
    )


def _check_body(scope: Any, policy: Policy) -> None:
    lengths = _values(scope, b"content-length")
    if _is_upload(scope):
        if lengths and int(lengths[0]) > policy.max_upload_bytes + MAX_HELD_BYTES:
            raise TooLarge(f"a file may have {policy.max_upload_bytes} bytes at most")
        return
    types = _values(scope, b"content-type")
    has_body = bool(_values(scope, b"transfer-encoding")) or lengths not in ([], ["0"])
    is_json = [kind.partition(";")[0].strip().lower() for kind in types] == ["application/json"]
    if scope["method"] not in _SAFE_METHODS and not is_json and (has_body or types):
        raise WrongMediaType("the body must be JSON, sent as application/json")
    if lengths and int(lengths[0]) > MAX_BODY_BYTES:
        raise body_too_large()


def _with_body_aside(scope: Any, receive: Receive) -> Receive:
    """A ``receive`` without the body, which the handler takes piece by piece by itself.

    Quart would read ahead of it without bound.
    """
    scope.setdefault("extensions", {})[EXTENSION] = receive
    waiting = [{"type": "http.request", "body": b"", "more_body": False}]

    async def empty() -> Any:
        if not waiting:
            await trio.sleep_forever()
        return waiting.pop()

    return empty


async def _with_body_read(receive: Receive) -> Receive:
    """A ``receive`` that gives the whole body first.  Raises TooLarge and _BodyTooSlow."""
    waiting = [await _whole_body(receive)]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay


async def _whole_body(receive: Receive) -> Any:
    """As one message; or the client's farewell, if that comes first."""
    body = bytearray()
    with trio.move_on_after(BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise body_too_large()
            if not message.get("more_body"):
                return {**message, "body": bytes(body)}
    raise _BodyTooSlow(f"the body did not arrive within {BODY_SECONDS:g} seconds")


async def _refuse(error: DockError, scope: Any, receive: Receive, send: Send) -> None:
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    body, status, headers = envelope(error)
    named = {**headers, "content-length": str(len(body)), "connection": "close"}
    if status == 401:
        named["www-authenticate"] = "Bearer"
    start = {
        "type": f"{kind}.start",
        "status": status,
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    await send(start)
    await send({"type": f"{kind}.body", "body": body, "more_body": True})
    with trio.move_on_after(LINGER_SECONDS):
        while scope["type"] == "http" and (await receive()).get("more_body"):
            pass
    await send({"type": f"{kind}.body", "body": b"", "more_body": False})
