"""Waiting messages: edit, delete or move one, or run it now."""

from typing import TYPE_CHECKING, Any

from quart import Blueprint

from agentsdock.model.errors import BadRequest
from agentsdock.model.requests import EditQueued
from agentsdock.web.errors import MAX_BODY_BYTES, Answer, answer
from agentsdock.web.parsing import Body, received
from agentsdock.web.turns import MAX_CAPABILITIES, MAX_FILES, MAX_REFERENCES

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

_ROW = "/api/sessions/<session_id>/queue/<queued_id>"


def read_edit(body: Body) -> EditQueued:
    """A field that is null is as one that was not sent."""

    def sent(name: str) -> bool:
        return body.value(name, object) is not None

    references = body.items("chat_references", list[dict[str, Any]], MAX_REFERENCES)
    files = tuple(dict.fromkeys(body.texts("file_ids", MAX_FILES, 256)))
    capabilities = body.texts("client_capabilities", MAX_CAPABILITIES, 240)
    return EditQueued(
        prompt=body.text("prompt", MAX_BODY_BYTES),
        file_ids=files if sent("file_ids") else None,
        client_capabilities=capabilities if sent("client_capabilities") else None,
        chat_references=tuple(references) if sent("chat_references") else None,
    )


def read_direction(body: Body) -> str:
    direction = body.value("direction", str)
    if direction not in ("up", "down"):
        raise BadRequest("direction must be up or down")
    return direction


def blueprint(dock: "Dock") -> Blueprint:
    queue = Blueprint("queue", __name__)

    @queue.patch(_ROW)
    async def edit(session_id: str, queued_id: str) -> Answer:
        request = read_edit(Body(await received()))
        return answer(await dock.queue.edit(session_id, queued_id, request))

    @queue.delete(_ROW)
    async def delete(session_id: str, queued_id: str) -> Answer:
        return answer(await dock.queue.delete(session_id, queued_id))

    @queue.post(f"{_ROW}/move")
    async def move(session_id: str, queued_id: str) -> Answer:
        direction = read_direction(Body(await received()))
        return answer(await dock.queue.move(session_id, queued_id, direction))

    @queue.post(f"{_ROW}/run-now")
    async def run_now(session_id: str, queued_id: str) -> Answer:
        body = Body(await received() or b"{}")
        accepts = bool(body.value("accept_deferred_queue_response", bool))
        return answer(await dock.queue.run_now(session_id, queued_id, accept_deferred=accepts))

    return queue
