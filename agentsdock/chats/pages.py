"""A page of a chat's timeline as JSON: stored bytes are joined, nothing is decoded."""

import msgspec

from agentsdock.chats.chat import Chat
from agentsdock.config import Settings
from agentsdock.model.events import INTERNAL_TYPES
from agentsdock.model.requests import ReadPage
from agentsdock.store.protocol import Store

COMPACTED_TYPES = INTERNAL_TYPES | {
    "reasoning_summary",
    "tool_started",
    "tool_finished",
    "process_started",
    "provider_session",
    "cwd_fallback",
    "history_imported",
    "backend_changed",
    "session_created",
    "code_diff",
}
_encode = msgspec.json.Encoder().encode


async def page(store: Store, settings: Settings, chat: Chat, request: ReadPage) -> bytes:
    """The body of ``GET /api/sessions/{id}``.

    Who goes on from ``latest_seq`` misses nothing: no event in it is later, and what waits is
    read after it.
    """
    latest_seq = chat.head.seq
    before = latest_seq + 1 if request.before is None else min(request.before, latest_seq + 1)
    without: frozenset[str] = frozenset()
    if request.compact:
        without = frozenset(COMPACTED_TYPES)
    elif request.visible:
        without = INTERNAL_TYPES
    tail = request.tail and request.after <= 0
    rows, count = await store.read_page(
        chat.id,
        after=max(request.after, 0),
        before=before,
        limit=max(1, min(request.limit, settings.max_event_response_limit)),
        tail=tail,
        without=without,
    )
    omitted = max(count - len(rows), 0)
    fields = {
        "session": chat.detail(),
        "queued_turns": chat.rows(),
        "events_omitted_before": omitted if tail else 0,
        "events_omitted_after": 0 if tail else omitted,
        "latest_seq": latest_seq,
        "event_count": count,
    }
    events = b",".join(row.body for row in rows)
    return _encode(fields)[:-1] + b',"events":[' + events + b"]}"
