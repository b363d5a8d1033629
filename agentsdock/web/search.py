"""Search in one chat and in all."""

from typing import TYPE_CHECKING

from quart import Blueprint, request

from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Query, limit_of, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

LIMIT = 40
MAX_LIMIT = 100
MIN_CHARS = 2
MAX_CHARS = 500


def read_search(query: Query) -> tuple[str, int]:
    words = query.text("q")
    if not MIN_CHARS <= len(words) <= MAX_CHARS:
        raise refused("q", f"{MIN_CHARS} to {MAX_CHARS} characters", "query")
    return words, limit_of(query, LIMIT, MAX_LIMIT)


def blueprint(dock: "Dock") -> Blueprint:
    search = Blueprint("search", __name__)
    searching = dock.searching

    @search.get("/api/sessions/<session_id>/search")
    async def in_chat(session_id: str) -> Answer:
        return answer(await searching.chat(session_id, *read_search(Query(request.args))))

    @search.get("/api/search")
    async def everywhere() -> Answer:
        return answer(await searching.everywhere(*read_search(Query(request.args))))

    return search
