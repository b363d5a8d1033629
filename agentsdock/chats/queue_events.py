"""What the timeline says of waiting rows."""

from collections.abc import Sequence

from agentsdock.chats.chat import Chat
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.turns import QueuedTurn


def queued(chat: Chat, row: QueuedTurn, place: int) -> Draft:
    return Draft(
        "turn_queued",
        {
            **_content(chat, row),
            "request_prompt": row.prompt,
            "model": row.model,
            "effort": row.effort,
            "position": place,
            "purpose": row.purpose,
        },
    )


def deferred(row: QueuedTurn, reason: str, remaining: int) -> Draft:
    payload = {"queued_id": row.queued_id, "message": reason, "remaining": remaining}
    return Draft("turn_deferred", payload)


def paused(rows: Sequence[QueuedTurn]) -> Draft:
    return Draft(
        "turn_queue_paused",
        {
            "queued_ids": [row.queued_id for row in rows],
            "message": "Waiting messages are paused until you run or delete them.",
        },
    )


def refused(chat: Chat, row: QueuedTurn, message: str) -> list[Draft]:
    """The row leaves because it can never start."""
    error = {
        "queued_id": row.queued_id,
        "backend": chat.session.backend,
        "code": Code.LAUNCH_REFUSED,
        "message": message,
    }
    return [Draft("error", error), unqueued(chat, row, "launch_refused", message)]


def unqueued(chat: Chat, row: QueuedTurn, reason: str, message: str) -> Draft:
    return Draft(
        "turn_unqueued",
        {
            "queued_id": row.queued_id,
            "reason": reason,
            "prompt": row.shown_prompt,
            "file_ids": list(row.file_ids),
            "message": message,
            "remaining": len(chat.queue) - 1,
        },
    )


def updated(chat: Chat, row: QueuedTurn, place: int) -> Draft:
    links: dict[str, list[str]] = {"cross_chat_obligation_ids": [], "cross_chat_exchange_ids": []}
    return Draft("turn_queue_updated", {**_content(chat, row), **links, "position": place})


def moved(queued_id: str, direction: str, positions: list[dict[str, object]]) -> Draft:
    payload = {"queued_id": queued_id, "direction": direction, "positions": positions}
    return Draft("turn_queue_reordered", payload)


def run_now(
    chat: Chat, row: QueuedTurn, interrupted: str | None, positions: list[dict[str, object]]
) -> Draft:
    """``interrupted`` is the run that is ended for it, if one is."""
    return Draft(
        "turn_queue_run_now",
        {
            **_content(chat, row),
            "request_prompt": row.prompt,
            "display_file_ids": list(row.file_ids),
            "interrupted_run_id": interrupted,
            "replays_interrupted_message": False,
            "message": "This message runs next.",
            "remaining": len(chat.queue) - 1,
            "superseded_queued_ids": [],
            "positions": positions,
        },
    )


def _content(chat: Chat, row: QueuedTurn) -> dict[str, object]:
    return {
        "queued_id": row.queued_id,
        "backend": row.backend or chat.session.backend,
        "prompt": row.shown_prompt,
        "display_prompt": row.display_prompt,
        "file_ids": list(row.file_ids),
        "chat_references": list(row.chat_references),
        "client_capabilities": list(row.client_capabilities),
    }
