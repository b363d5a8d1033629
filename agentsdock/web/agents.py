"""What the CLI of a running turn may ask: only from this machine, only with its own capability."""

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from quart import Blueprint, request

from agentsdock.chats.publishing import Entry, Publication
from agentsdock.model.errors import Forbidden
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Body, received, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

CAPABILITY_HEADERS = ("X-AgentsDock-Provider-Capability", "X-AgentsDock-Cross-Chat-Capability")
MAX_FILES = 64
MAX_PATH_CHARS = 4096
MAX_TITLE_CHARS = 1000
MAX_TEXT_CHARS = 12_000
_PUBLICATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def read_publication(body: Body) -> Publication:
    publication_id = body.text("publication_id", 128)
    if publication_id is None or not _PUBLICATION_ID.fullmatch(publication_id):
        raise refused("publication_id", "1 to 128 letters, digits and . _ : -")
    items = body.items("files", list[str | dict[str, Any]], MAX_FILES)
    entries = tuple(_entry(item) for item in items)
    if not entries:
        raise refused("files", "at least one file")
    if len({entry.path for entry in entries}) != len(entries):
        raise refused("files", "each path once")
    return Publication(publication_id, entries)


def _entry(item: str | dict[str, Any]) -> Entry:
    fields = {"path": item} if isinstance(item, str) else item
    if set(fields) - {"path", "title", "text"}:
        raise refused("files", "only path, title and text")
    limits = {"path": MAX_PATH_CHARS, "title": MAX_TITLE_CHARS, "text": MAX_TEXT_CHARS}
    for name, value in fields.items():
        if name != "path" and value is None:
            continue
        if not isinstance(value, str) or len(value) > limits[name] or "\0" in value:
            raise refused("files", f"{name}: a text of at most {limits[name]} characters")
    path = fields.get("path")
    if not path or not path.startswith("/"):
        raise refused("files", "absolute paths")
    return Entry(path, fields.get("title"), fields.get("text"))


def require_loopback() -> None:
    """Raises Forbidden for a peer on another machine, whatever it says of itself."""
    client = request.scope.get("client") or ("",)
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        raise Forbidden("only programs of this machine may ask this") from None
    mapped = getattr(address, "ipv4_mapped", None)
    if not (mapped or address).is_loopback:
        raise Forbidden("only programs of this machine may ask this")


def blueprint(dock: "Dock") -> Blueprint:
    agents = Blueprint("agents", __name__)

    @agents.post("/api/agent/sessions/<session_id>/artifacts")
    async def publish(session_id: str) -> Answer:
        require_loopback()
        given = (request.headers.get(name) for name in CAPABILITY_HEADERS)
        holder = dock.publishing.holder(session_id, next(filter(None, given), None))
        publication = read_publication(Body(await received()))
        return answer(await dock.publishing.publish(holder, publication))

    return agents
