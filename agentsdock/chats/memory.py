"""Bounded memory of a chat, for a CLI session that does not know it."""

from typing import Any

from agentsdock.model.sessions import Session
from agentsdock.store.protocol import Store

EVENTS = 160
COMMENTARY_CHARS = 900
HEADER_VALUE_CHARS = 800
_CONVERSATION = frozenset(
    {"turn_started", "assistant_text", "turn_finished", "artifact_created", "reasoning_summary"}
)
_HIDDEN_PURPOSES = frozenset(
    {
        "handoff_digest",
        "handoff_digest_delivery",
        "cross_chat_handoff_delivery",
        "secure_peer_handoff_delivery",
    }
)
_SCAN_ROWS = 1000
_TRIMMED = "[earlier conversation trimmed]"


async def remember(
    store: Store, session: Session, reason: str, *, max_chars: int, item_chars: int
) -> str:
    """The newest conversational events as text of at most ``max_chars`` characters."""
    events: list[dict[str, Any]] = []
    before: int | None = None
    while len(events) < EVENTS:
        rows, _ = await store.read_page(session.id, before=before, limit=_SCAN_ROWS, tail=True)
        if not rows:
            break
        page = [row.decode() for row in rows if row.type in _CONVERSATION]
        events = [event for event in page if _is_conversation(event)] + events
        before = rows[0].seq
    return compose(session, events[-EVENTS:], reason, max_chars=max_chars, item_chars=item_chars)


def _is_conversation(event: dict[str, Any]) -> bool:
    if event.get("purpose") in _HIDDEN_PURPOSES:
        return False
    return event["type"] != "reasoning_summary" or event.get("phase") == "commentary"


def compose(
    session: Session,
    events: list[dict[str, Any]],
    reason: str,
    *,
    max_chars: int,
    item_chars: int,
) -> str:
    """The text: a header, then one paragraph an event; the tail is what is kept."""
    header = "\n".join(
        (
            f"Chat: {session.title[:HEADER_VALUE_CHARS]} ({session.id}, {session.backend})",
            f"Session of the CLI: {session.binding().session_id or 'none'}",
            f"Folder: {session.cwd[:HEADER_VALUE_CHARS]}",
            f"Reason: {reason[:HEADER_VALUE_CHARS]}",
        )
    )
    spoken = {event.get("run_id") for event in events if event["type"] == "assistant_text"}
    items = [text for event in events if (text := _item(event, spoken, item_chars))]
    body = "\n\n".join(items)
    room = max_chars - len(header) - 2
    if len(body) > room:
        body = _TRIMMED + "\n" + body[-(room - len(_TRIMMED) - 1) :]
    return f"{header}\n\n{body}"


def _item(event: dict[str, Any], spoken: set[Any], item_chars: int) -> str:
    match event["type"]:
        case "turn_started":
            return _said("User", event.get("prompt"), item_chars)
        case "assistant_text":
            return _said("Assistant", event.get("text"), item_chars)
        case "reasoning_summary":
            return _said("Assistant, thinking", event.get("text"), COMMENTARY_CHARS)
        case "turn_finished" if event.get("run_id") not in spoken:
            return _said("Assistant", event.get("result_text"), item_chars)
        case "artifact_created":
            name = (event.get("artifact") or {}).get("filename")
            return _said("File delivered", name, item_chars)
    return ""


def _said(who: str, text: Any, limit: int) -> str:
    text = str(text or "").strip()
    if not text:
        return ""
    return f"{who}: {text[:limit]}{' [cut]' if len(text) > limit else ''}"
