"""The API described by itself: for programs, and for people."""

from typing import TYPE_CHECKING

from quart import Blueprint

from agentsdock.web.errors import Answer, answer

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

_PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def blueprint(dock: "Dock") -> Blueprint:
    reference = Blueprint("reference", __name__)
    version = dock.identity.version

    @reference.get("/openapi.json")
    async def document() -> Answer:
        from agentsdock.web.openapi.document import make_document

        return answer(make_document(version))

    @reference.get("/docs")
    async def page() -> tuple[str, int, dict[str, str]]:
        from agentsdock.web.openapi.document import make_document
        from agentsdock.web.openapi.page import render

        return render(make_document(version)), 200, _PAGE_HEADERS

    return reference
