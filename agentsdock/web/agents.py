"""What the CLI of a running turn may ask: only from this machine, only with its own capability."""

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from quart import Blueprint, request

from agentsdock.chats.entries import MAX_FILES, read_entries
from agentsdock.chats.publishing import Publication
from agentsdock.model.errors import Forbidden
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Body, received, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

CAPABILITY_HEADERS = ("X-AgentsDock-Provider-Capability", "X-AgentsDock-Cross-Chat-Capability")
_PUBLICATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def read_publication(body: Body) -> Publication:
    publication_id = body.text("publication_id", 128)
    if publication_id is None or not _PUBLICATION_ID.fullmatch(publication_id):
        raise refused("publication_id", "1 to 128 letters, digits and . _ : -")
    items = body.items("files", list[str | dict[str, Any]], MAX_FILES)
    return Publication(publication_id, read_entries(items))


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
