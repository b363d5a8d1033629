"""Chats that begin with what was said elsewhere: forks, and imported history."""

from typing import TYPE_CHECKING

from quart import Blueprint

from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Body, received, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock


def blueprint(dock: "Dock") -> Blueprint:
    forks = Blueprint("forks", __name__)

    @forks.post("/api/sessions/<session_id>/fork")
    async def fork(session_id: str) -> Answer:
        title = Body(await received() or b"{}").text("title", 1000)
        return answer(await dock.forks.fork(session_id, title))

    @forks.post("/api/sessions/<session_id>/import-history")
    async def import_history(session_id: str) -> Answer:
        body = Body(await received() or b"{}")
        limit = body.value("limit", int)
        if limit is not None and limit < 1:
            raise refused("limit", "a number of at least 1")
        force = bool(body.value("force", bool))
        return answer(await dock.imports.import_history(session_id, force=force, limit=limit))

    return forks
