"""Timeline events: what is appended to a chat, and how it becomes bytes.

An event's JSON is built once.  The store only puts the sequence number in front, so the
bytes that were committed are the bytes that every client, page and replay gets.
"""

from typing import Any

import msgspec
from attrs import frozen

from agentsdock.model.ids import new_event_id

TERMINAL_TYPES = frozenset({"turn_finished", "turn_stopped"})
INTERNAL_TYPES = frozenset({"raw_event"})
"""Left out of pages and catch-ups that ask for ``visible`` events."""

INNER_TYPES = frozenset(
    {
        "assistant_text",
        "idle_warning",
        "process_started",
        "provider_session",
        "raw_event",
        "reasoning_summary",
        "subagent_state",
        "tool_finished",
        "tool_started",
    }
)
"""What comes in numbers inside a turn.  The outline of a chat is made of all other types."""
TRACE_TYPES = frozenset({"code_diff", "reasoning_summary", "tool_finished", "tool_started"})
"""What a turn did on its way."""

_AGENT_ALWAYS = frozenset(
    {
        "error",
        "artifact_created",
        "job_ran",
        "job_error",
        "handoff_digest_received",
        "codex_interaction_requested",
    }
)
_TOUCHING = frozenset(
    {
        "turn_started",
        "turn_queued",
        "turn_unqueued",
        "turn_queue_updated",
        "turn_queue_reordered",
        "turn_queue_run_now",
        "file_uploaded",
        "job_created",
        "job_deferred",
        "backend_changed",
        "history_imported",
        "session_forked",
    }
)


@frozen
class Draft:
    """An event before it has a place in a chat: its type and its top-level fields."""

    type: str
    payload: dict[str, Any]

    @property
    def run_id(self) -> str | None:
        return self.payload.get("run_id")

    @property
    def agent_visible(self) -> bool:
        """Whether it counts as unread (an agent said or produced something)."""
        if self.type == "assistant_text":
            return bool(str(self.payload.get("text") or "").strip())
        if self.type == "turn_finished":
            return bool(str(self.payload.get("result_text") or "").strip())
        return self.type in _AGENT_ALWAYS or self.type.startswith("cross_chat_")

    @property
    def touches(self) -> bool:
        """Whether it moves the chat's ``updated_at``."""
        return (
            self.type in _TOUCHING or self.type.startswith("handoff_digest_") or self.agent_visible
        )


@frozen
class Encoded:
    """A draft as bytes: a JSON object that still lacks its leading ``seq`` key."""

    type: str
    run_id: str | None
    ts: str
    body: bytes
    agent_visible: bool
    touches: bool


@frozen
class Committed:
    """An event on disk.  ``body`` is the whole JSON object, ``seq`` first."""

    seq: int
    type: str
    run_id: str | None
    body: bytes

    def decode(self) -> dict[str, Any]:
        event: dict[str, Any] = msgspec.json.decode(self.body)
        return event


_encode = msgspec.json.Encoder().encode


def encode(session_id: str, draft: Draft, ts: str) -> Encoded:
    """Encode a draft; a payload's own ``ts`` wins (imports keep their times)."""
    ts = draft.payload.get("ts", ts)
    body = _encode(
        {
            "id": new_event_id(),
            "session_id": session_id,
            "type": draft.type,
            "ts": ts,
            **draft.payload,
        }
    )
    return Encoded(draft.type, draft.run_id, ts, body, draft.agent_visible, draft.touches)


def with_seq(seq: int, body: bytes) -> bytes:
    return b'{"seq":%d,%b' % (seq, body[1:])
