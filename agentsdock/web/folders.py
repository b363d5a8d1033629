"""Folders of this machine, for who chooses one for a new chat."""

from typing import TYPE_CHECKING

from quart import Blueprint, request

from agentsdock.chats import folders
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Query, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

DEFAULT_RESULTS = 24
PATH_CHARS = 4096


def blueprint(dock: "Dock") -> Blueprint:
    area = Blueprint("folders", __name__)

    @area.get("/api/working-directories/complete")
    async def complete() -> Answer:
        path = request.args.get("path", "")
        if len(path) > PATH_CHARS:
            raise refused("path", f"at most {PATH_CHARS} characters, not {len(path)}", "query")
        limit = Query(request.args).integer("limit", DEFAULT_RESULTS)
        bounded = min(max(limit, 1), folders.MOST_RESULTS)
        return answer(await folders.complete(path, bounded, dock.settings.cwd))

    return area
