"""Turns: post one, stop the running one, give it more time."""

import hashlib
import re
from typing import TYPE_CHECKING, Any

from quart import Blueprint, request

from agentsdock.model.errors import BadRequest
from agentsdock.model.requests import Idempotency, PostTurn
from agentsdock.web.errors import MAX_BODY_BYTES, Answer, answer
from agentsdock.web.parsing import Body, choice, received, refused

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

MAX_CAPABILITIES = 16
MAX_REFERENCES = 16
MAX_FILES = 256
MAX_EXTENSION_SECONDS = 86_400

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_INTERNAL_IDS = (
    "cross_chat_envelope_id",
    "cross_chat_exchange_id",
    "cross_chat_exchange_leg_id",
    "secure_peer_envelope_id",
)
_clock = choice(("idle", "turn"))


def read_turn(body: Body) -> PostTurn:
    prompt = body.text("prompt", MAX_BODY_BYTES)
    if prompt is None:
        raise refused("prompt", "a text is required")
    references = body.items("chat_references", list[dict[str, Any]], MAX_REFERENCES)
    for name in _INTERNAL_IDS:
        if body.value(name, str):
            raise BadRequest(f"{name} cannot be set from outside")
    purpose = body.value("purpose", str)
    if references and purpose:
        raise BadRequest("a turn with a purpose takes no chat references")
    return PostTurn(
        prompt=prompt,
        file_ids=tuple(dict.fromkeys(body.texts("file_ids", MAX_FILES, 256))),
        backend=body.text("backend", 64),
        model=body.text("model", 240),
        effort=body.text("effort", 64),
        display_prompt=body.text("display_prompt", MAX_BODY_BYTES),
        client_capabilities=body.texts("client_capabilities", MAX_CAPABILITIES, 240),
        chat_references=tuple(references),
    )


def read_idempotency(key: str | None, scope: str, body: bytes) -> Idempotency | None:
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise refused("idempotency-key", "1 to 255 visible ASCII characters", "header")
    return Idempotency(scope, key, hashlib.sha256(body).hexdigest())


def read_extension(body: Body) -> tuple[float, str | None]:
    seconds = body.value("seconds", float)
    if seconds is None or not 1 <= seconds <= MAX_EXTENSION_SECONDS:
        raise refused("seconds", f"a number from 1 to {MAX_EXTENSION_SECONDS}")
    return seconds, _clock(body, "clock")


def blueprint(dock: "Dock") -> Blueprint:
    turns = Blueprint("turns", __name__)
    chats = dock.chats

    @turns.post("/api/sessions/<session_id>/turns")
    async def post(session_id: str) -> Answer:
        raw = await received()
        message = read_turn(Body(raw))
        idempotency = read_idempotency(
            request.headers.get("Idempotency-Key"), f"POST {request.path}", raw
        )
        return answer(await chats.post_turn(session_id, message, idempotency))

    @turns.post("/api/sessions/<session_id>/stop")
    async def stop(session_id: str) -> Answer:
        return answer(await chats.stop(session_id))

    @turns.post("/api/sessions/<session_id>/runs/<run_id>/extend")
    async def extend(session_id: str, run_id: str) -> Answer:
        seconds, clock = read_extension(Body(await received()))
        return answer(await chats.extend(session_id, run_id, seconds, clock))

    return turns
