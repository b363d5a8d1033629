"""Who may call: one shared token, in any of the carriers that clients use.

Without a token (loopback only, see the settings) everything is open.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

EVENTS_PROTOCOL = "agentsdock-events-v1"
_TOKEN_PROTOCOL = b"agentsdock-token."
_TOKEN_HEADERS = (b"x-agentsdock-token", b"x-zenithdock-token")

Headers = Iterable[tuple[bytes, bytes]]


def needs_token(path: str) -> bool:
    """Of the decoded path, as routing sees it.

    What the CLI of a turn may ask has a capability of its own instead.
    """
    if path.startswith("/api/agent/"):
        return False
    return path in ("/api", "/metrics") or path.startswith(("/api/", "/page/"))


def is_authorized(scope: Any, token: bytes) -> bool:
    """Whether any carrier of this request holds the token, compared in constant time."""
    held = any(hmac.compare_digest(offered, token) for offered in _carried(scope))
    return held or _has_cookie(scope, token)


def is_token(offered: str, token: bytes) -> bool:
    return hmac.compare_digest(offered.encode(), token)


def page_cookie(token: bytes) -> tuple[str, str]:
    """Name and value of the page's cookie.

    Both follow from the token, which is not told: the cookie lives as long as the token does, and
    servers of one host (cookies know no ports) do not overwrite each other's.
    """
    made = hmac.digest(token, b"agentsdock page cookie", "sha256").hex()
    return f"agentsdock-{made[:8]}", made[8:]


def _has_cookie(scope: Any, token: bytes) -> bool:
    """Of our own page only.  That an Origin is an allowed one has been checked before."""
    headers = list(scope["headers"])
    if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"):
        host = next((value for key, value in headers if key == b"host"), b"")
        origin = next((value for key, value in headers if key == b"origin"), b"")
        if origin.lower().partition(b"://")[2] != host.lower():
            return False
    name, value = page_cookie(token)
    pattern = rb"(?:^|;)\s*%b=([0-9a-f]+)\s*(?=;|$)" % name.encode()
    found = (re.findall(pattern, held) for key, held in headers if key == b"cookie")
    return any(hmac.compare_digest(one, value.encode()) for group in found for one in group)


def _carried(scope: Any) -> Iterator[bytes]:
    headers: Headers = scope["headers"]
    for name, value in headers:
        if name in _TOKEN_HEADERS:
            yield value
        elif name == b"authorization":
            scheme, _, credentials = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield credentials.strip()
        elif name == b"sec-websocket-protocol" and scope["type"] == "websocket":
            yield from _in_subprotocols(value)
    for parameter in scope["query_string"].split(b"&"):
        name, _, value = parameter.partition(b"=")
        if unquote_to_bytes(name) == b"token":
            yield unquote_to_bytes(value)


def _in_subprotocols(value: bytes) -> Iterator[bytes]:
    """``agentsdock-token.<base64url of the token, unpadded>`` among the offered protocols."""
    for offer in value.split(b","):
        offer = offer.strip()
        if offer.startswith(_TOKEN_PROTOCOL):
            text = offer.removeprefix(_TOKEN_PROTOCOL)
            try:
                yield base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)
            except binascii.Error:
                continue
