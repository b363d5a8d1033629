"""A chat by its landmarks: the index, what a run did on its way, the helpers of a CLI."""

from typing import TYPE_CHECKING

from quart import Blueprint, request

from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import Query, limit_of, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

TRACE_LIMIT = 160
MAX_TRACE_LIMIT = 1000
SUBAGENTS_LIMIT = 64
MAX_SUBAGENTS_LIMIT = 256


def blueprint(dock: "Dock") -> Blueprint:
    timeline = Blueprint("timeline", __name__)
    reading = dock.reading

    @timeline.get("/api/sessions/<session_id>/timeline-index")
    async def index(session_id: str) -> Answer:
        return answer(await reading.index(session_id))

    @timeline.get("/api/sessions/<session_id>/runs/<run_id>/trace")
    async def trace(session_id: str, run_id: str) -> Answer:
        query = Query(request.args)
        anchor = query.integer("anchor_seq", None)
        if anchor == 0:
            raise refused("anchor_seq", "a number of at least 1", "query")
        body = await reading.trace(
            session_id,
            run_id,
            anchor=anchor,
            after=query.integer("after_seq", 0),
            limit=limit_of(query, TRACE_LIMIT, MAX_TRACE_LIMIT),
        )
        return answer(body)

    @timeline.get("/api/sessions/<session_id>/subagents")
    async def subagents(session_id: str) -> Answer:
        limit = limit_of(Query(request.args), SUBAGENTS_LIMIT, MAX_SUBAGENTS_LIMIT)
        return answer(await reading.subagents(session_id, limit))

    return timeline
