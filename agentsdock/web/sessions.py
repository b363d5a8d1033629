"""Chats: list, create, read, change, delete, and what has been read of them."""

from typing import TYPE_CHECKING, Any

from quart import Blueprint, request

from agentsdock.config import Settings
from agentsdock.model.errors import BadRequest
from agentsdock.model.requests import CreateSession, PatchSession, PlaceSession, ReadPage
from agentsdock.model.sessions import (
    CLAUDE_PERMISSION_MODES,
    CODEX_APPROVAL_POLICIES,
    CODEX_APPROVALS_REVIEWERS,
    CODEX_SANDBOX_MODES,
    CURSOR_PERMISSION_MODES,
    PROVIDER_JOBS_ACCESS,
)
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import MAX_INTEGER, Body, Query, Reader, choice, flag, received, text

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

_LEAVES_ALONE_IF_NULL = ("title", "folder", "cwd", "backend", "pinned", "archived")
_ID_FIELDS = ("provider_session_id", "session_id")
_OWN_ID_FIELDS = {
    "claude": "claude_session_id",
    "codex": "codex_thread_id",
    "cursor": "cursor_session_id",
}


def _fields(settings: Settings) -> dict[str, Reader]:
    """What both a new chat and a patch may set."""
    return {
        "title": text(1000),
        "folder": text(1000),
        "cwd": text(4096),
        "backend": text(64),
        "model": text(240),
        "effort": text(64),
        "system_prompt": text(settings.system_prompt_chars),
        "pinned": flag,
        "archived": flag,
        "cursor_permission_mode": choice(CURSOR_PERMISSION_MODES, blank_is_null=True),
        "claude_permission_mode": choice(CLAUDE_PERMISSION_MODES),
        "codex_approval_policy": choice(CODEX_APPROVAL_POLICIES),
        "codex_sandbox_mode": choice(CODEX_SANDBOX_MODES),
        "codex_permission_profile": text(240),
        "codex_approvals_reviewer": choice(CODEX_APPROVALS_REVIEWERS),
        "provider_jobs_access": choice(PROVIDER_JOBS_ACCESS),
    }


def read_new(body: Body, settings: Settings) -> CreateSession:
    known = {name: read(body, name) for name, read in _fields(settings).items()}
    ids = {name: body.text(name, 256) for name in (*_ID_FIELDS, *_OWN_ID_FIELDS.values())}
    own = _OWN_ID_FIELDS.get(known["backend"] or settings.default_backend, "session_id")
    return CreateSession(
        **known,
        provider_session_id=next(filter(None, (ids[name] for name in (*_ID_FIELDS, own))), None),
        import_history=flag(body, "import_history"),
    )


def read_patch(body: Body, settings: Settings) -> PatchSession:
    sent = {name: read(body, name) for name, read in _fields(settings).items() if name in body}
    for name in _LEAVES_ALONE_IF_NULL:
        if name in sent and sent[name] is None:
            del sent[name]
    return PatchSession(**sent)


_direction = choice(("up", "down"))
_placement = choice(("before", "after"))


def read_place(body: Body) -> PlaceSession:
    place = PlaceSession(
        direction=_direction(body, "direction"),
        target_id=body.text("target_id", 128),
        placement=_placement(body, "placement") or "before",
        target_folder=body.text("target_folder", 1000),
    )
    if (place.direction is None) == (place.target_id is None):
        raise BadRequest("send either a direction or a target_id")
    return place


def read_page(query: Query, settings: Settings) -> ReadPage:
    mode = query.text("page_mode")
    if mode not in ("", "semantic"):
        raise BadRequest("page_mode must be semantic")
    semantic = mode == "semantic"
    before = query.integer("before", None)
    semantic_before = query.integer("semantic_before", before)
    limit = query.integer("limit", settings.session_event_limit)
    return ReadPage(
        after=query.integer("after", 0),
        before=semantic_before if semantic else before,
        limit=min(max(limit, 1), settings.max_event_response_limit),
        tail=query.flag("tail", True),
        visible=query.flag("visible", False),
        compact=query.flag("compact", False),
        semantic=semantic,
    )


def blueprint(dock: "Dock") -> Blueprint:
    sessions = Blueprint("sessions", __name__)
    chats, settings = dock.chats, dock.settings

    def one(session: dict[str, Any]) -> Answer:
        return answer({"session": session})

    @sessions.get("/api/sessions")
    async def list_all() -> Answer:
        if Query(request.args).flag("summary", False):
            return answer(chats.summaries())
        return answer({"sessions": chats.details()})

    @sessions.post("/api/sessions")
    async def create() -> Answer:
        wanted = read_new(Body(await received() or b"{}"), settings)
        created = await chats.create(wanted)
        if wanted.wants_history:
            await dock.imports.at_creation(created["id"])
            created = chats.detail(created["id"])
        return one(created)

    @sessions.get("/api/sessions/<session_id>")
    async def page(session_id: str) -> Answer:
        wanted = read_page(Query(request.args), settings)
        read = dock.reading.semantic_page if wanted.semantic else chats.page
        return answer(await read(session_id, wanted))

    @sessions.patch("/api/sessions/<session_id>")
    async def patch(session_id: str) -> Answer:
        body = Body(await received())
        return one(await chats.patch(session_id, read_patch(body, settings)))

    @sessions.delete("/api/sessions/<session_id>")
    async def delete(session_id: str) -> Answer:
        return answer(await chats.delete(session_id))

    @sessions.post("/api/sessions/<session_id>/read")
    async def mark_read(session_id: str) -> Answer:
        body = Body(await received() or b"{}")
        seq = body.value("last_read_agent_event_seq", int)
        if seq is not None:
            seq = min(max(seq, 0), MAX_INTEGER)
        return one(await chats.mark_read(session_id, seq))

    @sessions.post("/api/sessions/<session_id>/order")
    async def order(session_id: str) -> Answer:
        place = read_place(Body(await received()))
        return answer({"sessions": await chats.place(session_id, place)})

    @sessions.post("/api/sessions/<session_id>/unread")
    async def mark_unread(session_id: str) -> Answer:
        return one(await chats.mark_unread(session_id))

    return sessions
