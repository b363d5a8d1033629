"""The patch of what a run changed."""

from typing import TYPE_CHECKING

from quart import Blueprint

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

HEADERS = {
    "content-type": "text/x-diff; charset=utf-8",
    "content-disposition": "inline",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


def blueprint(dock: "Dock") -> Blueprint:
    diffs = Blueprint("diffs", __name__)

    @diffs.get("/api/sessions/<session_id>/diffs/<run_id>")
    async def patch(session_id: str, run_id: str) -> tuple[bytes, int, dict[str, str]]:
        return await dock.diffs.patch(session_id, run_id), 200, HEADERS

    return diffs
